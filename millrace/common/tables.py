"""What commands answer with: data first, then a table for people or JSON for programs.

Only this module makes tables for the terminal, so that what is shown can always be had as JSON.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from numbers import Real
from pathlib import Path
from typing import Annotated, Any

import rich.table
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from millrace.common.console import Console, write

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
# Column's key → text, number, bool, time with its zone, None where nobody knows, or a list.
Row = Mapping[str, Any]
NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """``key`` is the value's name in rows and JSON; ``title`` stands above, else the key.

    ``show`` makes the cell of a row where the usual form (`shown`) of its value won't do;
    ``whole`` cells are to be copied, and never wrapped.
    """

    key: str
    title: str | None = None
    show: Callable[[Row], RenderableType] | None = None
    whole: bool = False

    @property
    def head(self) -> str:
        return self.key.replace("_", " ") if self.title is None else self.title

    def cell(self, row: Row) -> RenderableType:
        return self.show(row) if self.show else shown(row[self.key])


@dataclass(frozen=True)
class Table:
    """Rows may have more values than there are columns; JSON has all of them.

    ``foot`` is a row about all others. A line is drawn wherever the value of ``by`` changes;
    ``style`` is a row's.
    """

    title: str | Text
    columns: Sequence[Column]
    rows: Sequence[Row]
    foot: Row | None = None
    by: str | None = None
    style: Callable[[Row], str] = lambda _: ""

    def __rich__(self) -> rich.table.Table:
        table = rich.table.Table(title=self.title, title_justify="left")
        table.show_header = any(column.head for column in self.columns)
        for column in self.columns:
            right = any(is_number(row[column.key]) for row in self.rows)
            justify: Any = "right" if right else "left"
            table.add_column(column.head, justify=justify, no_wrap=column.whole, overflow="fold")
        before: Row | None = None
        for row in self.rows:
            if self.by and before and row[self.by] != before[self.by]:
                table.add_section()
            before = row
            table.add_row(*(column.cell(row) for column in self.columns), style=self.style(row))
        if self.foot:
            table.add_section()
            table.add_row(*(column.cell(self.foot) for column in self.columns), style="bold")
        return table


@dataclass(frozen=True)
class Answer:
    """``data`` is what programs read, ``view`` what people do."""

    data: Mapping[str, Any]
    view: RenderableType

    @classmethod
    def of(cls, *notes: RenderableType, **tables: Table) -> "Answer":
        """Tables, and lines below them for people: programs get each table's rows."""
        data: dict[str, Any] = {name: table.rows for name, table in tables.items()}
        data |= {f"{name}_total": table.foot for name, table in tables.items() if table.foot}
        return cls(data, Group(*tables.values(), *notes))

    def __rich__(self) -> RenderableType:
        return self.view


def upright(title: str, row: Row) -> Table:
    """One row's values, one below the other."""
    lines = [{"what": key.replace("_", " "), "value": value} for key, value in row.items()]
    return Table(title, [Column("what", ""), Column("value", "")], lines)


def tell(said: Answer, as_json: bool, console: Console | None = None) -> None:
    """Prints an answer for people, or for programs."""
    if as_json:
        write(in_json(said.data))
    else:
        (console or Console()).print(said)


def in_json(data: Any) -> str:
    """JSON whose times are ISO 8601 in UTC; a terminal may show it, as all of it is ASCII."""
    return json.dumps(data, indent=2, default=_jsonable)


def shown(value: Any) -> str:
    """The usual form of a value in a cell."""
    match value:
        case None | "" | []:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,g}"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        case list() | tuple():
            return ", ".join(map(shown, value))
    return str(value)


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def iso(moment: datetime) -> str:
    """Returns ``2026-11-29T12:00:00Z``."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def time_of(seconds: float) -> datetime:
    """Returns the moment so many seconds after 1970 began."""
    return datetime.fromtimestamp(seconds, UTC)


def _jsonable(value: Any) -> Any:
    match value:
        case datetime():
            return iso(value)
        case Path():
            return str(value)
        case Mapping():
            return dict(value)
        case set() | frozenset():
            return sorted(value)
        case Iterable():
            return list(value)
    raise TypeError(f"{value!r} has no form in JSON")
