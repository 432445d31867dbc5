"""Lookup tables in Cassandra: every version whole, added by compare-and-set."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from cassandra import DriverException, InvalidRequest, WriteTimeout
from cassandra.cluster import NoHostAvailable, Session
from cassandra.protocol import ErrorMessage

from millrace.cluster import cassandra
from millrace.common.errors import OperatorError, UnreachableError
from millrace.plan import Plan
from millrace.plan.tables import Row
from millrace.table_versions import Version, encoded

# Of the native protocol, version 5, section 8; the driver has no class for it.
CAS_WRITE_UNKNOWN = 0x1700
COLUMNS = "version, rows, since"


@contextmanager
def lookup_versions(plan: Plan) -> Iterator["LookupVersions"]:
    """UnreachableError when Cassandra doesn't answer, also while in use."""
    cassandra.quiet()
    try:
        with cassandra.as_jobs_do(plan) as session:
            yield LookupVersions(session, plan.names.cassandra.keyspace)
    except InvalidRequest as error:
        raise OperatorError(
            f"Cassandra has no lookup tables yet: {error}", "`make deploy` makes them"
        ) from None
    except (NoHostAvailable, DriverException, ErrorMessage) as error:
        raise UnreachableError(
            f"Cassandra doesn't answer: {error}",
            "`millrace status` shows what is down; then run it again: a change that is there"
            " already isn't made twice",
        ) from None


class LookupVersions:
    """`millrace.table_versions.Versions` of a running cluster."""

    def __init__(self, session: Session, keyspace: str) -> None:
        self._session = session
        self._table = f"{keyspace}.lookup_versions"

    def newest(self, table: str) -> Version:
        found = self._ask(f"SELECT {COLUMNS} FROM {self._table} WHERE lookup = ? LIMIT 1", table)
        return _version(found[0]) if found else Version(0, [])

    def at(self, table: str, number: int) -> Version | None:
        """Returns a version; None when there is no such one, or none any more."""
        query = f"SELECT {COLUMNS} FROM {self._table} WHERE lookup = ? AND version = ?"
        found = self._ask(query, table, number)
        return _version(found[0]) if found else None

    def add(self, table: str, number: int, rows: list[Row]) -> bool:
        query = (
            f"INSERT INTO {self._table} (lookup, version, rows, since) VALUES (?, ?, ?, ?)"
            " IF NOT EXISTS"
        )
        values = (table, number, encoded(rows).decode(), datetime.now(UTC))
        try:
            return bool(self._ask(query, *values)[0].applied)
        except (WriteTimeout, ErrorMessage) as error:
            if isinstance(error, ErrorMessage) and error.code != CAS_WRITE_UNKNOWN:
                raise
            return False  # nodes were slow, or met another's round: nobody knows yet

    def let_expire(self, table: str, version: Version, seconds: int) -> None:
        """Written once more, with an end, by the next timestamp: whoever's clock is slow wins."""
        query = (
            f"SELECT rows, since, WRITETIME(rows) AS written FROM {self._table}"
            " WHERE lookup = ? AND version = ?"
        )
        for row in self._ask(query, table, version.number):
            self._ask(
                f"INSERT INTO {self._table} (lookup, version, rows, since) VALUES (?, ?, ?, ?)"
                " USING TTL ? AND TIMESTAMP ?",
                *(table, version.number, row.rows, row.since, seconds, row.written + 1),
            )

    def forget(self, table: str) -> None:
        """Deletes all versions at once."""
        self._ask(f"DELETE FROM {self._table} WHERE lookup = ?", table)

    def _ask(self, query: str, *values: Any) -> list[Any]:
        return list(self._session.execute(self._session.prepare(query), values))


def _version(row: Any) -> Version:
    return Version(row.version, json.loads(row.rows), row.since.replace(tzinfo=UTC))
