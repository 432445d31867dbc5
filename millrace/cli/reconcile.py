"""``millrace reconcile``: a job's past is counted again beside its stream, and readers see it."""

import getpass
import socket
from collections.abc import Mapping
from datetime import UTC
from typing import Annotated, Any

import typer
from rich.console import Group

from millrace import completion
from millrace.cluster.job_gateway import Gateway
from millrace.cluster.ssh import Follow
from millrace.common.consent import YesOption, agree
from millrace.common.console import Console
from millrace.common.durations import parse_moment
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.common.stage import Stage
from millrace.common.tables import Answer, Column, JsonOption, Row, Table, tell
from millrace.plan import Plan, load_plan

ARCHIVE = "archive"  # in place of a time

progress = Console(stderr=True)


def reconcile_command(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="Traffic, or a declared job.", autocompletion=completion.jobs
        ),
    ],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Windows that start then: 2026-01-01T00:00Z. Or archive: all that it surely has.",
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--to", help="The first one that isn't meant; from the archive, by default none."
        ),
    ] = None,
    without: Annotated[
        str | None,
        typer.Option(
            metavar="PREDICATE", help="Leave out events: a condition on their fields, in SQL."
        ),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(help="Of the jobs' code (`millrace versions`); by default the one that runs."),
    ] = None,
    closed: Annotated[
        bool, typer.Option("--closed", help="Of the range, count the windows that are closed.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="What a count has otherwise than readers see.")
    ] = False,
    switch: Annotated[bool, typer.Option("--switch", help="Have readers see a count.")] = False,
    back: Annotated[
        bool, typer.Option("--back", help="Have readers see what they saw before the last switch.")
    ] = False,
    generation: Annotated[
        int | None,
        typer.Option(min=1, help="With --show or --switch: which count; by default the newest."),
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Count a job's past again beside its stream, then have readers see that, or go back.

    Without options it lists the counts. One that was interrupted is gone on with by the same words.

    millrace reconcile traffic --from 2026-01-01T00:00Z --to 2026-01-08T00:00Z
    """
    from millrace.audit.declared import require_rows

    plan = load_plan(stack_name())
    require_rows(plan, job)
    ranged = start is not None or end is not None
    asked = [name for name, is_so in _ways(ranged, show, switch, back).items() if is_so]
    require_one(asked, without=without, version=version, closed=closed, generation=generation)
    way = asked[0] if asked else "list"
    if way == "count":
        question = question_of(plan, job, start, end, without or "", closed=closed)
        with Stage(progress, f"{job} is counted again") as stage:
            answer = _ask(plan, job, question, version, stage.say)
        tell(counted_view(job, answer), as_json)
    elif way == "list":
        tell(list_view(job, _ask(plan, job, {"do": "list"})), as_json)
    elif way == "show":
        answer = _ask(plan, job, {"do": "show", "generation": generation})
        tell(shown_view(job, answer), as_json)
    else:
        agree(_change(plan, job, way, generation), yes=yes)
        with Stage(progress, f"readers of {job} are switched") as stage:
            answer = _ask(plan, job, {"do": way, "generation": generation}, follow=stage.say)
        tell(switched_view(job, way, answer), as_json)


def _ways(ranged: bool, show: bool, switch: bool, back: bool) -> Mapping[str, bool]:
    return {"count": ranged, "show": show, "switch": switch, "back": back}


def _change(plan: Plan, job: str, way: str, generation: int | None) -> str:
    what = f"generation {generation}" if generation else "the newest count"
    seen = what if way == "switch" else "what they saw before the last switch"
    return f"Have readers of {job} in {plan.environment} see {seen}?"


def require_one(asked: list[str], **options: Any) -> None:
    """Raises OperatorError for options that don't go together."""
    if len(asked) > 1:
        names = {"count": "--from and --to"}
        said = " and ".join(names.get(name, f"--{name}") for name in asked)
        raise OperatorError(f"one at a time: {said}", "count, then --show, then --switch")
    allowed = {
        "count": {"without", "version", "closed"},
        "show": {"generation"},
        "switch": {"generation"},
    }.get(asked[0] if asked else "", set())
    if wrong := [name for name, value in options.items() if value and name not in allowed]:
        of = "--from and --to" if wrong[0] != "generation" else "--show or --switch"
        raise OperatorError(f"--{wrong[0]} goes with {of}")


def question_of(
    plan: Plan, job: str, start: str | None, end: str | None, without: str, *, closed: bool
) -> dict[str, Any]:
    """See `answer` of millrace_jobs.reconcile.run. Raises OperatorError."""
    from millrace.audit.declared import require_archives

    if start is None or (end is None and start != ARCHIVE):
        raise OperatorError("say both --from and --to", "`millrace reconcile JOB` lists the counts")
    require_archives(plan, job)
    settings = plan.spark.settings
    archives = {
        stream: {
            "job": archive,
            "keep_days": settings.job(archive).keep_days or settings.archive.keep_days,
        }
        for stream in settings.streams_of(job)
        for archive in [settings.archive_job(stream)]
    }
    return {
        "do": "count",
        "start": None if start == ARCHIVE else _naive(start),
        "end": None if end is None else _naive(end),
        "without": without,
        "closed": closed,
        "who": f"{getpass.getuser()} on {socket.gethostname()}",
        "archives": archives,
    }


def counted_view(job: str, answer: dict[str, Any]) -> Answer:
    number = answer["generation"]
    words = [
        f"{job}: generation {number} is counted, {answer['from']} to {answer['counted_to']};"
        f" {answer['rows']:,} rows by this run",
        *_open(answer),
        *_excluded(answer),
        f"`millrace reconcile {job} --show` compares it, --switch has readers see it",
    ]
    return Answer(answer, Group(*words))


def shown_view(job: str, answer: dict[str, Any]) -> Answer:
    seen = "readers see it; beside it what they saw" if answer["seen"] else "readers don't see it"
    rows = [{"what": what, "rows": answer[what]} for what in ("changed", "new", "gone")]
    sums = [
        {"column": name, "before": before, "after": after, "difference": after - before}
        for name, (before, after) in answer["sums"].items()
    ]
    of = f"{job}, generation {answer['generation']}: {answer['from']} to {answer['counted_to']}"
    parts = (
        Table(of, [Column("what", "rows that are"), Column("rows", "number")], rows),
        Table(
            "sums over these rows",
            [*map(Column, ("column", "before", "after", "difference"))],
            sums,
        ),
    )
    tables = Answer.of(rows=parts[0], sums=parts[1])
    words = [seen, *_open(answer), *_excluded(answer), *answer["examples"]]
    return Answer(answer, Group(tables.view, *words))


def list_view(job: str, answer: dict[str, Any]) -> Answer:
    columns = (
        *map(Column, ("generation", "from", "to", "counted_to")),
        Column("exclusions", "without", _predicates),
        *map(Column, ("code", "since", "who", "seen")),
    )
    return Answer.of(generations=Table(f"counts of {job}", columns, answer["generations"]))


def switched_view(job: str, way: str, answer: dict[str, Any]) -> Answer:
    other = "--back takes it back" if way == "switch" else "--switch has them see the count again"
    said = f"{job}: readers are switched (revision {answer['revision']}), and the results topic is"
    return Answer(answer, Group(f"{said} told; `millrace reconcile {job} {other}`"))


def _open(answer: dict[str, Any]) -> list[str]:
    if answer["to"] == answer["open_to"]:
        return []
    return [f"windows from {answer['to']} to {answer['open_to']} are open: count them later"]


def _excluded(answer: dict[str, Any]) -> list[str]:
    return [
        f"without {one['predicate']}, from {one['from']} to {one['to']}"
        for one in answer["exclusions"]
    ]


def _predicates(row: Row) -> str:
    return "; ".join(one["predicate"] for one in row["exclusions"])


def _naive(text: str) -> str:
    """UTC without saying so, as Spark has it."""
    return parse_moment(text).astimezone(UTC).replace(tzinfo=None).isoformat()


def _ask(
    plan: Plan,
    job: str,
    question: dict[str, Any],
    version: str | None = None,
    follow: Follow | None = None,
) -> dict[str, Any]:
    """Raises OperatorError for what is refused."""
    answer = Gateway(plan).reconcile(job, question, version, follow)
    if "error" in answer:
        raise OperatorError(f"job {job}: {answer['error']}", "readers see what they saw before")
    return answer
