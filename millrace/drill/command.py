"""``millrace drill``: break something on purpose, under load, and measure what it cost."""

import re
import secrets
import signal
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from millrace.common.consent import YesOption, agree
from millrace.common.console import Console, write
from millrace.common.errors import UnhealthyError
from millrace.common.exits import Exit
from millrace.common.paths import stack_name, stack_state
from millrace.common.tables import NOTHING, Answer, Column, JsonOption, Row, Table, tell
from millrace.drill.options import FLOOR_SECONDS, DrillOptions
from millrace.drill.rate import events_per_second
from millrace.drill.runbook import Runbook, load_runbook, load_runbooks
from millrace.plan import Plan, load_plan

if TYPE_CHECKING:
    from millrace.drill.report import Report
    from millrace.drill.tables import Records

app = typer.Typer(no_args_is_help=True, help="Inject faults under load, measure and audit.")


def _drills() -> list[str]:
    return [runbook.name for runbook in load_runbooks()]


DrillName = Annotated[
    str,
    typer.Argument(metavar="DRILL", help="`millrace drill list` has them.", autocompletion=_drills),
]
Times = Annotated[int, typer.Option(min=1, help="How often, under the same load.")]
Rate = Annotated[
    float,
    typer.Option(
        parser=events_per_second,
        metavar="RATE",
        help="Events a second; or, as 50%, a share of what the bench recorded as sustained.",
    ),
]
Record = Annotated[bool, typer.Option("--record", help="Keep the report in docs/drills/.")]
Variant = Annotated[
    str,
    typer.Option(
        metavar="WORDS",
        help="What is special about this cluster, such as 'all jobs': recorded beside the others.",
    ),
]
StandbyIdle = Annotated[
    float,
    typer.Option(
        min=0, metavar="MINUTES", help="Inject only when the standby has stood by this long."
    ),
]

Alerts = Annotated[
    bool,
    typer.Option(
        "--alerts", help="Hold each fault until its alert is due; wait until it has resolved."
    ),
]

Floor = Annotated[
    float,
    typer.Option(
        min=1, metavar="SECONDS", help="How long to watch before each fault, with nothing broken."
    ),
]


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """Show the drills, their goals, and what was last measured."""
    from millrace.drill.tables import load_records

    plan = load_plan(stack_name())
    tell(Answer.of(drills=drills_table(plan, load_runbooks(), load_records())), as_json)


@app.command("show")
def show_command(name: DrillName) -> None:
    """Print a drill as a Chaos Toolkit experiment, for `chaos run`."""
    import yaml

    from millrace.drill.experiment import build_experiment

    folder = stack_state(stack_name()) / "drills" / "chaos" / name
    made = build_experiment(load_runbook(name), folder)
    write(yaml.safe_dump(made, sort_keys=False).rstrip("\n"))


@app.command("run")
def run_command(
    name: DrillName,
    times: Times = 3,
    rate: Rate = 2000,
    standby_idle: StandbyIdle = 0,
    alerts: Alerts = False,
    floor: Floor = FLOOR_SECONDS,
    record: Record = False,
    variant: Variant = "",
    as_json: JsonOption = False,
    yes: YesOption = False,
) -> None:
    """Break something as a runbook says, under load, heal it, measure and audit.

    Exit 6 unless it passed.

    millrace drill run driver-killed --times 1
    """
    options = DrillOptions(times, rate, standby_idle, alerts, floor)
    plan, chosen = load_plan(stack_name()), [load_runbook(name)]
    _agree(plan, chosen, yes)
    _drill(plan, chosen, options, record, variant, as_json=as_json)


@app.command("all")
def all_command(
    times: Times = 3,
    rate: Rate = 2000,
    standby_idle: StandbyIdle = 0,
    alerts: Alerts = False,
    floor: Floor = FLOOR_SECONDS,
    only: Annotated[
        str, typer.Option(metavar="A,B", help="Only these drills.", autocompletion=_drills)
    ] = "",
    record: Record = False,
    as_json: JsonOption = False,
    yes: YesOption = False,
) -> None:
    """Run every drill that is allowed here, one after the other.

    A missed goal doesn't stop it; lost data or a cluster that doesn't heal does. Exit 6 unless all
    passed.
    """
    plan = load_plan(stack_name())
    runbooks = [load_runbook(name) for name in only.split(",")] if only else load_runbooks()
    chosen = [r for r in runbooks if only or allowed(plan, r)]
    _agree(plan, chosen, yes)
    options = DrillOptions(times, rate, standby_idle, alerts, floor)
    _drill(plan, chosen, options, record, as_json=as_json)


@app.command("random")
def random_command(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long something is broken.")] = 10,
    every: Annotated[float, typer.Option(min=1, help="Seconds between faults.")] = 15,
    seed: Annotated[int | None, typer.Option(help="To make the same choices again.")] = None,
    rate: Rate = 2000,
    floor: Floor = FLOOR_SECONDS,
    record: Record = False,
    as_json: JsonOption = False,
    yes: YesOption = False,
) -> None:
    """Break something else every few seconds, heal everything, and audit.

    Exit 6 unless it passed.

    millrace drill random --minutes 10
    """
    from millrace.drill.cluster import Cluster
    from millrace.drill.nemesis import random_drill
    from millrace.drill.runner import perform

    _sigterm_is_ctrl_c()
    chosen = secrets.randbits(16) if seed is None else seed
    plan = load_plan(stack_name())
    drill = random_drill(plan, load_runbooks(), minutes, every, chosen)
    _agree(plan, drill.candidates, yes)
    options = DrillOptions(rate=rate, floor_seconds=floor)
    report = perform(Cluster(plan), drill, options, Console(stderr=as_json))
    _keep(report, record)
    _finish([report], as_json)


