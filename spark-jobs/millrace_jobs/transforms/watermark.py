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

    The watermark is behind the clock: an event that is ahead of its time, as far as its stream
    takes it, counts for it with the time at which its broker got it. By its own time it would make
    late whatever comes next, in time. Spark takes the time of one column for the watermark, and
    asks another's metadata what to hold to it; so the clock is a column beside the event's time.

    Spark doesn't see through its own watermark that a single task has read all events, and would
    send them to another one for a state that has one partition, too. That took a laptop's batch
    two of its three tasks. More tasks stay what they are.
    """
    clock = F.least(event_time, "timestamp")
    held = F.col(event_time).alias(event_time, metadata={DELAY: 1000 * watermark_seconds})
    marked = events.withColumn(CLOCK, clock).withWatermark(CLOCK, f"{watermark_seconds} seconds")
    return marked.coalesce(tasks).withColumn(event_time, held).drop(CLOCK)
