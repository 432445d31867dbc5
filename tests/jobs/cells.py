"""Cassandra's tables in memory, as far as recounts ask it: for each cell the newest write wins."""

import re
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

KEYS = {
    "traffic": ("window", "bucket", "window_start"),
    "pages": ("bucket", "url"),
    "page_lists": ("bucket",),
    "overlays": ("rows",),
    "generations": ("rows", "generation"),
}
FROM = re.compile(r"(?:FROM|INTO|UPDATE) \{keyspace\}\.\"?(\w+)\"?")
CONDITION = re.compile(r"\"?(\w+)\"? (=|>=|<) \?")
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: one == other,
    ">=": lambda one, other: one >= other,
    "<": lambda one, other: one < other,
}

Row = dict[str, Any]


class Cells:
    """`Tables`. ``before_write`` is called with the table's name; it may raise."""

    def __init__(self, **keys: tuple[str, ...]) -> None:
        self._keys = KEYS | keys
        self._rows: dict[str, dict[tuple[Any, ...], dict[str, tuple[int, Any]]]] = {}
        self.before_write: Callable[[str], None] = lambda table: None

    def upsert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        timestamp: int,
        partition_columns: int = 1,
    ) -> None:
        self.before_write(table)
        names = [name.strip('"') for name in columns]
        for values in rows:
            self._put(table, dict(zip(names, values, strict=True)), timestamp)

    def select(self, query: str, values: Sequence[Any]) -> list[Any]:
        return [_found(row) for row in self._matching(query, values)]

    scan = select

    def select_one(self, query: str, values: Sequence[Any]) -> Any:
        return next(iter(self.select(query, values)), None)

    def settle(self, change: str, values: Sequence[Any], look: str, key: Sequence[Any]) -> Any:
        [table] = FROM.findall(change)
        there = self._matching(look, key)
        if change.startswith("INSERT"):
            columns = change.partition("(")[2].partition(")")[0].split(", ")
            if not there:
                self._put(table, dict(zip(columns, values, strict=True)), 0)
        else:
            columns = re.findall(r"(\w+) = \?", change)
            wanted = dict(zip(columns[:-1], values[:-1], strict=True))
            if there and there[0]["revision"] == values[-1]:
                self._put(table, wanted, wanted["revision"])
        return self.select_one(look, key)

    def _put(self, table: str, row: Row, timestamp: int) -> None:
        key = tuple(row[name] for name in self._keys[table])
        cells = self._rows.setdefault(table, {}).setdefault(key, {})
        for name, value in row.items():
            if timestamp >= cells.get(name, (-1,))[0]:
                cells[name] = (timestamp, value)

    def _matching(self, query: str, values: Sequence[Any]) -> list[Row]:
        [table] = FROM.findall(query)
        conditions = CONDITION.findall(query.partition("WHERE")[2])
        rows = [
            {name: value for name, (_, value) in cells.items()}
            for _, cells in sorted(self._rows.get(table, {}).items())
        ]
        return [
            row
            for row in rows
            if all(
                COMPARE[sign](row[name], value)
                for (name, sign, *_), value in zip(conditions, values, strict=True)
            )
        ]


def _found(row: Row) -> Any:
    return SimpleNamespace(**row, _asdict=lambda: row)
