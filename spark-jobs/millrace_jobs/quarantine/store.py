"""A job's quarantine: finds the records that its batch fails by, and puts them aside.

A batch's offsets are fixed before it runs, so it fails again and again by the same records. Ranges
of them are tried as a batch of their own, without state and without sinks. What is put aside stands
in the dead letters, and then in the table that everybody who reads the job's records goes by.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from datetime import UTC, datetime
from functools import partial, reduce
from typing import Any

from pyspark.errors import (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    PySparkException,
    SparkNoSuchElementException,
    SparkRuntimeException,
    UnsupportedOperationException,
)
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace_jobs.inputs import sources
from millrace_jobs.inputs.checkpoint import Offsets
from millrace_jobs.inputs.place import Place
from millrace_jobs.quarantine.search import NotIsolatable, Range, Skip, find
from millrace_jobs.query.context import JobContext, StoredContext
from millrace_jobs.settings import DeclaredSettings
from millrace_jobs.sinks.dead_letters import DeadLetters
from millrace_jobs.transforms import large, parse

COLUMNS = (
    *("job", "topic", '"partition"', '"offset"'),
    *("reason", "checkpoint", '"batch"', "since", "retried"),
)
PLACE = "topic string, partition int, offset bigint"
LISTED = 1000  # places that a filter names; of more, a table is joined
PROBES_AT_ONCE = 4  # most of a small one's time is its planning
REASON_CHARACTERS = 200
JOB_GROUP = "spark.jobGroup.id"  # Spark's name for it, where a query has put its run
# What an expression makes of a value. A store that is away, an executor that is lost: those are
# others.
OF_VALUES = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkNoSuchElementException,
    SparkRuntimeException,
)
# Hadoop raises these, too, for hosts that it doesn't find; Spark's own have a condition.
OF_VALUES_WITH_CONDITION = (IllegalArgumentException, UnsupportedOperationException)

Rows = Callable[[Sequence[DataFrame]], DataFrame]


class Quarantine:
    """Of one job; ``rows`` makes what is stored of the events of its streams."""

    def __init__(self, context: JobContext, rows: Rows) -> None:
        self._context = context
        self._rows = rows
        self.is_searching = False
        self.searched_for = ""  # what the batch failed by whose records are looked for

    def isolate(self, batch: int, error: str) -> list[str]:
        """Put the records aside by which a batch fails, and say which.

        Raises NotIsolatable when it fails for another reason, or too many records do: then it isn't
        they, but the job's code.
        """
        self.searched_for, self.is_searching = error, True
        try:
            found = self._search(batch)
            if not found:
                raise NotIsolatable(f"batch {batch} fails, but none of its records alone: {error}")
            self._put_aside(found, batch)
            return [str(place) for place in found]
        finally:
            self.is_searching = False

    def _most(self, events: int) -> int:
        """How many of a batch's events may be put aside: a share of them, or a few if those are not
        too many with what the batches before had, as far as the checkpoint tells of them."""
        context = self._context
        settings = context.settings.as_kind(DeclaredSettings)
        oldest = context.checkpoint.oldest()
        known = skips_from(context, context.checkpoint.batch(oldest).start)
        recently = sum(skip.batch >= oldest for skip in known)
        few = settings.quarantine_records - recently
        return max(int(settings.quarantine_share * events), few, 0)

    def _search(self, batch: int) -> dict[Place, str]:
        context = self._context
        context.lease.confirm()
        events = [
            parse.valid(found.transform(parse.classify, stream), stream).persist()
            for found, stream in zip(self._records(batch), context.streams, strict=True)
        ]
        planning = threading.Lock()  # the views of a query have the same names in each probe

        def error_of(tried: Range) -> str | None:
            with planning:
                rows = self._rows([found.where(_is_in(tried)) for found in events])
            try:
                rows.write.format("noop").mode("overwrite").save()
            except PySparkException as error:
                if is_of_values(error):
                    return in_a_line(error)
                raise
            return None

        try:
            use = partial(self._use_own_pool, self._group())
            with ThreadPoolExecutor(PROBES_AT_ONCE, initializer=use) as pool:
                ranges = [one for found in events for one in _ranges_of(found)]
                most = self._most(sum(found.count() for found in events))
                return find(ranges, lambda tried: list(pool.map(error_of, tried)), most)
        finally:
            for found in events:
                found.unpersist()

    def _put_aside(self, found: dict[Place, str], batch: int) -> None:
        """Letters first: nothing is left out without one."""
        context, since = self._context, _now()
        checkpoint, version = context.checkpoint_id(), context.version(batch)
        records = reduce(
            DataFrame.unionByName,
            (
                found.transform(large.cut, stream.record_bytes)
                for found, stream in zip(self._records(batch), context.streams, strict=True)
            ),
        )
        letters = DeadLetters(
            context.config.kafka,
            context.config.names.kafka.topics.dead_letters,
            context.tables,
            context.settings,
        )
        context.lease.verify()  # the next leader may have other code, by which they don't fail
        letters.write(with_reasons(records, context.job, found), checkpoint, batch, version)
        context.lease.verify()
        rows = [
            row_of(context.job, Skip(place, since, error, checkpoint, batch))
            for place, error in found.items()
        ]
        context.tables.upsert("quarantine", COLUMNS, rows, version)

    def _records(self, number: int) -> list[DataFrame]:
        """Of each stream, what the batch reads and doesn't leave out already."""
        context, skips = self._context, left_out(self._context)
        session = context.spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", 1)
        # Generated code has a range's numbers in it, and would be compiled for each probe.
        session.conf.set("spark.sql.codegen.wholeStage", False)
        batch = context.checkpoint.batch(number)
        return [
            without(
                sources.records(
                    session,
                    context.config.kafka,
                    stream.topic,
                    context.settings,
                    batch.of(stream.topic),
                    context.skipped,
                ),
                stream.topic,
                skips,
            )
            for stream in context.streams
        ]

    def _group(self) -> str | None:
        """Spark's group for the jobs of the batch, as long as a batch is run."""
        group: str | None = self._context.spark.sparkContext.getLocalProperty(JOB_GROUP)
        return group

    def _use_own_pool(self, group: str | None) -> None:
        """Probes are cancelled with the batch that they are about."""
        context = self._context.spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", self._context.job)
        if group:
            context.setJobGroup(group, "looking for records", interruptOnCancel=True)


