"""``millrace audit``: finds the ledgers, audits them and shows what was found.

What it needs is imported when it runs, not for each command.
"""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from millrace.common.durations import parse_duration
from millrace.common.paths import stack_name
from millrace.plan import load_plan

if TYPE_CHECKING:
    from millrace.audit.report import Report


def audit_command(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN ...]", help="By default the newest.")
    ] = None,
    wait: Annotated[str, typer.Option(help="How long the jobs may take to catch up.")] = "120s",
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
) -> None:
    """Compare what `millrace load` had acknowledged with every place where results are.

    Exit 1 unless nothing is lost, nothing twice and nothing wrong.
    """
    from millrace.audit.report import report_view

    report = _audit(runs, parse_duration(wait))
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        width = None if sys.stdout.isatty() else 120
        Console(width=width, soft_wrap=True, highlight=False).print(report_view(report))
    if not report.ok:
        raise typer.Exit(1)


def _audit(runs: list[str] | None, wait: float) -> "Report":
    from millrace.audit.run import audit, audit_topic
    from millrace.ledger.book import Ledger, newest
    from millrace.ledger.session import ledgers

    plan = load_plan(stack_name())
    paths = [ledgers() / run for run in runs] if runs else [newest(ledgers())]
    if len(paths) == 1 and Ledger.open(paths[0]).spec.topic != plan.names.kafka.topics.events:
        return audit_topic(plan, paths[0])
    return audit(plan, paths, wait)
