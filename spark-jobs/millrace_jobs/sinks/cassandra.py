"""Cassandra: whole-value upserts, each with the write timestamp of its version."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import (
    ConstantReconnectionPolicy,
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.query import BatchStatement, BatchType

from millrace_jobs.config import Config
from millrace_jobs.retries import retry

log = logging.getLogger(__name__)

REQUEST_SECONDS = 5.0
SCHEMA_SECONDS = 30.0  # all nodes have to agree
# A replica that is silent this long is not waited for: the same write goes to another coordinator.
SPECULATE_AFTER_SECONDS = 0.5
RECONNECT_SECONDS = 2.0
# Then the query fails and YARN starts the driver anew: it may be this host that is cut off.
GIVE_UP_SECONDS = 120.0
CONCURRENCY = 64
# Cassandra refuses a batch above batch_size_fail_threshold, 50 KiB.
PORTION_BYTES = 24 * 1024
ROW_BYTES = 64  # of numbers, times and names

Row = tuple[Any, ...]


class WriteFailed(Exception):
    """Some rows were not acknowledged by a quorum."""


def connect(config: Config) -> Cluster:
    datacenter = config.names.cassandra.datacenter
    balancing = TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=datacenter))
    profile = ExecutionProfile(
        load_balancing_policy=balancing,
        consistency_level=ConsistencyLevel.LOCAL_QUORUM,
        request_timeout=REQUEST_SECONDS,
        speculative_execution_policy=ConstantSpeculativeExecutionPolicy(SPECULATE_AFTER_SECONDS, 1),
    )
    return Cluster(
        config.cassandra,
        port=config.cassandra_port,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(RECONNECT_SECONDS, max_attempts=None),
    )


class Tables:
    """Writes rows by `upsert`; everything is idempotent, so everything may be repeated."""

    def __init__(self, config: Config) -> None:
        cluster = connect(config)
        self._session = retry(cluster.connect, NoHostAvailable, GIVE_UP_SECONDS, "connecting")
        self._keyspace = config.names.cassandra.keyspace
        self._prepared: dict[tuple[str, int | None], Any] = {}

    def upsert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        timestamp: int,
        partition_columns: int = 1,
    ) -> None:
        """Write all rows at a quorum, or raise.

        Args:
            partition_columns: how many of the columns, the first ones, are the partition key. Rows
                of one partition go as one mutation, which costs little more than a single row.
        """
        statement = self._statement(table, columns)
        timed = [(*row, timestamp) for row in rows]
        unwritten = list(portions(timed, partition_columns))

        def write() -> None:
            nonlocal unwritten
            unwritten, error = self._write(statement, unwritten)
            if error:
                rows_left = sum(map(len, unwritten))
                raise WriteFailed(f"{rows_left} rows of {table}: {error}")

        retry(write, WriteFailed, GIVE_UP_SECONDS, f"writing {table}")

    def create(self, statement: Callable[[str], str]) -> None:
        """Run a statement that makes what is missing, for up to two minutes.

        Args:
            statement: makes the CQL of the keyspace's name.
        """
        retry(
            lambda: self._session.execute(statement(self._keyspace), timeout=SCHEMA_SECONDS),
            Exception,
            GIVE_UP_SECONDS,
            "creating a table",
        )

    def prepare(self, table: str, columns: Sequence[str]) -> None:
        """Have an upsert's statement ready before it is needed."""
        self._statement(table, columns)

    def select_one(self, query: str, parameters: Sequence[Any]) -> Any:
        """The row of a query for one key, None if there is none.

        ``{keyspace}`` in it stands for the one that everything here writes to.
        """
        statement = self._prepare(query.format(keyspace=self._keyspace))
        return retry(
            lambda: self._session.execute(statement, parameters).one(),
            Exception,
            GIVE_UP_SECONDS,
            "reading",
        )

    def select(self, query: str, parameters: Sequence[Any]) -> list[Any]:
        """All rows of a query, which is written as for `select_one`."""
        statement = self._prepare(query.format(keyspace=self._keyspace))
        return retry(
            lambda: list(self._session.execute(statement, parameters)),
            Exception,
            GIVE_UP_SECONDS,
            "reading",
        )

    def scan(self, query: str, parameters: Sequence[Any]) -> Iterator[Any]:
        """As `select`, page by page: for more rows than are to be held at once. A page that can't
        be read is an error."""
        statement = self._prepare(query.format(keyspace=self._keyspace))
        rows = retry(
            lambda: self._session.execute(statement, parameters),
            Exception,
            GIVE_UP_SECONDS,
            "reading",
        )
        yield from rows

    def settle(self, change: str, values: Sequence[Any], look: str, key: Sequence[Any]) -> Any:
        """Run a conditional statement once, then look: the row as it is, whoever wrote it, or None.

        Whether a change was made that got no answer is unknown; the look ends it, one way or the
        other. Both queries are written as for `select_one`.
        """
        statement = self._prepare(change.format(keyspace=self._keyspace), is_idempotent=False)
        try:
            self._session.execute(statement, values)
        except Exception as error:  # each of the driver's many: the look tells
            log.warning("a conditional write: %s; looking", error)
        serial = self._prepare(look.format(keyspace=self._keyspace), ConsistencyLevel.SERIAL)
        return retry(
            lambda: self._session.execute(serial, key).one(), Exception, GIVE_UP_SECONDS, "reading"
        )

    def close(self) -> None:
        self._session.cluster.shutdown()

    def _write(
        self, statement: Any, portions: list[list[Row]]
    ) -> tuple[list[list[Row]], Exception | None]:
        """The portions that were not acknowledged, and the error of one of them."""
        # Not by the driver's execute_concurrent: of a write both of whose speculative attempts fail
        # it takes down two outcomes, and can take one of them for another write's.
        waiting: deque[tuple[list[Row], Any]] = deque()
        unwritten: list[list[Row]] = []
        error: Exception | None = None

        def settle_oldest() -> None:
            nonlocal error
            rows, future = waiting.popleft()
            try:
                future.result()
            except Exception as failure:  # each of the driver's many; the caller tries again
                unwritten.append(rows)
                error = error or failure

        for rows in portions:
            if len(waiting) == CONCURRENCY:
                settle_oldest()
            waiting.append((rows, self._session.execute_async(_batch(statement, rows))))
        while waiting:
            settle_oldest()
        return unwritten, error

    def _statement(self, table: str, columns: Sequence[str]) -> Any:
        names, marks = ", ".join(columns), ", ".join("?" for _ in columns)
        return self._prepare(
            f"INSERT INTO {self._keyspace}.{table} ({names}) VALUES ({marks}) USING TIMESTAMP ?"
        )

    def _prepare(
        self, query: str, consistency: int | None = None, *, is_idempotent: bool = True
    ) -> Any:
        """Args: ``consistency`` is that of the session by default."""
        known = (query, consistency)
        if known not in self._prepared:
            statement = retry(
                lambda: self._session.prepare(query), Exception, GIVE_UP_SECONDS, "preparing"
            )
            statement.is_idempotent = is_idempotent
            statement.consistency_level = consistency
            self._prepared[known] = statement
        return self._prepared[known]


def portions(rows: Iterable[Row], partition_columns: int) -> Iterator[list[Row]]:
    """Rows of one partition each, of bounded size together; a larger row is alone."""
    key: Row | None = None
    portion: list[Row] = []
    size = 0
    for row in sorted(rows, key=lambda row: row[:partition_columns]):
        row_bytes = ROW_BYTES + sum(len(value) for value in row if isinstance(value, str | bytes))
        if portion and (row[:partition_columns] != key or size + row_bytes > PORTION_BYTES):
            yield portion
            portion, size = [], 0
        key = row[:partition_columns]
        portion.append(row)
        size += row_bytes
    if portion:
        yield portion


def _batch(statement: Any, rows: list[Row]) -> Any:
    # Unlogged: within a partition it is atomic anyway.
    batch = BatchStatement(BatchType.UNLOGGED)
    batch.is_idempotent = True
    for row in rows:
        batch.add(statement, row)
    return batch
