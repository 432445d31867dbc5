"""Has records counted that a job has put aside, once its code can bear them.

The job's query is past them, and what it keeps of open windows lacks them. So they are counted when
their windows are closed, which the query never writes again: rows that a record belongs to are
computed from the archive with it and without it, and replaced if they were without it. These are
whole values, so whoever is interrupted, or does it twice, leaves the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from pyspark.errors import PySparkException

from millrace_jobs.declared.enrichment import Enrichment
from millrace_jobs.output import Output
from millrace_jobs.quarantine.search import Skip
from millrace_jobs.quarantine.store import COLUMNS, in_a_line, is_of_values, row_of, skips_of
from millrace_jobs.query.job import StoredRows
from millrace_jobs.recount.comparison import by_name, differing
from millrace_jobs.recount.counted import floor
from millrace_jobs.recount.generations import Book, aware
from millrace_jobs.recount.rows import computed_rows, stored_rows, with_facts
from millrace_jobs.recount.slices import Slice, TooManyRows
from millrace_jobs.sinks import archive
from millrace_shared.generations import STREAM

Row = dict[str, Any]


class RetryRefused(Exception):
    """A record can't be counted, or not now; says why. Nothing was changed."""


@dataclass(frozen=True)
class Outcome:
    """What became of one record; ``id`` is its place."""

    id: str
    counted: bool
    what: str


@dataclass(frozen=True)
class Retried:
    """Records whose windows start between ``start`` and ``end``, which isn't included."""

    skips: list[Skip]
    start: datetime
    end: datetime


def retry(job: StoredRows, records: Sequence[str]) -> list[Outcome]:
    """Count these records, by their ids; each outcome tells whether it is in the job's rows now."""
    context = job.context
    if context.epoch is None:
        raise RetryRefused(f"job {context.job} has not run since its driver leads")
    known = {str(skip.place): skip for skip in skips_of(context)}
    outcomes = [_outcome_of(id, known.get(id)) for id in records]
    waiting = [known[one.id] for one in outcomes if not one.counted and one.id in known]
    times = _times(job, waiting)
    closed = _closed_until(job)
    found: dict[str, Outcome] = {}
    ready = []
    for skip in waiting:
        id, moment = str(skip.place), times.get(skip.place)
        if moment is None:
            found[id] = Outcome(id, False, "it is in no archive any more")
            continue
        one = _retried(job, skip, moment)
        over = one.end + _length(job)
        if is_counted_again(job, one):
            what = (
                "readers see another count of its window: `millrace reconcile"
                f" {context.job} --back` first, and count again after the retry"
            )
            found[id] = Outcome(id, False, what)
        elif over > closed:
            what = f"its window is open until the job's watermark has passed {over}; it is {closed}"
            found[id] = Outcome(id, False, what)
        else:
            ready.append(one)
    for outcome in chain.from_iterable(_try(job, some) for some in together(ready)):
        found[outcome.id] = outcome
    return [found.get(one.id, one) for one in outcomes]


def together(ones: Iterable[Retried]) -> Iterator[Retried]:
    """Join the records whose windows overlap, because they share rows."""
    last: Retried | None = None
    for one in sorted(ones, key=lambda one: one.start):
        if last and one.start < last.end:
            last = Retried([*last.skips, *one.skips], last.start, max(last.end, one.end))
            continue
        if last:
            yield last
        last = one
    if last:
        yield last


def to_write(output: Output, without: list[Row], full: list[Row], stored: list[Row]) -> list[Row]:
    """The rows that the records belong to, computed with them.

    Args:
        without, full: the rows of some windows, computed without the records and with them.
        stored: what is there, of before or, by an attempt that was interrupted, of after.

    Raises RetryRefused when a stored row is neither: writing it would change more than it should.
    """
    before, after, there = (by_name(output, rows) for rows in (without, full, stored))
    if gone := before.keys() - after.keys():
        raise RetryRefused(f"with it there is no row {min(map(str, gone))} any more")
    changed = [name for name, row in after.items() if row != before.get(name)]
    for name in changed:
        if why := _mismatch(output, before.get(name), after[name], there.get(name)):
            raise RetryRefused(
                f"row {name} isn't what the archive gives without it: {why}; by events that were"
                " late, by other code, or because the archive has forgotten some"
            )
    return [after[name] for name in changed]


def _mismatch(output: Output, without: Row | None, full: Row, stored: Row | None) -> str:
    """Why a stored row is neither; empty if it is one of them. None is a row that isn't there."""
    if stored is None:
        return "it is not stored" if without else ""
    if not differing(output, full, stored):
        return ""
    return differing(output, without, stored) if without else "there is none"


