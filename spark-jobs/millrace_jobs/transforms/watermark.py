"""How long events are waited for."""

from pyspark.sql import DataFrame


def watermarked(
    events: DataFrame, event_time: str, watermark_seconds: int, tasks: int
) -> DataFrame:
    """Events that came too late are dropped by what is made of these.

    Spark doesn't see through its own watermark that a single task has read all events, and would
    send them to another one for a state that has one partition, too. That took a laptop's batch
    two of its three tasks. More tasks stay what they are.
    """
    return events.withWatermark(event_time, f"{watermark_seconds} seconds").coalesce(tasks)