def allowed(plan: Plan, runbook: Runbook) -> bool:
    return plan.drills and runbook.about.may_run_in(plan)


def drills_table(plan: Plan, runbooks: Sequence[Runbook], records: "Records") -> Table:
    """Makes a table of every runbook's drill; ``last`` is what was recorded last."""
    from millrace.drill.tables import numbers, outcome, seconds

    def recorded(row: Row) -> str:
        return outcome(records[row["drill"]]) if row["last"] else NOTHING

    columns = (
        Column("allowed", "", lambda row: "●" if row["allowed"] else ""),
        Column("drill", whole=True),
        Column("faults", show=lambda row: numbers(row["faults"])),
        Column("blast_radius"),
        Column("goal", show=lambda row: seconds(row["goal"])),
        Column("last", "last recorded", recorded),
    )
    rows = [
        {
            "drill": runbook.name,
            "title": runbook.about.title,
            "allowed": allowed(plan, runbook),
            "faults": runbook.about.faults,
            "blast_radius": runbook.about.blast_radius,
            "goal": runbook.about.goal,
            "last": _last(records.get(runbook.name)),
        }
        for runbook in runbooks
    ]
    return Table(f"drills; allowed in {plan.environment}: ●", columns, rows)


def _last(report: "Report | None") -> Row | None:
    if report is None:
        return None
    added = {plane: added.seconds for plane, added in report.added.items()}
    return {"date": _date(report), "verdict": report.verdict, "added": added}


def _date(report: "Report") -> datetime:
    return datetime.fromisoformat(report.date)


def reports_view(reports: Sequence["Report"]) -> Answer:
    """What was measured, the worst of all runs, and what was missed or failed."""
    from millrace.drill.report import minutes
    from millrace.drill.tables import against_goals, alert_cell, audit_cell

    rows = [
        {
            "drill": report.name,
            "verdict": report.verdict,
            "added": against_goals(report),
            "audit": audit_cell(report),
            "idle": minutes(report.standby_idle_seconds),
            "alert": alert_cell(report),
        }
        for report in reports
    ]
    columns = (
        Column("drill", whole=True),
        Column("verdict"),
        Column("added", "added / goal (floor), s", lambda row: _marked(row["added"])),
        Column("audit", "lost, dup., wrong"),
        Column("idle", "standby idle"),
        Column("alert", "alert: fired, resolved after (s)", lambda row: _marked(row["alert"])),
    )
    problems = [
        f"{report.name}: {problem}"
        for report in reports
        for problem in (*report.missed, *report.all_failures)
    ]
    view = Group(Table("drills, the worst of all runs", columns, rows), *problems)
    found = [
        report.model_dump(mode="json")
        | {"date": _date(report), "verdict": report.verdict, "missed": report.missed}
        for report in reports
    ]
    return Answer({"reports": found}, view)


def _marked(markdown: str) -> Text:
    """What is bold in Markdown is red."""
    parts = re.split(r"\*\*(.+?)\*\*", markdown)  # every second one was between stars
    return Text.assemble(*((part, "bold red" if n % 2 else "") for n, part in enumerate(parts)))


def _drill(
    plan: Plan,
    runbooks: Sequence[Runbook],
    options: DrillOptions,
    record: bool,
    variant: str = "",
    *,
    as_json: bool,
) -> None:
    from millrace.drill.cluster import Cluster
    from millrace.drill.runner import run_all

    _sigterm_is_ctrl_c()
    reports = []
    for report in run_all(Cluster(plan), runbooks, options, Console(stderr=as_json)):
        reports.append(report)
        _keep(report.of_variant(variant), record)
    _finish(reports, as_json)
    if left := [runbook.name for runbook in runbooks[len(reports) :]]:
        raise UnhealthyError(f"stopped; not run: {', '.join(left)}", "see the last report")


def _agree(plan: Plan, runbooks: Sequence[Runbook], yes: bool) -> None:
    """Asks before something is broken. Raises OperatorError, too, where that isn't allowed."""
    from millrace.drill.runner import require_allowed

    for runbook in runbooks:
        require_allowed(plan, runbook.about)
    breaking = [runbook.about.blast_radius for runbook in runbooks if runbook.about.faults]
    if breaking:
        what = breaking[0] if len(breaking) == 1 else f"by the faults of {len(breaking)} runbooks"
        agree(f"Break {plan.environment} on purpose ({what}), and heal it?", yes=yes)


def _keep(report: "Report", keep: bool) -> None:
    from millrace.drill.runner import record
    from millrace.drill.tables import RECORDS

    if keep:
        record(report, RECORDS / f"{report.name}.json")


def _finish(reports: Sequence["Report"], as_json: bool) -> None:
    from millrace.drill.report import PASSED

    tell(reports_view(reports), as_json)
    if any(report.verdict != PASSED for report in reports):
        raise typer.Exit(Exit.NOT_PASSED)


def _sigterm_is_ctrl_c() -> None:
    """Handles SIGTERM as Ctrl-C: both roll back what was injected."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