def skips_of(context: StoredContext) -> list[Skip]:
    """What the job has ever put aside, in the order of its place."""
    return _select(context, "")


def skips_from(context: JobContext, start: Offsets) -> list[Skip]:
    """What the job has put aside from these offsets on. Its list may be long, and a query that has
    come so far needs only the end of it."""
    partition_from = ' AND topic = ? AND "partition" = ? AND "offset" >= ?'
    found: list[Skip] = []
    for topic in {stream.topic for stream in context.streams}:
        if topic in start:
            for partition, offset in start[topic].items():
                found += _select(context, partition_from, topic, int(partition), offset)
        else:
            found += _select(context, " AND topic = ?", topic)
    return found


def _select(context: StoredContext, further: str, *values: Any) -> list[Skip]:
    query = f"SELECT {', '.join(COLUMNS)} FROM {{keyspace}}.quarantine WHERE job = ?{further}"
    return [
        Skip(
            Place(row.topic, row.partition, row.offset),
            *(row.since, row.reason, row.checkpoint, row.batch, row.retried),
        )
        for row in context.tables.select(query, [context.job, *values])
    ]


def row_of(job: str, skip: Skip) -> tuple[Any, ...]:
    """The row of the table ``quarantine`` for a record, in the order of `COLUMNS`."""
    return (
        *(job, *astuple(skip.place)),
        *(skip.reason, skip.checkpoint, skip.batch, skip.since, skip.retried),
    )


def left_out(context: JobContext) -> list[Skip]:
    """What the job's query leaves out of the batches that it has yet to commit.

    What was retried is in the rows of its checkpoint; the query of another one has it to read.
    """
    skips = skips_from(context, context.checkpoint.reached())
    if not any(skip.retried for skip in skips):
        return skips
    query = context.checkpoint.query_id()
    return [skip for skip in skips if not skip.retried or skip.checkpoint == query]


def without(records: DataFrame, topic: str, skips: Iterable[Skip]) -> DataFrame:
    """Records, or events, of a topic that are not to be left out."""
    places = [skip.place for skip in skips if skip.place.topic == topic]
    if len(places) > LISTED and not records.isStreaming:
        left = records.sparkSession.createDataFrame([astuple(one) for one in places], PLACE)
        return records.join(F.broadcast(left), ["topic", "partition", "offset"], "left_anti")
    offsets: dict[int, list[int]] = {}
    for place in places:
        offsets.setdefault(place.partition, []).append(place.offset)
    for partition, left_out in offsets.items():
        here = F.col("partition") == partition
        records = records.where(~(here & F.col("offset").isin(left_out)))
    return records


def with_reasons(records: DataFrame, job: str, found: dict[Place, str]) -> DataFrame:
    """The records that were found, as dead letters."""
    reasons = records.sparkSession.createDataFrame(
        [(*astuple(place), f"{job}: {error}") for place, error in found.items()],
        f"{PLACE}, reason string",
    )
    return records.join(F.broadcast(reasons), ["topic", "partition", "offset"])


def is_of_values(error: Exception) -> bool:
    """Whether it comes of what was computed, and not of where."""
    if isinstance(error, OF_VALUES_WITH_CONDITION) and not isinstance(error, OF_VALUES):
        return error.getCondition() is not None
    return isinstance(error, OF_VALUES)


def in_a_line(error: Exception) -> str:
    """What Spark says first."""
    first, *_ = str(error).strip().splitlines() or [type(error).__name__]
    return first[:REASON_CHARACTERS]


def _ranges_of(events: DataFrame) -> list[Range]:
    """The range of offsets of each partition that has events."""
    rows = events.groupBy("topic", "partition").agg(F.min("offset"), F.max("offset") + 1).collect()
    return [Range(*row) for row in rows]


def _is_in(tried: Range) -> Column:
    return (
        (F.col("topic") == tried.topic)
        & (F.col("partition") == tried.partition)
        & F.col("offset").between(tried.start, tried.end - 1)
    )


def _now() -> datetime:
    """The time in naive UTC, as Cassandra's driver gives times."""
    return datetime.now(UTC).replace(tzinfo=None)
