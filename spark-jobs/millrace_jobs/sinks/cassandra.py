"""Cassandra: whole-value upserts, each with the write timestamp of its version."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import (
    ConstantReconnectionPolicy,
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    TokenAwarePolicy,
)

from millrace_jobs.config import DATACENTER, KEYSPACE, Config
from millrace_jobs.retries import retry

log = logging.getLogger(__name__)

REQUEST_SECONDS = 5.0
# A replica that is silent this long is not waited for: the same write goes to another coordinator.
SPECULATE_AFTER_SECONDS = 0.5
RECONNECT_SECONDS = 2.0
# Then the query fails and YARN starts the driver anew: it may be this host that is cut off.
GIVE_UP_SECONDS = 120.0
CONCURRENCY = 64


class WriteFailed(Exception):
    """Some rows were not acknowledged by a quorum."""


def connect(config: Config) -> Cluster:
    balancing = TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=DATACENTER))
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
        self._prepared: dict[str, Any] = {}

    def upsert(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], timestamp: int
    ) -> None:
        """Write all rows at a quorum, or raise."""
        statement = self._statement(table, columns)
        unwritten = [(*row, timestamp) for row in rows]

        def write() -> None:
            nonlocal unwritten
            unwritten, error = self._write(statement, unwritten)
            if error:
                raise WriteFailed(f"{len(unwritten)} rows of {table}: {error}")

        retry(write, WriteFailed, GIVE_UP_SECONDS, f"writing {table}")

    def prepare(self, table: str, columns: Sequence[str]) -> None:
        """Have an upsert's statement ready before it is needed."""
        self._statement(table, columns)

    def select_one(self, query: str, parameters: Sequence[Any]) -> Any:
        """The row of a query for one key, None if there is none."""
        statement = self._prepare(query)
        return retry(
            lambda: self._session.execute(statement, parameters).one(),
            Exception,
            GIVE_UP_SECONDS,
            "reading",
        )

    def close(self) -> None:
        self._session.cluster.shutdown()

    def _write(
        self, statement: Any, rows: list[tuple[Any, ...]]
    ) -> tuple[list[tuple[Any, ...]], Exception | None]:
        """The rows that were not acknowledged, and the error of one of them."""
        results = execute_concurrent_with_args(
            self._session, statement, rows, CONCURRENCY, raise_on_first_error=False
        )
        failures = [
            (row, error) for row, (done, error) in zip(rows, results, strict=True) if not done
        ]
        return [row for row, _ in failures], failures[0][1] if failures else None

    def _statement(self, table: str, columns: Sequence[str]) -> Any:
        names, marks = ", ".join(columns), ", ".join("?" for _ in columns)
        return self._prepare(
            f"INSERT INTO {KEYSPACE}.{table} ({names}) VALUES ({marks}) USING TIMESTAMP ?"
        )

    def _prepare(self, query: str) -> Any:
        if query not in self._prepared:
            statement = retry(
                lambda: self._session.prepare(query), Exception, GIVE_UP_SECONDS, "preparing"
            )
            statement.is_idempotent = True
            self._prepared[query] = statement
        return self._prepared[query]
