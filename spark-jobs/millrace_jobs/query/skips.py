"""What a job leaves out for good, as the table ``skipped`` has it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from millrace_jobs.inputs.skipped import SkippedRange, joined
from millrace_jobs.query.context import JobContext, StoredContext

TABLE = "skipped"
COLUMNS = (
    *("job", "topic", '"partition"', "first_offset", "end_offset"),
    *("reason", "who", "lost", "since"),
)
DRIVER = "the driver"  # which found by itself what no executor can hold
RANGES = (
    f'SELECT topic, "partition" AS part, first_offset, end_offset, who FROM {{keyspace}}.{TABLE}'
)


@dataclass(frozen=True)
class Skip:
    """A range that is left out: why, and who said so.

    Attributes:
        lost: retention had taken it.
    """

    range: SkippedRange
    reason: str
    who: str = DRIVER
    lost: bool = False


def note(context: JobContext, skips: Sequence[Skip], batch: int) -> None:
    """Before the offsets log is rewritten: who reads the log later finds its gaps explained.

    Args:
        batch: the one that is run next.
    """
    since = datetime.now(UTC)
    rows = [
        (
            *(context.job, one.range.topic, one.range.partition, one.range.start, one.range.end),
            *(one.reason, one.who, one.lost, since),
        )
        for one in skips
    ]
    context.lease.verify()  # who leads next has the log to itself
    context.tables.upsert(TABLE, COLUMNS, rows, context.version(batch))


def look_up(context: JobContext) -> None:
    """Have the job know what it leaves out."""
    context.skipped = tuple(ranges_of(context))


@contextmanager
def rehearsed_around(context: JobContext) -> Iterator[None]:
    """Meanwhile the job's frame begins behind all that any job's executors died by.

    A standby of a new version, or of a new job, would meet it once more, and end executors that
    other jobs run on.
    """
    look_up(context)
    own = context.skipped
    context.skipped = tuple(joined([*own, *_unreadable(context)]))
    try:
        yield
    finally:
        context.skipped = own


def ranges_of(context: StoredContext) -> list[SkippedRange]:
    """All that the job has ever left out and the table still knows."""
    rows = context.tables.select(f"{RANGES} WHERE job = ?", [context.job])
    return joined(map(_range, rows))


def _unreadable(context: JobContext) -> list[SkippedRange]:
    """What drivers have found that no executor can hold, whichever job met it. Few rows are all."""
    return [_range(row) for row in context.tables.select(RANGES, []) if row.who == DRIVER]


def _range(row: Any) -> SkippedRange:
    return SkippedRange(row.topic, row.part, row.first_offset, row.end_offset)
