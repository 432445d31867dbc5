"""The books of each stream: what Cassandra's tables `book_entries` and `book_positions` say."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from millrace.plan import Plan
from millrace_shared.books import difference


@dataclass(frozen=True)
class Entry:
    """One batch of a stream's archive.

    ``records`` is how many Kafka has of what the batch owes, None where nobody knows any more;
    ``skipped`` are offsets beside them, which the archive was made to leave out.
    """

    stream: str
    committed: datetime
    records: int | None
    archived: int
    dead_letters: int
    skipped: int

    @property
    def difference(self) -> int:
        """Records that went nowhere; negative where some came twice."""
        return difference(self.records, self.archived, self.dead_letters)


@dataclass(frozen=True)
class Position:
    """How far a stream's books are kept: every batch that was committed before ``closed`` is
    entered. ``unwritten`` are records that the archive's job has read since, and no commit tells
    of."""

    closed: datetime
    unwritten: int


def entries(plan: Plan, streams: Iterable[str], day: date) -> list[Entry]:
    """Returns what was committed on a day (UTC). Raises OperatorError without Cassandra."""
    query = (
        "SELECT stream, committed, records, archived, dead_letters, skipped"
        f" FROM {plan.names.cassandra.keyspace}.book_entries WHERE stream = ? AND day = ?"
    )
    rows = _read(plan, query, [(stream, day) for stream in streams])
    return [
        Entry(
            *(row.stream, row.committed.replace(tzinfo=UTC), row.records),
            *(row.archived, row.dead_letters, row.skipped),
        )
        for row in rows
    ]


def positions(plan: Plan, streams: Iterable[str]) -> dict[str, Position]:
    """Returns how far the books of each stream are kept; nothing of one whose books have yet to
    begin. Raises OperatorError without Cassandra."""
    keyspace = plan.names.cassandra.keyspace
    query = f"SELECT stream, closed, unwritten FROM {keyspace}.book_positions WHERE stream = ?"
    rows = _read(plan, query, [(stream,) for stream in streams])
    return {row.stream: Position(row.closed.replace(tzinfo=UTC), row.unwritten) for row in rows}


def _read(plan: Plan, query: str, keys: list[tuple[Any, ...]]) -> list[Any]:
    from millrace.cluster import cassandra  # half of the time that any other command would take

    cassandra.quiet()
    with cassandra.reading(plan) as session:
        return cassandra.read_each(session, query, keys)
