"""An archive: a Delta table of a stream's events, partitioned by the hour of their time.

What was old when it came stands apart, in one partition of the day on which it came: a client with
random times would leave a file for each hour since 2000, in every batch.
"""

import json
import logging
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace_jobs.inputs.checkpoint import Batch
from millrace_jobs.inputs.place import Place
from millrace_jobs.spark_internals import java_session, jvm
from millrace_jobs.stream import Stream
from millrace_jobs.transforms.parse import COORDINATES

log = logging.getLogger(__name__)

PARTITIONS = ("event_date", "event_hour")
OLD = 24  # the hour of what was old; its date is the day on which it was received
# What files are left out by, beside the event's time: of others the least and the greatest value
# tell nobody anything, and cost a tenth of an archive's computing. Of a table that is new.
SOUGHT_BY = ("partition", "offset", "timestamp")
CONFLICT = "io.delta.exceptions.ConcurrentTransactionException"


class OtherTypes(Exception):
    """The table has a field as another type than the stream; says which fields, and what to do."""


def append(
    events: DataFrame,
    event_time: str,
    path: str,
    application: str,
    batch: int,
    writers: int,
    writers_per_hour: int,
    old_after_hours: int,
    read: Batch | None = None,
) -> bool:
    """Add a batch's events once: Delta's log keeps the last batch of each application.

    A field that the table doesn't have yet becomes a column of it, null in all rows before.

    Args:
        application: must change with the checkpoint: batches are counted from zero again.
        writers: tasks at once; ``writers_per_hour`` of them share an hour, and leave a file each.
        old_after_hours: between an event's time and its receipt.
        read: what the batch reads. The commit says so, for the books that are kept of it; None in
            a table of which nobody keeps any.

    Returns:
        False if another driver, one that was frozen, added a batch meanwhile. It is this one as a
        rule, and then ``events`` were not added again.

    Raises OtherTypes where the table can't take the events' fields.
    """
    writer = (
        with_partitions(events, event_time, old_after_hours)
        .transform(dealt, writers, writers_per_hour)
        .write.format("delta")
        .mode("append")
        .partitionBy(*PARTITIONS)
        .option("mergeSchema", "true")
        .option("delta.dataSkippingStatsColumns", ",".join((event_time, *SOUGHT_BY)))
        .option("txnAppId", application)
        .option("txnVersion", batch)
    )
    if read:
        writer = writer.option("userMetadata", told(read))
    try:
        writer.save(path)
    except AnalysisException as error:
        refuse_other_types(events, path)
        raise error
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != CONFLICT:
            raise
        log.warning(
            "another driver has added to the archive; looking whether it was batch %d", batch
        )
        writer.save(path)
        return False
    return True


def told(read: Batch) -> str:
    """What a commit says of the records that its batch reads: by partition from where, up to where.
    An archive reads one topic."""
    [(topic, ends)] = read.end.items()
    starts = read.start[topic]
    return json.dumps({"read": {number: [starts[number], end] for number, end in ends.items()}})


def refuse_other_types(events: DataFrame, path: str) -> None:
    """Raises OtherTypes if the table has a column of the events as another type."""
    offered = _types(events)
    stored = _types(events.sparkSession.read.format("delta").load(path))
    if differ := [name for name in offered if stored.get(name, offered[name]) != offered[name]]:
        fields = ", ".join(f"{name} as {stored[name]}, not {offered[name]}" for name in differ)
        raise OtherTypes(
            f"the archive {path} has {fields}: give the field its type back, or another name, in"
            " configs/streams, and deploy that"
        )


def _types(frame: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema}


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
    spark: SparkSession, path: str, stream: Stream, start: datetime, end: datetime
) -> DataFrame:
    """The stream's events from ``start`` up to but not including ``end``, in naive UTC.

    A field is null where the table hasn't got it yet.
    """
    stored = spark.read.format("delta").load(path)
    time = F.col(stream.event_time)
    found = stored.where(_may_hold(start, end)).where((time >= F.lit(start)) & (time < F.lit(end)))
    return found.select(
        *(
            F.col(name) if name in stored.columns else F.lit(None).cast(kind).alias(name)
            for name, kind in stream.columns.items()
        ),
        *COORDINATES,
    )


def _may_hold(start: datetime, end: datetime) -> Column:
    """Partitions in which events of that time may be; what was old came on the same day or later.
    Files of those are left out by the times that they hold."""
    day, hour = (F.col(name) for name in PARTITIONS)
    return day.between(start.date(), end.date()) | ((hour == OLD) & (day >= F.lit(start.date())))


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


def with_partitions(events: DataFrame, event_time: str, old_after_hours: int) -> DataFrame:
    old = F.col(event_time) < F.col("timestamp") - F.make_dt_interval(hours=F.lit(old_after_hours))
    day = F.to_date(F.when(old, F.col("timestamp")).otherwise(F.col(event_time)))
    hour = F.when(old, F.lit(OLD)).otherwise(F.hour(event_time))
    return events.withColumns(dict(zip(PARTITIONS, (day, hour), strict=True)))
