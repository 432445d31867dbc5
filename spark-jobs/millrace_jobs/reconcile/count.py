"""Counts a range of closed windows again, as a generation of their rows. A run that was killed is
gone on with by whoever asks for the same."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from pyspark.sql import functions as F

from millrace_jobs.quarantine.store import skips_of
from millrace_jobs.query.context import StoredContext
from millrace_jobs.query.write_version import write_version
from millrace_jobs.reconcile.plan import (
    Asked,
    Everything,
    Refused,
    are_archived,
    chunks,
    closed_range,
    exclusions,
    kept_since,
    require_kept,
)
from millrace_jobs.reconcile.positions import Groups
from millrace_jobs.reconcile.predicates import require_predicate
from millrace_jobs.recount.counted import Counted, floor
from millrace_jobs.recount.generations import Book, Generation, Offsets, naive, seen
from millrace_jobs.recount.rows import archived_events
from millrace_jobs.recount.run import skips_at
from millrace_shared import job_progress
from millrace_shared.progress import tell

# After a lost host on full cores an archive was three minutes behind.
CATCH_UP_SECONDS = 900.0
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Archived:
    """The job that archives a stream, and how long it keeps what it received."""

    job: str
    keep_days: int


@dataclass(frozen=True)
class Progress:
    """How far a job is. ``version`` is that of its newest batch."""

    watermark: datetime
    version: int

    @classmethod
    def of(cls, context: StoredContext) -> "Progress":
        """Raises Refused for a job that hasn't stored anything yet."""
        query = job_progress.select("epoch", "batch", "watermark", where="job = ?")
        row = context.tables.select_one(query, [context.job])
        if row is None or row.watermark is None:
            raise Refused(f"job {context.job} has closed no window yet")
        return cls(row.watermark, write_version(row.epoch, row.batch))


def count(
    counted: Counted,
    asked: Asked | Everything,
    archives: Mapping[str, Archived],
    groups: Groups,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Generation, int]:
    """Count what is asked for; the generation, and how many rows this run has stored.

    Args:
        archives: by stream.

    Raises Refused before anything is changed, Outrun when another run takes over.
    """
    context, book = counted.context, Book(counted.context.tables, counted.rows)
    progress = Progress.of(context)  # first: what the job reads later is of no closed window
    closed_before = counted.closed_before(progress.watermark)
    *_, last = [None, *book.all()]
    as_asked = partial(_asked, counted, book, last, closed_before)
    if isinstance(asked, Everything):
        same, end = _same_range(asked, last, as_asked), asked.end or closed_before
        asked = same or asked.within(_first_kept(counted, archives, end), end)
    new = as_asked(asked)
    _require_archive(context, archives, new.start)
    if asked.without:
        require_predicate(context, asked.without)
    generation = _begun(last, new)
    if generation is None:
        generation = replace(new, ends=_archived(context, archives, groups, sleep))
        book.add(generation)
    return _go_on(counted, book, generation, progress.version)


def _same_range(
    asked: Everything, last: Generation | None, as_asked: Callable[[Asked], Generation]
) -> Asked | None:
    """That of the last generation, if it was asked for like that and isn't done: meanwhile there is
    another first hour, and another window is closed."""
    if last is None or last.is_done:
        return None
    same = asked.within(last.start, last.asked)
    return same if last.is_asked_by(as_asked(same)) else None


def _first_kept(counted: Counted, archives: Mapping[str, Archived], end: datetime) -> datetime:
    """The start of the first windows of which the archives surely have every event, and have one.

    Raises Refused where there is none.
    """
    context, now = counted.context, naive(datetime.now(UTC))
    since = kept_since(now, min(timedelta(days=one.keep_days) for one in archives.values()))
    columns = [F.min(stream.event_time).alias("first") for stream in context.streams]
    found = archived_events(context, context.spark, since, end)
    rows = [events.agg(column).collect()[0] for events, column in zip(found, columns, strict=True)]
    firsts = [row.first for row in rows if row.first is not None]
    if not firsts:
        raise Refused(f"the archive has no event from {since:%Y-%m-%dT%H:%MZ} to {end}Z")
    # A step later, as time goes on until the archive is asked again what it keeps. Windows that are
    # closed when the first event comes have none.
    whole = floor(since, counted.step) + 2 * counted.step
    return max(whole, counted.closed_before(min(firsts)))


def _archived(
    context: StoredContext,
    archives: Mapping[str, Archived],
    groups: Groups,
    sleep: Callable[[float], None],
) -> Offsets:
    """Up to where the archives have each stream: as far as the job is, or farther."""
    read: Offsets = groups.of(context.job, [stream.topic for stream in context.streams])
    left = CATCH_UP_SECONDS
    while True:
        found = {
            topic: ends
            for stream in context.streams
            for topic, ends in groups.of(archives[stream.name].job, [stream.topic]).items()
        }
        if are_archived(read, found):
            return found
        if left <= 0:
            raise Refused(
                f"the archive is behind job {context.job}: `millrace status` says why; then again"
            )
        tell(f"the archive is behind job {context.job}: it has {left:.0f} s to catch up")
        sleep(LOOK_SECONDS)
        left -= LOOK_SECONDS


def _require_archive(
    context: StoredContext, archives: Mapping[str, Archived], start: datetime
) -> None:
    now = datetime.now(UTC).replace(tzinfo=None)
    for stream in context.streams:
        keep = timedelta(days=archives[stream.name].keep_days)
        table = context.config.archive_of(stream)
        [detail] = context.spark.sql(f"DESCRIBE DETAIL delta.`{table}`").collect()
        require_kept(start, now, keep, detail.createdAt, stream.name)


def _asked(
    counted: Counted, book: Book, last: Generation | None, closed_before: datetime, asked: Asked
) -> Generation:
    """The generation that is asked for; of which records isn't settled yet. Raises Refused."""
    start, end = closed_range(asked, counted.grid, closed_before)
    pieces = seen(book.overlay(), start, end)
    return Generation(
        number=1 + (last.number if last else 0),
        start=start,
        end=end,
        asked=asked.end,
        done=start,
        ends={},
        exclusions=exclusions(pieces, book.of, start, end, asked.without),
        code=counted.context.config.version,
        version=0,
        since=naive(datetime.now(UTC)),
        who=asked.who,
    )


def _begun(last: Generation | None, new: Generation) -> Generation | None:
    """The last generation, if that was the same and isn't done. It has its records already, so an
    archive that is behind doesn't keep it up."""
    if last is None or last.is_done or not last.is_asked_by(new):
        return None
    tell(f"generation {last.number} is gone on with, from {last.done} UTC")
    return last


def _go_on(
    counted: Counted, book: Book, generation: Generation, newest: int
) -> tuple[Generation, int]:
    """Rows of each run are newer than those of runs before: they may get other facts."""
    aside = skips_of(counted.context)
    version = 1 + max(newest, generation.version, book.overlay().version)
    generation = book.note(generation, version=version)
    skips = skips_at(book, generation.number, aside)
    rows = 0
    for first, last in chunks(generation.done, generation.end, counted.step):
        for start, end, terms in generation.parts(first, last):
            rows += counted.count(start, end, terms, skips, generation.number, version)
        generation = book.note(generation, done=last)
        tell(f"windows to {last} UTC of {generation.end}: {rows:,} rows")
    return generation, rows
