"""The archive: a Delta table of all events, partitioned by the hour in which they happened."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PARTITIONS = ("event_date", "event_hour")


def append(events: DataFrame, path: str, application: str, batch: int) -> None:
    """Add a batch's events once: Delta's log keeps the last batch of each application.

    ``application`` must change with the checkpoint, because batches are counted from zero again.
    """
    (
        with_partitions(events)
        # One task writes an hour, so that a batch leaves one file an hour and not one a task.
        .repartition(*PARTITIONS)
        .write.format("delta")
        .mode("append")
        .partitionBy(*PARTITIONS)
        .option("txnAppId", application)
        .option("txnVersion", batch)
        .save(path)
    )


def with_partitions(events: DataFrame) -> DataFrame:
    return events.withColumns(
        {"event_date": F.to_date("event_time"), "event_hour": F.hour("event_time")}
    )
