"""``millrace audit``: finds the ledgers, audits them and shows what was found.

What it needs is imported when it runs, not for each command.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from millrace import completion
from millrace.common.console import Console
from millrace.common.durations import parse_duration, parse_moment
from millrace.common.exits import Exit
from millrace.common.paths import stack_name
from millrace.common.stage import Stage
from millrace.common.tables import JsonOption, tell
from millrace.plan import load_plan

if TYPE_CHECKING:
    from millrace.audit.report import Report


def audit_command(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN ...]", help="By default the newest.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            help="A declared job, counted again from the archive.", autocompletion=completion.jobs
        ),
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="With --job: 2026-01-01T00:00Z; last day.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="With --job.")] = None,
    generation: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With --job: a count of `millrace reconcile`, or 0; by default what readers see.",
        ),
    ] = None,
    wait: Annotated[str, typer.Option(help="How long the jobs may take to catch up.")] = "120s",
    as_json: JsonOption = False,
) -> None:
    """Compare what `millrace load` had acknowledged with every place where results are.

    With --job, a declared job's rows with a recount from the archive, whoever sent the events.
    Exit 6 unless nothing is lost, nothing twice and nothing wrong.

    millrace audit --job sessions --from 2026-01-01T00:00Z
    """
    from millrace.audit.report import report_view

    if job:
        report = _audit_job(job, start, end, parse_duration(wait), generation)
    else:
        report = _audit(runs, parse_duration(wait))
    tell(report_view(report), as_json, Console(soft_wrap=True))
    if not report.ok:
        raise typer.Exit(Exit.NOT_PASSED)


def _audit_job(
    job: str, start: str | None, end: str | None, wait: float, generation: int | None
) -> "Report":
    from millrace.audit.declared import audit_job

    first, last = (None if one is None else parse_moment(one) for one in (start, end))
    with Stage(Console(stderr=True), f"{job} is counted again") as stage:
        plan = load_plan(stack_name())
        return audit_job(plan, job, first, last, wait, generation, stage.say)


def _audit(runs: list[str] | None, wait: float) -> "Report":
    from millrace.audit.run import audit, audit_topic
    from millrace.ledger.session import ledgers
    from millrace.ledger.store import Ledger, newest

    plan = load_plan(stack_name())
    paths = [ledgers(plan) / run for run in runs] if runs else [newest(ledgers(plan))]
    if len(paths) == 1 and Ledger.open(paths[0]).spec.topic != plan.names.kafka.topics.events:
        return audit_topic(plan, paths[0])
    return audit(plan, paths, wait)
