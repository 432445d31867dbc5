"""``millrace why``: the events that a number was made of."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from millrace import completion
from millrace.common.console import Console
from millrace.common.durations import parse_duration, parse_moment
from millrace.common.exits import Exit
from millrace.common.paths import stack_name
from millrace.common.tables import Answer, Column, JsonOption, Row, Table, shown, tell
from millrace.plan import load_plan

if TYPE_CHECKING:
    from millrace.audit.why import Why

MOST = 1000
TIMES = {"received": "Kafka took it", "event_time": "event time"}


def why_command(
    job: Annotated[
        str,
        typer.Argument(metavar="JOB", help="traffic or declared.", autocompletion=completion.jobs),
    ],
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="As the API takes it: status=404; '' without one.")
    ],
    window: Annotated[str, typer.Argument(metavar="WINDOW", help="Its start: 2026-01-01T12:00Z.")],
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="Events that are listed.")] = 100,
    wait: Annotated[str, typer.Option(help="How long the jobs may take to catch up.")] = "120s",
    as_json: JsonOption = False,
) -> None:
    """Say which events a number was made of, and whether they add up to what the API answers.

    Of traffic a KEY is window=1m or window=1h, with &url=/a for the views of a page in an hour. Of
    a job of sessions a WINDOW is any moment of the session. Exit 6 unless it adds up.

    millrace why status_by_minute status=404 2026-01-01T12:00Z
    """
    from millrace.audit.why import key_of, why

    asked, moment, seconds = key_of(key), parse_moment(window), parse_duration(wait)
    found = why(load_plan(stack_name()), job, asked, moment, limit, seconds)
    tell(why_view(found), as_json, Console(soft_wrap=True))
    if not found.adds_up:
        raise typer.Exit(Exit.NOT_PASSED)


def why_view(why: "Why") -> Answer:
    asked, found = why.asked, why.found
    data = {
        "adds_up": why.adds_up,
        "differences": why.differences,
        "job": why.job,
        "key": asked.key,
        "from": asked.start,
        "to": asked.end,
        "answer": asked.row,
        "counted": found["rows"],
        "count": found["count"],
        "events": found["events"],
        "apart_count": found["apart_count"],
        "apart": found["apart"],
        "dead_letters": why.letters,
        "notes": why.notes,
    }
    name = " ".join([why.job, *(f"{column}={value}" for column, value in asked.key.items())])
    of = _number(len(found["events"]), found["count"])
    parts: list[Any] = [Table(f"{name}: {of}", _columns(), found["events"])]
    if found["apart"]:
        of = _number(len(found["apart"]), found["apart_count"])
        title = f"of the same windows, and not counted: {of}"
        parts.append(Table(title, [*_columns(), Column("reason")], found["apart"]))
    parts += [f"dead letters meanwhile: {n:,} × {reason}" for reason, n in why.letters.items()]
    return Answer(data, Group(*parts, *why.notes, _verdict(why)))


def _verdict(why: "Why") -> Text:
    if why.adds_up:
        return Text("they add up to what the API answers", "bold green")
    return Text(f"they do NOT add up: counted ≠ answered: {'; '.join(why.differences)}", "bold red")


def _columns() -> list[Column]:
    return [
        Column("offset", "place", _place, whole=True),
        *(Column(name, title) for name, title in TIMES.items()),
        Column("id"),
        Column("fields", "what the job uses", _fields),
    ]


def _place(row: Row) -> str:
    """As dead letters are named."""
    return f"{row['topic']}-{row['partition']}-{row['offset']}"


def _fields(row: Row) -> str:
    return ", ".join(f"{name}={shown(value)}" for name, value in row["fields"].items())


def _number(listed: int, count: int) -> str:
    events = "1 event" if count == 1 else f"{count:,} events"
    return events if listed == count else f"the first {listed:,} of {events}"
