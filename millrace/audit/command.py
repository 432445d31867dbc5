"""``millrace audit``: finds the ledgers, audits them and shows what was found."""

import json
import sys
from typing import Annotated

import typer
from rich.console import Console

from millrace import lag
from millrace.audit.report import Report, report_view
from millrace.audit.run import audit, audit_topic
from millrace.durations import parse_duration
from millrace.ledger import Ledger
from millrace.ledger.book import newest
from millrace.ledger.command import ledgers
from millrace.paths import stack_name
from millrace.plan import load_plan


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
    report = _audit(runs, parse_duration(wait))
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        width = None if sys.stdout.isatty() else 120
        Console(width=width, soft_wrap=True, highlight=False).print(report_view(report))
    if not report.ok:
        raise typer.Exit(1)


def _audit(runs: list[str] | None, wait: float) -> Report:
    plan = load_plan(stack_name())
    paths = [ledgers() / run for run in runs] if runs else [newest(ledgers())]
    if len(paths) == 1 and Ledger.open(paths[0]).spec.topic != lag.TOPIC:
        return audit_topic(plan, paths[0])
    return audit(plan, paths, wait)
