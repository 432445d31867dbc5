"""Counts a declared job's rows again, from the archive, and holds what is stored to them.

The same function over the same events, at once and in batch, must give the same rows. Whoever leads
does it when asked (see Coordination), beside its streams: it has Spark, the code and the tables.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace_jobs.declared.enrichment import Enrichment
from millrace_jobs.inputs.skipped import SkippedRange
from millrace_jobs.output import WINDOW_START, Output
from millrace_jobs.quarantine.search import Skip
from millrace_jobs.quarantine.store import skips_of, without
from millrace_jobs.query.job import StoredRows
from millrace_jobs.query.skips import ranges_of
from millrace_jobs.requests.slices import ROWS, Slice, in_slices
from millrace_jobs.sinks import archive

EXAMPLES = 5
POOL = "recount"
# Sums of doubles depend on their order.
DOUBLES_DIFFER = 1e-9

Row = Mapping[str, Any]
RowT = TypeVar("RowT", bound=Row)


@dataclass
class Findings:
    """Rows: ``lost`` are missing, ``extra`` stand for no event, ``wrong`` have other values.

    Rows of windows that lack late events are ``excused`` where they would be lost or wrong: these
    ``late`` events came after their window was closed, so they are in the archive alone; so are
    those that are ``quarantined``, whenever that was, and those that are ``skipped``: offsets that
    the job leaves out for good.
    """

    checked: int = 0
    lost: int = 0
    extra: int = 0
    wrong: int = 0
    excused: int = 0
    late: int = 0
    quarantined: int = 0
    skipped: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, other: "Findings") -> None:
        """Of other rows."""
        self.checked += other.checked
        self.lost += other.lost
        self.extra += other.extra
        self.wrong += other.wrong
        self.excused += other.excused
        for example in other.examples:
            _show(self, example)


def compare(
    output: Output,
    computed: Iterable[Row],
    stored: Iterable[Row],
    lacking: Collection[datetime] = (),
) -> Findings:
    """Rows by their names, then value by value; sketches by their errors.

    Args:
        lacking: starts of the windows that lack late events.
    """
    truth, found = by_name(output, computed), by_name(output, stored)
    findings = Findings(checked=len(truth))
    for name in truth.keys() | found.keys():
        start, *_ = name
        if name not in found and start in lacking:
            findings.excused += 1
        elif name not in found:
            findings.lost += 1
            _show(findings, f"lost: {name}")
        elif name not in truth:
            findings.extra += 1
            _show(findings, f"extra: {name}")
        elif not (columns := differing(output, truth[name], found[name])):
            continue
        elif start in lacking:
            findings.excused += 1
        else:
            findings.wrong += 1
            _show(findings, f"wrong: {name}: {columns}")
    return findings


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


def recount(job: StoredRows, start: datetime, end: datetime) -> Findings:
    """Over the windows that start in a range of naive UTC time, ``end`` not included.

    In slices: beside this, the driver leads.
    """
    context, output = job.context, job.output
    skips = [skip for skip in skips_of(context) if not skip.retried]
    facts = Enrichment(context.tables, context.lookups, context.job)
    late = late_events(job, start, end)

    def compare_slice(part: Slice) -> Findings:
        context.lease.verify()
        stored = stored_rows(job, part)
        computed = computed_rows(job, part, skips)
        return compare(output, with_facts(output, facts, computed, stored), stored, late.keys())

    findings = Findings()
    for found in in_slices(Slice(start, end), output, compare_slice):
        findings.add(found)
    findings.quarantined = len(skips)
    findings.skipped = sum(one.end - one.start for one in ranges_of(context))
    findings.late = late.total()
    return findings


def late_events(job: StoredRows, start: datetime, end: datetime) -> Counter[datetime]:
    """Start of a window → how many events it lacks because they were late."""
    query = (
        "SELECT window_start, events FROM {keyspace}.late_windows WHERE day = ? AND job = ?"
        " AND window_start >= ? AND window_start < ?"
    )
    found = Counter[datetime]()
    for day in _days(start, end):
        for row in job.context.tables.select(query, (day, job.output.job, start, end)):
            found[row.window_start] += row.events
    return found


def computed_rows(job: StoredRows, part: Slice, skips: Iterable[Skip]) -> list[dict[str, Any]]:
    """What the archive gives for the windows of a slice, without what is skipped.

    Raises TooManyRows.
    """
    context = job.context
    session = context.spark.newSession()
    session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
    partner = timedelta(seconds=job.output.join_seconds or 0)
    first = part.start - partner
    last = part.end + timedelta(seconds=job.output.window_seconds) + partner
    ranges = ranges_of(context)
    events = [
        unskipped(
            without(
                archive.read(session, context.config.archive_of(stream), stream, first, last),
                stream.topic,
                skips,
            ),
            stream.topic,
            ranges,
        )
        for stream in context.streams
    ]
    rows = job.rows(events).where(part.condition(job.output))
    return [row.asDict() for row in part.bounded(rows.limit(ROWS + 1).collect())]


def unskipped(events: DataFrame, topic: str, ranges: Iterable[SkippedRange]) -> DataFrame:
    """Events of a topic that the job has read; the archive may have more."""
    for one in ranges:
        if one.topic == topic:
            offsets = F.col("offset").between(one.start, one.end - 1)
            events = events.where(~((F.col("partition") == one.partition) & offsets))
    return events


def stored_rows(job: StoredRows, part: Slice) -> list[dict[str, Any]]:
    """What the job's table has of the windows of a slice. Raises TooManyRows."""
    output = job.output
    query = (
        f'SELECT * FROM {{keyspace}}."{output.table}" WHERE day = ? AND bucket = ?'
        f" AND {WINDOW_START} >= ? AND {WINDOW_START} < ?"
    )
    rows = (
        row._asdict()
        for day in _days(part.start, part.end)
        for bucket in range(output.buckets)
        for row in job.context.tables.scan(query, (day, bucket, part.start, part.end))
    )
    return part.bounded(row for row in rows if part.has(output, row))


def by_name(output: Output, rows: Iterable[RowT]) -> dict[tuple[Any, ...], RowT]:
    """Rows by what tells them apart: the window's start, then the key."""
    return {(row[WINDOW_START], *(row[name] for name in output.key)): row for row in rows}


def differing(output: Output, truth: Row, found: Row) -> str:
    """Columns whose values differ more than they may; what was counted comes first."""
    return ", ".join(
        f"{name} {truth[name]} ≠ {found[name]}"
        for name, kind in output.values.items()
        if not _same(kind, output.approximate.get(name), truth[name], found[name])
    )


def _days(start: datetime, end: datetime) -> list[date]:
    return [start.date() + timedelta(days=n) for n in range((end.date() - start.date()).days + 1)]


def _same(kind: str, error: float | None, truth: Any, found: Any) -> bool:
    if kind == "binary" and error is not None:
        return True  # a sketch's bytes depend on the order of its input
    if kind == "double" or error is not None:
        if truth is None or found is None:
            return truth is found
        # Three standard errors of the one estimate and three of the other.
        return math.isclose(truth, found, rel_tol=6 * error if error else DOUBLES_DIFFER)
    return bool(truth == found)


def _show(findings: Findings, example: str) -> None:
    if len(findings.examples) < EXAMPLES:
        findings.examples.append(example)
