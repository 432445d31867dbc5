"""``millrace dead-letters``: records that couldn't be used, and why."""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Group

from millrace import completion
from millrace.cluster import dead_letters, zookeeper
from millrace.cluster.dead_letters import Counted, Quarantined
from millrace.common.console import Console
from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError
from millrace.common.exits import Exit
from millrace.common.paths import stack_name
from millrace.common.tables import (
    Answer,
    Column,
    JsonOption,
    Row,
    Table,
    shown,
    tell,
    time_of,
)
from millrace.plan import Plan, load_plan

app = typer.Typer(
    no_args_is_help=True,
    help="Show records that couldn't be used, and have a job count those that it left out.",
)
JobOption = Annotated[
    str | None,
    typer.Option(
        metavar="JOB", help="Each record that it left out.", autocompletion=completion.jobs
    ),
]
DAYS = Annotated[int, typer.Option(min=1, max=31, help="Of how many days, by Kafka's clock.")]


@dataclass(frozen=True)
class Reason:
    """``job`` is None for what no job can use."""

    job: str | None
    reason: str
    records: int
    first: datetime
    last: datetime


@app.command("list")
def list_command(job: JobOption = None, days: DAYS = 7, as_json: JsonOption = False) -> None:
    """List them by reason; with --job, each record that this job left out."""
    plan = load_plan(stack_name())
    if job:
        require_declared(plan, job)
        found = dead_letters.quarantined(plan, [job])
        tell(Answer.of(records=records_table(job, found)), as_json)
        return
    today = datetime.now(UTC).date()
    counts = dead_letters.counted(plan, [today - timedelta(days=n) for n in range(days + 1)])
    tell(Answer.of(reasons=reasons_table(reasons_of(counts, declared(plan)), days)), as_json)


@app.command("show")
def show_command(
    letter: Annotated[str, typer.Argument(metavar="ID", help="<topic>-<partition>-<offset>")],
    as_json: JsonOption = False,
) -> None:
    """Show one: its value, its place, and which jobs left it out, by which error.

    millrace dead-letters show events-0-1234
    """
    plan = load_plan(stack_name())
    place = dead_letters.place_of(letter)
    errors = [one for one in dead_letters.quarantined(plan, declared(plan)) if one.id == letter]
    record = dead_letters.record(plan, place)
    _, received = record.timestamp()
    found = {
        "topic": place.topic,
        "partition": place.partition,
        "offset": place.offset,
        "received": time_of(received / 1000),
        "left_out": [asdict(one) for one in errors],
        "value": (record.value() or b"").decode(errors="replace"),
    }
    tell(Answer(found, Group(*_lines(found))), as_json, Console(soft_wrap=True))


def _lines(found: Row) -> Iterator[str]:
    yield f"topic {found['topic']}, partition {found['partition']}, offset {found['offset']}"
    yield f"received {shown(found['received'])}"
    for one in found["left_out"]:
        yield f"left out by {one['job']} since {shown(one['since'])}: {one['reason']}"
        if one["retried"]:
            yield f"… and counted by it {shown(one['retried'])}"
    if not found["left_out"]:
        yield "left out by no job: it is malformed, or was used"
    yield found["value"]


@app.command("retry")
def retry_command(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="That has put them aside.", autocompletion=completion.jobs
        ),
    ],
    letters: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]…", help="By default all of the job's.")
    ] = None,
    wait: Annotated[
        str, typer.Option(help="How long the jobs and the recount are given.")
    ] = "300s",
    as_json: JsonOption = False,
) -> None:
    """Have a job count records that it left out, each once.

    For records by which its code fails no more, and whose windows are closed. May be repeated.
    Exit 1 unless all are counted.
    """
    from millrace.audit.declared import await_archives

    plan, seconds = load_plan(stack_name()), parse_duration(wait)
    require_declared(plan, job)
    ids = to_retry(job, dead_letters.quarantined(plan, [job]), letters or [])
    if not ids:
        tell(Answer.of(outcomes=outcomes_table(job, [])), as_json)
        return
    await_archives(plan, job, seconds)
    path = f"{plan.names.zookeeper.jobs}/{job}/retry"
    answer = zookeeper.ask(plan, path, {"id": uuid.uuid4().hex, "records": ids}, seconds)
    if "error" in answer:
        raise OperatorError(f"job {job}: {answer['error']}", "nothing is counted twice: try again")
    outcomes = answer["outcomes"]
    tell(Answer.of(outcomes=outcomes_table(job, outcomes)), as_json)
    if not all(outcome["counted"] for outcome in outcomes):
        raise typer.Exit(Exit.FAILED)


def to_retry(job: str, found: Iterable[Quarantined], letters: Sequence[str]) -> list[str]:
    """The ids of what was asked for; of all that is still left out if nothing was."""
    known = {one.id: one for one in found}
    for letter in letters:
        dead_letters.place_of(letter)
        if letter not in known:
            raise OperatorError(
                f"{letter} is no record that {job} has left out",
                "what is malformed was counted by no job: its producer sends it again, as a new"
                f" event; `millrace dead-letters list --job {job}` lists what can be retried",
            )
    return list(letters) or [id for id, one in known.items() if not one.retried]


def outcomes_table(job: str, outcomes: Sequence[dict[str, Any]]) -> Table:
    """``what`` became of each that was retried."""
    columns = (
        Column("id", "ID", whole=True),
        Column("counted"),
        Column("what", "", lambda row: "" if row["what"] == "counted" else row["what"]),
    )
    title = f"{job}: retried" if outcomes else f"{job}: there is nothing that it leaves out"
    return Table(title, columns, outcomes)


def declared(plan: Plan) -> list[str]:
    """Returns the jobs that may leave records out."""
    return [job for job in plan.jobs if plan.spark.settings.keeps_rows(job)]


def require_declared(plan: Plan, job: str) -> None:
    """OperatorError for a job that leaves nothing out."""
    if job not in declared(plan):
        known = ", ".join(declared(plan)) or "none"
        raise OperatorError(
            f"{job} is no job of one file that an application runs; those are: {known}",
            "`millrace dead-letters list` shows what all jobs have",
        )


def reasons_of(found: Iterable[Counted], jobs: Sequence[str]) -> list[Reason]:
    """Counts records by reason, most frequent first. A job's own reasons begin with its name."""
    by_reason: dict[str, list[Counted]] = {}
    for one in found:
        by_reason.setdefault(one.reason, []).append(one)
    reasons = [
        Reason(
            *_split(reason, jobs),
            sum(one.records for one in mine),
            min(one.minute for one in mine),
            max(one.minute for one in mine),
        )
        for reason, mine in by_reason.items()
    ]
    return sorted(reasons, key=lambda reason: -reason.records)


def reasons_table(reasons: Iterable[Reason], days: int) -> Table:
    columns = (*map(Column, ("reason", "job", "records")), Column("first", "since"), Column("last"))
    return Table(f"dead letters of {days} days", columns, [asdict(one) for one in reasons])


def records_table(job: str, found: Iterable[Quarantined]) -> Table:
    """The newest last."""
    columns = (
        Column("id", "ID", whole=True),
        Column("reason", "error"),
        *map(Column, ("since", "retried")),
    )
    rows = [asdict(one) for one in sorted(found, key=lambda one: one.since)]
    return Table(f"{job} has left out", columns, rows)


def _split(reason: str, jobs: Sequence[str]) -> tuple[str | None, str]:
    job, _, error = reason.partition(": ")
    return (job, error) if job in jobs else (None, reason)
