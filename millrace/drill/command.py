"""``millrace drill``: break something on purpose, under load, and measure what it cost."""

import re
import secrets
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from millrace.common.console import Console
from millrace.common.errors import UnhealthyError
from millrace.common.exits import Exit
from millrace.common.paths import stack_name, stack_state
from millrace.drill.options import FLOOR_SECONDS, DrillOptions
from millrace.drill.runbook import Runbook, load_runbook, load_runbooks
from millrace.plan import Plan, load_plan

if TYPE_CHECKING:
    from millrace.drill.report import Report
    from millrace.drill.tables import Records

app = typer.Typer(no_args_is_help=True, help="Inject faults under load, measure and audit.")
console = Console()


def _drills() -> list[str]:
    return [runbook.name for runbook in load_runbooks()]


DrillName = Annotated[
    str,
    typer.Argument(metavar="DRILL", help="`millrace drill list` has them.", autocompletion=_drills),
]
Times = Annotated[int, typer.Option(min=1, help="How often, under the same load.")]
Rate = Annotated[float, typer.Option(min=1, help="Events a second.")]
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
def list_command() -> None:
    """Show the drills, their goals, and what was last measured."""
    from millrace.drill.tables import load_records

    console.print(drills_view(load_plan(stack_name()), load_runbooks(), load_records()))


@app.command("show")
def show_command(name: DrillName) -> None:
    """Print a drill as a Chaos Toolkit experiment, for `chaos run`."""
    import yaml

    from millrace.drill.experiment import build_experiment

    folder = stack_state(stack_name()) / "drills" / "chaos" / name
    print(yaml.safe_dump(build_experiment(load_runbook(name), folder), sort_keys=False), end="")


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
) -> None:
    """Run one drill; exit 6 unless it passed."""
    options = DrillOptions(times, rate, standby_idle, alerts, floor)
    _drill(load_plan(stack_name()), [load_runbook(name)], options, record, variant)


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
) -> None:
    """Run every drill that is allowed here, one after the other; exit 6 unless all passed.

    A missed goal doesn't stop it; lost data or a cluster that doesn't heal does.
    """
    plan = load_plan(stack_name())
    runbooks = [load_runbook(name) for name in only.split(",")] if only else load_runbooks()
    chosen = [r for r in runbooks if only or allowed(plan, r)]
    _drill(plan, chosen, DrillOptions(times, rate, standby_idle, alerts, floor), record)


@app.command("random")
def random_command(
    minutes: Annotated[float, typer.Option(min=0.1)] = 10,
    every: Annotated[float, typer.Option(min=1, help="Seconds between faults.")] = 15,
    seed: Annotated[int | None, typer.Option(help="To make the same choices again.")] = None,
    rate: Rate = 2000,
    floor: Floor = FLOOR_SECONDS,
    record: Record = False,
) -> None:
    """Break something else every few seconds, heal everything, audit; exit 6 unless it passed."""
    from millrace.drill.cluster import Cluster
    from millrace.drill.nemesis import random_drill
    from millrace.drill.runner import perform, require_allowed

    _sigterm_is_ctrl_c()
    chosen = secrets.randbits(16) if seed is None else seed
    plan = load_plan(stack_name())
    drill = random_drill(plan, load_runbooks(), minutes, every, chosen)
    for runbook in drill.candidates:
        require_allowed(plan, runbook.about)
    report = perform(Cluster(plan), drill, DrillOptions(rate=rate, floor_seconds=floor), console)
    _keep(report, record)
    _finish([report])


def allowed(plan: Plan, runbook: Runbook) -> bool:
    return plan.drills and runbook.about.may_run_in(plan)


def drills_view(plan: Plan, runbooks: Sequence[Runbook], records: "Records") -> Table:
    """Makes a table of every runbook's drill."""
    from millrace.drill.tables import numbers, outcome, seconds

    table = Table(title=f"drills; allowed in {plan.environment}: ●", title_justify="left")
    table.add_column()
    table.add_column("drill", no_wrap=True)  # to be copied
    for column in ("faults", "blast radius", "goal", "last recorded"):
        table.add_column(column)
    for runbook in runbooks:
        about = runbook.about
        last = records.get(runbook.name)
        table.add_row(
            "●" if allowed(plan, runbook) else "",
            runbook.name,
            numbers(about.faults),
            about.blast_radius,
            seconds(about.goal),
            outcome(last) if last else "–",
        )
    return table


def reports_view(reports: Sequence["Report"]) -> Table:
    """Makes a table of what was measured, the worst of all runs."""
    from millrace.drill.report import minutes
    from millrace.drill.tables import against_goals, alert_cell, audit_cell

    def shown(markdown: str) -> Text:
        parts = re.split(r"\*\*(.+?)\*\*", markdown)  # every second one was between stars
        return Text.assemble(*((part, "bold red" if n % 2 else "") for n, part in enumerate(parts)))

    table = Table(title="drills, the worst of all runs", title_justify="left")
    columns = ("drill", "verdict", "added / goal (floor), s", "lost, dup., wrong")
    for column in (*columns, "standby idle", "alert: fired, resolved after (s)"):
        table.add_column(column, no_wrap=column == "drill", overflow="fold")
    for report in reports:
        table.add_row(
            report.name,
            report.verdict,
            shown(against_goals(report)),
            audit_cell(report),
            minutes(report.standby_idle_seconds),
            shown(alert_cell(report)),
        )
    return table


def _drill(
    plan: Plan,
    runbooks: Sequence[Runbook],
    options: DrillOptions,
    record: bool,
    variant: str = "",
) -> None:
    from millrace.drill.cluster import Cluster
    from millrace.drill.runner import run_all

    _sigterm_is_ctrl_c()
    reports = []
    for report in run_all(Cluster(plan), runbooks, options, console):
        reports.append(report)
        _keep(report.of_variant(variant), record)
    _finish(reports)
    if left := [runbook.name for runbook in runbooks[len(reports) :]]:
        raise UnhealthyError(f"stopped; not run: {', '.join(left)}", "see the last report")


def _keep(report: "Report", keep: bool) -> None:
    from millrace.drill.runner import record
    from millrace.drill.tables import RECORDS

    if keep:
        record(report, RECORDS / f"{report.name}.json")


def _finish(reports: Sequence["Report"]) -> None:
    from millrace.drill.report import PASSED

    console.print(reports_view(reports))
    for report in reports:
        for problem in (*report.missed, *report.all_failures):
            console.print(f"{report.name}: {problem}")
    if any(report.verdict != PASSED for report in reports):
        raise typer.Exit(Exit.NOT_PASSED)


def _sigterm_is_ctrl_c() -> None:
    """Handles SIGTERM as Ctrl-C: both roll back what was injected."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
