"""The books in Cassandra: entries, how far they are kept, and what an entry needs to know."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any

from cassandra import ConsistencyLevel, DriverException
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.policies import DCAwareRoundRobinPolicy

from millrace_gateway.books.account import Entry, Piece
from millrace_gateway.settings import Cassandra

UNANSWERED = (DriverException, NoHostAvailable)

ENTER = (
    "INSERT INTO {keyspace}.book_entries"
    ' (stream, day, committed, checkpoint, "batch", table_version, records, archived,'
    " dead_letters, skipped) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
ENTRIES = (
    'SELECT stream, committed, checkpoint, "batch" AS number, table_version, records, archived,'
    " dead_letters, skipped FROM {keyspace}.book_entries WHERE stream = ? AND day = ?"
)
PUT_POSITION = (
    "INSERT INTO {keyspace}.book_positions (stream, table_version, reached, closed, unwritten)"
    " VALUES (?, ?, ?, ?, ?)"
)
POSITION = (
    "SELECT table_version, reached, closed, unwritten FROM {keyspace}.book_positions"
    " WHERE stream = ?"
)
DEAD_LETTERS = (
    'SELECT records FROM {keyspace}.dead_letter_batches WHERE checkpoint = ? AND "batch" = ?'
)
SKIPPED = (
    'SELECT topic, "partition" AS part, first_offset, end_offset FROM {keyspace}.skipped'
    " WHERE job = ?"
)


@dataclass(frozen=True)
class Position:
    """How far a stream's books are kept.

    Attributes:
        version: of the archive's table; -1 before its first one.
        reached: partition → offset.
        closed: every batch that was committed before is entered; in seconds since 1970.
        unwritten: records that the archive's job said it has read, and that no commit tells of.
    """

    version: int
    reached: dict[int, int]
    closed: float
    unwritten: int = 0


class Store:
    """Each write replaces a whole row by the same, or by what is known now. Methods raise
    UNANSWERED."""

    def __init__(self, where: Cassandra) -> None:
        self._where = where
        self._prepared: dict[str, Any] = {}

    @cached_property
    def _session(self) -> Session:
        where = self._where
        profile = ExecutionProfile(
            DCAwareRoundRobinPolicy(local_dc=where.datacenter),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
        )
        profiles = {EXEC_PROFILE_DEFAULT: profile}
        cluster = Cluster(
            where.hosts, port=where.port, execution_profiles=profiles, protocol_version=5
        )
        try:
            return cluster.connect()
        except UNANSWERED:
            cluster.shutdown()  # its threads: there will be another try
            raise

    def enter(self, entry: Entry) -> None:
        committed = _time(entry.committed)
        self._ask(
            ENTER,
            *(entry.stream, committed.date(), committed, entry.checkpoint, entry.batch),
            *(entry.version, entry.records, entry.archived, entry.dead_letters, entry.skipped),
        )

    def entries(self, stream: str, days: Iterable[date]) -> list[Entry]:
        rows = [row for day in days for row in self._ask(ENTRIES, stream, day)]
        return [
            Entry(
                *(row.stream, _seconds(row.committed), row.checkpoint, row.number),
                *(row.table_version, row.records, row.archived, row.dead_letters, row.skipped),
            )
            for row in rows
        ]

    def put_position(self, stream: str, position: Position) -> None:
        self._ask(
            *(PUT_POSITION, stream, position.version, json.dumps(position.reached)),
            *(_time(position.closed), position.unwritten),
        )

    def position(self, stream: str) -> Position | None:
        """None of a stream whose books have yet to begin."""
        for row in self._ask(POSITION, stream):
            reached = {int(number): offset for number, offset in json.loads(row.reached).items()}
            return Position(row.table_version, reached, _seconds(row.closed), row.unwritten)
        return None

    def dead_letters(self, checkpoint: str, batch: int) -> int:
        return sum(row.records for row in self._ask(DEAD_LETTERS, checkpoint, batch))

    def skipped(self, job: str, topic: str) -> list[Piece]:
        """What a job leaves out of a topic for good."""
        return [
            Piece(row.part, row.first_offset, row.end_offset)
            for row in self._ask(SKIPPED, job)
            if row.topic == topic
        ]

    def _ask(self, query: str, *values: Any) -> Any:
        if query not in self._prepared:
            self._prepared[query] = self._session.prepare(
                query.format(keyspace=self._where.keyspace)
            )
        return self._session.execute(self._prepared[query], values)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _seconds(time: datetime) -> float:
    """Cassandra's driver gives UTC without saying so."""
    return time.replace(tzinfo=UTC).timestamp()
