"""A job's rows of some windows: as the archive gives them, and as its table has them."""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace_jobs.declared.enrichment import Enrichment
from millrace_jobs.inputs.skipped import SkippedRange
from millrace_jobs.output import WINDOW_START, Output
from millrace_jobs.quarantine.search import Skip
from millrace_jobs.quarantine.store import without
from millrace_jobs.query.context import AnalysisContext, StoredContext
from millrace_jobs.query.job import Countable
from millrace_jobs.query.skips import ranges_of
from millrace_jobs.recount.comparison import Row, by_name
from millrace_jobs.recount.generations import ALL, Terms
from millrace_jobs.recount.slices import ROWS, Slice
from millrace_jobs.sinks import archive
from millrace_shared.generations import STREAM, bucket_of

# Of the driver's scheduler, where a retry counts beside the streams.
POOL = "recount"


def with_facts(
    output: Output,
    facts: Enrichment,
    computed: Iterable[dict[str, Any]],
    stored: Iterable[Row],
) -> list[dict[str, Any]]:
    """What was counted again, with the facts of the versions that the stored rows name."""
    found = by_name(output, stored)
    return [
        facts.as_stored(row, found[name]) if name in found else row
        for name, row in by_name(output, computed).items()
    ]


def late_events(job: Countable, start: datetime, end: datetime) -> Counter[datetime]:
    """Start of a window → how many events it lacks because they were late."""
    query = (
        "SELECT window_start, events FROM {keyspace}.late_windows WHERE day = ? AND job = ?"
        " AND window_start >= ? AND window_start < ?"
    )
    found = Counter[datetime]()
    for day in days(start, end):
        for row in job.context.tables.select(query, (day, job.output.job, start, end)):
            found[row.window_start] += row.events
    return found


def computed_rows(
    job: Countable, part: Slice, skips: Collection[Skip], terms: Terms = ALL
) -> list[dict[str, Any]]:
    """What the archive gives for the windows of a slice, on some terms, without what is skipped.

    Raises TooManyRows.
    """
    context = job.context
    partner = timedelta(seconds=job.output.join_seconds or 0)
    first = part.start - partner
    last = part.end + timedelta(seconds=job.output.window_seconds) + partner
    archived = archived_events(context, quiet_session(context), first, last)
    events = counted_events(context, archived, skips, ranges_of(context))
    rows = job.rows(on_terms(context, events, terms)).where(part.condition(job.output))
    return [row.asDict() for row in part.bounded(rows.limit(ROWS + 1).collect())]


def quiet_session(context: StoredContext) -> SparkSession:
    """A session whose tasks stand behind those of streams."""
    session = context.spark.newSession()
    session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
    return session


def archived_events(
    context: AnalysisContext, session: SparkSession, first: datetime, last: datetime
) -> list[DataFrame]:
    """What the archive of each of the job's streams has from ``first`` to before ``last``."""
    return [
        archive.read(session, context.config.archive_of(stream), stream, first, last)
        for stream in context.streams
    ]


def counted_events(
    context: AnalysisContext,
    archived: Iterable[DataFrame],
    skips: Collection[Skip],
    ranges: Collection[SkippedRange],
) -> list[DataFrame]:
    """Events of each stream, without what the job leaves out."""
    return [
        unskipped(without(events, stream.topic, skips), stream.topic, ranges)
        for events, stream in zip(archived, context.streams, strict=True)
    ]


def on_terms(
    context: AnalysisContext, events: Iterable[DataFrame], terms: Terms
) -> list[DataFrame]:
    """Those of each stream that are counted on some terms."""
    return [
        terms.of(found, stream.topic) for found, stream in zip(events, context.streams, strict=True)
    ]


def unskipped(events: DataFrame, topic: str, ranges: Iterable[SkippedRange]) -> DataFrame:
    """Events of a topic that the job has read; the archive may have more."""
    for one in ranges:
        if one.topic == topic:
            offsets = F.col("offset").between(one.start, one.end - 1)
            events = events.where(~((F.col("partition") == one.partition) & offsets))
    return events


def stored_rows(job: Countable, part: Slice, generation: int = STREAM) -> list[dict[str, Any]]:
    """What the job's table has of the windows of a slice, of one generation. Raises TooManyRows."""
    output = job.output
    query = (
        f'SELECT * FROM {{keyspace}}."{output.table}" WHERE day = ? AND bucket = ?'
        f" AND {WINDOW_START} >= ? AND {WINDOW_START} < ?"
    )
    rows = (
        row._asdict()
        for day in days(part.start, part.end)
        for bucket in range(output.buckets)
        for row in job.context.tables.scan(
            query, (day, bucket_of(bucket, generation), part.start, part.end)
        )
    )
    return part.bounded(row for row in rows if part.has(output, row))


def days(start: datetime, end: datetime) -> list[date]:
    return [start.date() + timedelta(days=n) for n in range((end.date() - start.date()).days + 1)]
