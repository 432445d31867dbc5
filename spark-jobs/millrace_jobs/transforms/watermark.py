"""How long events are waited for."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

# By this entry of a column's metadata Spark knows what a watermark is about: `EventTimeWatermark`.
DELAY = "spark.watermarkDelayMs"
CLOCK = "__clock"


def watermarked(
    events: DataFrame, event_time: str, watermark_seconds: int, tasks: int
) -> DataFrame:
    """Events that came too late are dropped by what is made of these.

    Spark doesn't see through its own watermark that a single task has read all events, and would
    send them to another one for a state that has one partition, too. That took a laptop's batch
    two of its three tasks. More tasks stay what they are.
    """
    return events.withWatermark(event_time, f"{watermark_seconds} seconds").coalesce(tasks)


def behind_the_clock(
    events: DataFrame, event_time: str, arrived: str, watermark_seconds: int, tasks: int
) -> DataFrame:
    """The same, by a watermark that no event takes ahead of the clock.

    An event that is ahead of its time, as far as its stream takes it, counts for the watermark with
    the time at which it ``arrived``. By its own time it would make late whatever comes next, in
    time, where ``watermark_seconds`` are few. Spark takes the time of one column for the watermark,
    and asks another's metadata what to hold to it: so the clock is a column beside the event's.
    """
    clock = F.least(event_time, arrived)
    held = F.col(event_time).alias(event_time, metadata={DELAY: 1000 * watermark_seconds})
    marked = watermarked(events.withColumn(CLOCK, clock), CLOCK, watermark_seconds, tasks)
    return marked.withColumn(event_time, held).drop(CLOCK)
