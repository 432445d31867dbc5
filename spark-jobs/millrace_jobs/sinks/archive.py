"""The archive: a Delta table of all events, partitioned by the hour in which they happened."""

import contextlib

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import AnalysisException

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


def read_log(spark: SparkSession, path: str) -> None:
    """Have the driver know the table's newest version, so that a first append needn't read it."""
    with contextlib.suppress(AnalysisException):  # there is no table yet
        spark.read.format("delta").load(path).limit(0).collect()
