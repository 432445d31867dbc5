"""An archive: a Delta table of a stream's events, partitioned by the hour of their time."""

import logging
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace_jobs.inputs.place import Place
from millrace_jobs.spark_internals import java_session, jvm

log = logging.getLogger(__name__)

PARTITIONS = ("event_date", "event_hour")
# What files are left out by, beside the event's time: of others the least and the greatest value
# tell nobody anything, and cost a tenth of an archive's computing. Of a table that is new.
SOUGHT_BY = ("partition", "offset", "timestamp")
CONFLICT = "io.delta.exceptions.ConcurrentTransactionException"


def append(
    events: DataFrame,
    event_time: str,
    path: str,
    application: str,
    batch: int,
    writers: int,
    writers_per_hour: int,
) -> bool:
    """Add a batch's events once: Delta's log keeps the last batch of each application.

    Args:
        application: must change with the checkpoint: batches are counted from zero again.
        writers: tasks at once; ``writers_per_hour`` of them share an hour, and leave a file each.

    Returns:
        False if another driver, one that was frozen, added a batch meanwhile. It is this one as a
        rule, and then ``events`` were not added again.
    """
    writer = (
        with_partitions(events, event_time)
        .transform(dealt, writers, writers_per_hour)
        .write.format("delta")
        .mode("append")
        .partitionBy(*PARTITIONS)
        .option("delta.dataSkippingStatsColumns", ",".join((event_time, *SOUGHT_BY)))
        .option("txnAppId", application)
        .option("txnVersion", batch)
    )
    try:
        writer.save(path)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != CONFLICT:
            raise
        log.warning(
            "another driver has added to the archive; looking whether it was batch %d", batch
        )
        writer.save(path)
        return False
    return True


def last_batch(spark: SparkSession, path: str, application: str) -> int:
    """The newest batch of an application that the table has, -1 if there is none."""
    delta = jvm(spark.sparkContext).org.apache.spark.sql.delta.DeltaLog
    delta.clearCache()  # another driver may have added to it
    batches = delta.forTable(java_session(spark), path).unsafeVolatileSnapshot().transactions()
    return int(batches.apply(application)) if batches.contains(application) else -1


def load_log(spark: SparkSession, path: str) -> None:
    """What an append begins with, if there is such a table."""
    with suppress(AnalysisException):
        spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()


def read(
    spark: SparkSession, path: str, event_time: str, start: datetime, end: datetime
) -> DataFrame:
    """Events from ``start`` up to but not including ``end``, in naive UTC."""
    time = F.col(event_time)
    return (
        spark.read.format("delta")
        .load(path)
        .where(F.col("event_date").between(start.date(), end.date()))
        .where((time >= F.lit(start)) & (time < F.lit(end)))
    )


def times(
    spark: SparkSession, path: str, event_time: str, places: Collection[Place]
) -> dict[Place, datetime]:
    """When the events at these places of its topic happened, in naive UTC; of those that it has."""
    if not places:
        return {}
    here = reduce(
        Column.__or__,
        (
            (F.col("partition") == place.partition) & (F.col("offset") == place.offset)
            for place in places
        ),
    )
    events = spark.read.format("delta").load(path).where(here)
    rows = events.select("topic", "partition", "offset", event_time).collect()
    return {Place(*row[:3]): row[3] for row in rows}


def dealt(events: DataFrame, writers: int, writers_per_hour: int) -> DataFrame:
    """Each event to the task that writes it: few to an hour, as each leaves a file; but events of
    now are all of one hour, and one task wrote 36,000 a second, on a core that it shared.

    A single writer is the reader, too: a shuffle between them took a fifth of a batch's computing.
    """
    if writers == 1:
        return events.coalesce(1)
    turn = F.col("offset") % min(writers, writers_per_hour)
    return events.repartitionById(
        writers, F.pmod(F.hash(*PARTITIONS) + turn, F.lit(writers)).cast("int")
    )


def with_partitions(events: DataFrame, event_time: str) -> DataFrame:
    return events.withColumns(
        {"event_date": F.to_date(event_time), "event_hour": F.hour(event_time)}
    )