def _outcome_of(id: str, skip: Skip | None) -> Outcome:
    """The outcome of a record that needs no try; its text is empty for one that does."""
    if skip is None:
        return Outcome(id, False, "the job leaves out no such record")
    if skip.retried:
        return Outcome(id, True, f"was counted {skip.retried:%Y-%m-%d %H:%M:%S} UTC")
    return Outcome(id, False, "")


def is_counted_again(job: StoredRows, one: Retried) -> bool:
    """Whether readers see another count of a window that a record may be in: a retry writes rows of
    the stream."""
    overlay = Book(job.context.tables, job.output.table).overlay()
    return any(overlay.at(aware(at)).generation != STREAM for at in _starts(job.output, one))


def _starts(output: Output, one: Retried) -> Iterator[datetime]:
    """Of the windows that start in the range."""
    slide, offset = (timedelta(seconds=n) for n in (output.slide_seconds, output.offset_seconds))
    at = floor(one.end - timedelta.resolution - offset, slide) + offset
    while at >= one.start:
        yield at
        at -= slide


def _length(job: StoredRows) -> timedelta:
    return timedelta(seconds=job.output.window_seconds)


def _partner(job: StoredRows) -> timedelta:
    """How far an event's rows may be from its own time, by a join."""
    return timedelta(seconds=job.output.join_seconds or 0)


def _retried(job: StoredRows, skip: Skip, moment: datetime) -> Retried:
    partner = _partner(job)
    end = moment + partner + timedelta.resolution
    return Retried([skip], moment - partner - _length(job) + timedelta.resolution, end)


def _times(job: StoredRows, skips: Iterable[Skip]) -> dict[Any, datetime]:
    """Place → when the event happened, of those that the archives have."""
    context = job.context
    places = [skip.place for skip in skips]
    return {
        place: moment
        for stream in context.streams
        for place, moment in archive.times(
            context.spark.newSession(),
            context.config.archive_of(stream),
            stream.event_time,
            [place for place in places if place.topic == stream.topic],
        ).items()
    }


def _closed_until(job: StoredRows) -> datetime:
    """Windows that end by then are written by no batch any more; those that were begun are over.

    What the next batch drops is judged by the watermark of the last one that is committed, and
    behind a join by one that is as far back as partners may be.
    """
    checkpoint = job.context.checkpoint
    watermark_ms = checkpoint.watermark_ms(checkpoint.last_committed() + 1)
    watermark = datetime.fromtimestamp(watermark_ms / 1000, UTC).replace(tzinfo=None)
    return watermark - _partner(job)


def _try(job: StoredRows, one: Retried) -> list[Outcome]:
    """All of them, or, if that can't be, each by itself."""
    try:
        _count(job, one)
    except (PySparkException, RetryRefused, TooManyRows) as error:
        is_refusal = isinstance(error, RetryRefused | TooManyRows)
        if not is_refusal and not is_of_values(error):
            raise
        if len(one.skips) > 1:
            alone = (replace(one, skips=[skip]) for skip in one.skips)
            return [outcome for each in alone for outcome in _try(job, each)]
        what = str(error) if is_refusal else f"fails: {in_a_line(error)}"
        return [Outcome(str(one.skips[0].place), False, what)]
    return [Outcome(str(skip.place), True, "counted") for skip in one.skips]


def _count(job: StoredRows, one: Retried) -> None:
    """Rows first: until the records are said to be retried, the audit leaves them out."""
    context, output = job.context, job.output
    skips = [skip for skip in skips_of(context) if not skip.retried]
    others = [skip for skip in skips if skip not in one.skips]
    whole = Slice(one.start, one.end)
    stored = stored_rows(job, whole)
    facts = Enrichment(context.tables, context.lookups, context.job)
    without, full = (
        with_facts(output, facts, computed_rows(job, whole, left_out), stored)
        for left_out in (skips, others)
    )
    rows = to_write(output, without, full, stored)
    there = by_name(output, stored)
    versions = [there[name]["version"] for name in by_name(output, rows) if name in there]
    batches = [context.checkpoint.last_committed(), *(skip.batch for skip in one.skips)]
    # Above what is stored, which may have been corrected before; and above the list's own rows.
    version = 1 + max([context.version(1 + max(batches)), *versions])
    if rows:
        named = by_name(output, rows).items()
        job.correct([row if name in there else facts.of_now(row) for name, row in named], version)
    context.lease.verify()
    now = datetime.now(UTC).replace(tzinfo=None)
    query = context.checkpoint.query_id() or ""
    retried = [replace(skip, checkpoint=query, retried=now) for skip in one.skips]
    context.tables.upsert(
        "quarantine", COLUMNS, [row_of(context.job, skip) for skip in retried], version
    )
