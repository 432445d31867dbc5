"""Versions of lookup tables: how operators change their rows while jobs run.

Each change makes another version of the whole table, numbered from 1; 0 is the empty table before
the first one. A table is small, so a version is one value, and a job looks facts up in memory.
"""

import json
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from millrace.common.errors import OperatorError
from millrace.plan.tables import ColumnPlan, Row, TablePlan

ATTEMPTS = 10
PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Version:
    """A table's rows, by their keys, from the moment of a change until the next one."""

    number: int
    rows: list[Row]
    since: datetime | None = None


class Versions(Protocol):
    """Where the versions of lookup tables are kept."""

    def newest(self, table: str) -> Version:
        """Returns the newest version, 0 before the first change."""

    def add(self, table: str, number: int, rows: list[Row]) -> bool:
        """Returns False when there is a version of that number already: another one, or this very
        one from an attempt whose outcome nobody knew. The next attempt finds either."""

    def let_expire(self, table: str, version: Version, seconds: int) -> None:
        """Keep a version that another one has replaced for so long."""


def change(
    versions: Versions, name: str, table: TablePlan, edit: Callable[[list[Row]], list[Row]]
) -> Version:
    """The newest version after the edit; the one before where the edit changes nothing.

    Edits of two operators at the same moment follow each other; an edit made twice is as made once.
    A version whose successor was added by a command that ended there and then, or by an attempt
    that wasn't answered, doesn't expire, which harms nobody.
    """
    for attempt in range(ATTEMPTS):
        time.sleep(attempt * random.uniform(0, PAUSE_SECONDS))  # rounds that meet undo each other
        newest = versions.newest(name)
        rows = edit(newest.rows)
        if rows == newest.rows:
            return newest
        if (size := len(encoded(rows))) > table.table_bytes:
            raise OperatorError(
                f"table {name}: {size} bytes with that row; it may have {table.table_bytes}",
                f"remove rows, or change table_bytes of {name}.yaml",
            )
        if versions.add(name, newest.number + 1, rows):
            if newest.number:
                versions.let_expire(name, newest, table.keep_seconds)
            return Version(newest.number + 1, rows)
    raise OperatorError(f"table {name}: others change it all the time", "run it again")


def with_row(table: TablePlan, row: Row) -> Callable[[list[Row]], list[Row]]:
    """An edit: the row, in place of the one that has its key."""

    def edit(rows: list[Row]) -> list[Row]:
        return sorted([*without_key(table, row)(rows), row], key=table.key_of)

    return edit


def without_key(table: TablePlan, key: Row) -> Callable[[list[Row]], list[Row]]:
    """An edit: all rows but the one that has this key."""

    def edit(rows: list[Row]) -> list[Row]:
        return [row for row in rows if table.key_of(row) != table.key_of(key)]

    return edit


def row_of(name: str, table: TablePlan, assignments: Iterable[str]) -> Row:
    """A whole row of ``column=value`` texts.

    Raises OperatorError that lists every one that is wrong, and every column that is missing.
    """
    return _read(name, table, assignments, list(table.columns))


def key_of(name: str, table: TablePlan, assignments: Iterable[str]) -> Row:
    """Returns the key's columns alone, as `row_of` does a whole row."""
    return _read(name, table, assignments, table.key)


def _read(name: str, table: TablePlan, assignments: Iterable[str], columns: list[str]) -> Row:
    given: dict[str, str] = {}
    wrong: list[str] = []
    for assignment in assignments:
        column, equals, text = assignment.partition("=")
        if not equals:
            wrong.append(f"'{assignment}' is no column=value")
        elif column not in columns:
            wrong.append(f"no column {column}; there are {', '.join(columns)}")
        elif column in given:
            wrong.append(f"{column} is given twice")
        given[column] = text
    row: Row = dict.fromkeys(columns)
    for column in columns:
        rule = table.columns[column]
        if column in given:
            try:
                row[column] = parsed(rule, given[column])
            except ValueError as error:
                wrong.append(f"{column}: {error}")
        elif rule.required:
            wrong.append(f"{column} is missing")
    if wrong:
        raise OperatorError(
            "\n".join(f"table {name}: {problem}" for problem in wrong), "nothing was changed"
        )
    return row


def parsed(rule: ColumnPlan, text: str) -> int | float | str:
    """The value that a text says. Raises ValueError where it isn't one of the column."""
    if rule.type == "text":
        if rule.required and not text.strip():
            raise ValueError("may not be empty")
        if not text.isprintable():
            raise ValueError("has characters that nothing could show")
        return text
    try:
        value = float(text) if rule.type == "double" else int(text)
    except ValueError:
        raise ValueError(f"'{text}' is no {rule.type}") from None
    assert rule.minimum is not None  # validated: it is a number
    assert rule.maximum is not None
    if not rule.minimum <= value <= rule.maximum:  # nor is nan
        raise ValueError(f"{text} is not between {rule.minimum} and {rule.maximum}")
    return value


def encoded(rows: list[Row]) -> bytes:
    """A version as it is kept: jobs read it, too."""
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()
