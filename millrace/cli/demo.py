"""`make demo`: from nothing to live insights, each step the command a user would type."""

import subprocess
import sys
import time
from operator import not_

import typer

from millrace.cli.insights import insights_view
from millrace.cli.operations import make_hosts
from millrace.cli.playbook import run_playbook
from millrace.cluster.insight_api import InsightApi, last_events
from millrace.cluster.kafka import connect, traffic_lag
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_state
from millrace.common.waiting import wait_until
from millrace.plan import Plan, load_plan
from millrace.replay.command import EXIT_STOPPED
from millrace.replay.run import Asked, replay_log, twice_readable
from millrace.replay.start import TooLate
from millrace.setup.machine import run as run_setup
from millrace.status.collect import collect
from millrace.status.render import render
from millrace.status.verdict import judge

GENERATED_SPAN = "24h"
GENERATED_RATE = "1"  # requests/s on average: some 86,000 lines
LIVE_SPAN = "20s"
LIVE_RATE = "40"
PROCESSED_WITHIN_SECONDS = 300  # all that was sent


def run_demo(stack: str, log: str | None, console: Console) -> None:
    """Every step can be interrupted; the same command again goes on where it was."""
    started = time.monotonic()

    def step(title: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - started), 60)
        console.rule(f"[bold]{title}[/]  [dim]{minutes}:{seconds:02d}", align="left")

    step("1/5 What this machine lacks")
    run_setup(console)
    step("2/5 Hosts: pulumi up")
    plan = load_plan(stack)
    make_hosts(plan, console)
    step("3/5 Services: Ansible")
    run_playbook(stack, "site.yml", [], console)
    step("4/5 Streaming jobs")
    run_playbook(stack, "deploy-jobs.yml", [], console)
    step("5/5 Traffic")
    if log is None:
        _generated_traffic(plan, console)
    else:
        _replay(plan, log, console)
    _wait_until_processed(plan, console)
    step("Insights")
    api = InsightApi(plan)
    console.print(insights_view(api))
    console.print(render(judge(plan, collect(plan), last_events(plan)), plan.cluster))
    first, *others = [f"http://{address}/" for address in plan.addresses("insight_api", "http")]
    console.print(f"[bold]The live page: {first}[/]   (or {' '.join(others)})")
    console.print("All of it keeps running. `make status` shows it, `make down` removes it.")


def _generated_traffic(plan: Plan, console: Console) -> None:
    """A day of traffic, generated once for the stack, and some as it happens."""
    history = stack_state(plan.environment) / "traffic.log"
    if not history.exists():
        partial = history.with_suffix(".partial")
        with partial.open("wb") as out:
            generate = _millrace("generate", "--last", GENERATED_SPAN, "--rate", GENERATED_RATE)
            subprocess.run(generate, stdout=out, check=True)
        partial.rename(history)
    _replay(plan, str(history), console)
    console.print(f"{LIVE_SPAN} of live traffic at {LIVE_RATE} requests/s, over HTTP")
    seed = str(int(time.time()))
    live = _millrace("generate", "--live", LIVE_SPAN, "--rate", LIVE_RATE, "--seed", seed)
    with subprocess.Popen(live, stdout=subprocess.PIPE) as generator:
        subprocess.run(_millrace("send", "-"), stdin=generator.stdout, check=True)


def _millrace(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "millrace.cli", *arguments]


def _replay(plan: Plan, log: str, console: Console) -> None:
    """The log with its own dates where the jobs can still take them, else as today's traffic."""
    with twice_readable(log) as path:
        try:
            _send(plan, Asked(path))
        except TooLate as late:
            console.print(f"{late.message}; sending it as today's traffic (--shift-to-now)")
            _send(plan, Asked(path, to_now=True))


def _send(plan: Plan, asked: Asked) -> None:
    if not replay_log(plan, asked):
        raise typer.Exit(EXIT_STOPPED)


def _wait_until_processed(plan: Plan, console: Console) -> None:
    """Until the traffic job has committed all that was sent."""
    admin = connect(plan)
    with console.status("processing") as spinner:

        def ask() -> int:
            lag = traffic_lag(admin, plan)
            spinner.update(f"processing: {lag:,} records to go")
            return lag

        lag = wait_until(ask, PROCESSED_WITHIN_SECONDS, done=not_)
    if lag:
        raise OperatorError(
            f"after {PROCESSED_WITHIN_SECONDS} s {lag:,} records are still not processed",
            "`millrace status` shows what is down; `yarn logs` on an edge host has the driver's "
            "log",
        )
