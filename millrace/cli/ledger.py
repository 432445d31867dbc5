"""``millrace ledger``: what Kafka has of each stream, against what became of it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from millrace.cluster import books
from millrace.cluster.books import Entry, Position
from millrace.common.exits import Exit
from millrace.common.paths import stack_name
from millrace.common.tables import Answer, Column, JsonOption, Row, Table, shown, tell
from millrace.plan import load_plan

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
COUNTS = ("records", "archived", "dead_letters", "skipped", "difference")


def ledger_command(
    day: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="In UTC; by default today.", metavar="2026-01-31"),
    ] = None,
    minutes: Annotated[
        bool, typer.Option("--minutes", help="Each minute, in place of each hour.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show that what Kafka has of each stream is archived or a dead letter, or what isn't.

    By the time at which the archive took it. The books are always open: the job gateway enters each
    batch within seconds. What doesn't come out even is shown by the minute, also of the last 24
    hours where no day is asked for; the exit code is 6 then.

    millrace ledger --day 2026-01-31 --minutes
    """
    plan = load_plan(stack_name())
    streams = sorted(plan.streams)
    now = datetime.now(UTC)
    asked = (day or now).date()
    found = books.entries(plan, streams, asked)
    tables: dict[str, Table] = {
        "spans": spans_table(found, MINUTE if minutes else HOUR, f"books of {asked}")
    }
    before = [] if day else books.entries(plan, streams, asked - DAY)
    differing = [
        *(entry for entry in before if entry.difference and entry.committed > now - DAY),
        *(entry for entry in found if entry.difference),
    ]
    if differing:
        tables["differing"] = spans_table(differing, MINUTE, "minutes that don't come out even")
    kept = books.positions(plan, streams)
    answer = Answer.of(*(_note(stream, kept.get(stream)) for stream in streams), **tables)
    positions = {stream: asdict(position) for stream, position in kept.items()}
    tell(Answer({**answer.data, "positions": positions}, answer.view), as_json)
    if differing or any(position.unwritten for position in kept.values()):
        raise typer.Exit(Exit.NOT_PASSED)


def spans_table(found: Iterable[Entry], span: timedelta, title: str) -> Table:
    """A row for each stream and span of time in which something was committed, and their sum."""
    spans: dict[tuple[str, datetime], list[Entry]] = {}
    for entry in sorted(found, key=lambda entry: (entry.stream, entry.committed)):
        spans.setdefault((entry.stream, _floor(entry.committed, span)), []).append(entry)
    rows = [
        {"stream": stream, "start": start, **_counts(mine)}
        for (stream, start), mine in spans.items()
    ]
    total = {"stream": None, "start": None, **_counts([e for mine in spans.values() for e in mine])}
    columns = (
        Column("stream", None, lambda row: row["stream"] or "all"),
        Column("start", "from (UTC)", _clock),
        *map(Column, COUNTS),
    )
    return Table(title, columns, rows, foot=total, by="stream", style=_style)


def _counts(found: Sequence[Entry]) -> dict[str, Any]:
    """Sums. Of what Kafka has forgotten, or nobody can read, the number of records isn't known."""
    known = [entry.records for entry in found if entry.records is not None]
    return {
        "records": sum(known) if len(known) == len(found) else None,
        "archived": sum(entry.archived for entry in found),
        "dead_letters": sum(entry.dead_letters for entry in found),
        "skipped": sum(entry.skipped for entry in found),
        # Not their sum: one that is missing here doesn't make up for one that came twice there.
        "difference": sum(abs(entry.difference) for entry in found),
    }


def _clock(row: Row) -> str:
    return f"{row['start']:%m-%d %H:%M}" if row["start"] else ""


def _style(row: Row) -> str:
    return "red" if row["difference"] else ""


def _floor(time: datetime, span: timedelta) -> datetime:
    day = time.replace(hour=0, minute=0, second=0, microsecond=0)
    return day + (time - day) // span * span


def _note(stream: str, position: Position | None) -> str:
    if position is None:
        return f"{stream}: the books have yet to begin"
    closed = f"{stream}: closed up to {shown(position.closed)}"
    if position.unwritten:
        return f"{closed}; {position.unwritten} records were read since, and not archived"
    return closed
