"""`make demo`: from nothing to live insights, each step the command a user would type."""

import subprocess
import sys
import time

from rich.console import Console

from millrace.cli.insights import insights_view
from millrace.cli.operations import make_hosts
from millrace.cli.playbook import run_playbook
from millrace.cluster.insight_api import InsightApi
from millrace.cluster.kafka import connect, traffic_lag
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_state
from millrace.plan import Plan, load_plan
from millrace.replay.command import replay_command
from millrace.replay.run import twice_readable
from millrace.replay.start import TooLate
from millrace.setup.machine import run as run_setup
from millrace.status.collect import collect
from millrace.status.render import render
from millrace.status.verdict import judge

GENERATED_SPAN = "24h"
GENERATED_RATE = "1"  # requests/s on average: some 86,000 lines
LIVE_SPAN = "20s"
LIVE_RATE = "40"
LONGEST_WAIT = 300  # s until all that was sent is processed


def run_demo(stack: str, log: str | None, console: Console) -> None:
    """Every step can be interrupted; the same command again goes on where it was."""
    started = time.monotonic()

    def step(title: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - started), 60)
        console.rule(f"[bold]{title}[/]  [dim]{minutes}:{seconds:02d}", align="left")

    step("1/5 What this machine lacks")
    run_setup(console)
    step("2/5 Hosts: pulumi up")
    make_hosts(stack, console)
    step("3/5 Services: Ansible")
    run_playbook(stack, "site.yml", [], console)
    step("4/5 Streaming jobs")
    run_playbook(stack, "deploy-jobs.yml", [], console)
    step("5/5 Traffic")
    plan = load_plan(stack)
    if log is None:
        _generated_traffic(stack, console)
    else:
        _replay(log, console)
    _wait_until_processed(plan, console)
    step("Insights")
    api = InsightApi(plan)
    console.print(insights_view(api))
    console.print(render(judge(plan, collect(plan)), plan.cluster))
    console.print(f"[bold]The live page: {api.urls[0]}/[/]   (or {api.urls[1]}/)")
    console.print("All of it keeps running. `make status` shows it, `make down` removes it.")


def _generated_traffic(stack: str, console: Console) -> None:
    """A day of traffic, generated once for the stack, and some as it happens."""
    history = stack_state(stack) / "traffic.log"
    if not history.exists():
        partial = history.with_suffix(".partial")
        with partial.open("wb") as out:
            generate = _millrace("generate", "--last", GENERATED_SPAN, "--rate", GENERATED_RATE)
            subprocess.run(generate, stdout=out, check=True)
        partial.rename(history)
    _replay(str(history), console)
    console.print(f"{LIVE_SPAN} of live traffic at {LIVE_RATE} requests/s")
    seed = str(int(time.time()))
    live = _millrace("generate", "--live", LIVE_SPAN, "--rate", LIVE_RATE, "--seed", seed)
    with subprocess.Popen(live, stdout=subprocess.PIPE) as generator:
        subprocess.run(_millrace("replay", "-"), stdin=generator.stdout, check=True)


def _millrace(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "millrace.cli", *arguments]


def _replay(log: str, console: Console) -> None:
    """The log with its own dates where the jobs can still take them, else as today's traffic."""
    with twice_readable(log) as path:
        try:
            replay_command(path, speed="max", shift=None, shift_to_now=False, run="")
        except TooLate as late:
            console.print(f"{late.message}; sending it as today's traffic (--shift-to-now)")
            replay_command(path, speed="max", shift=None, shift_to_now=True, run="")


def _wait_until_processed(plan: Plan, console: Console) -> None:
    """Until the traffic job has committed all that was sent."""
    deadline = time.monotonic() + LONGEST_WAIT
    admin = connect(plan)
    with console.status("processing") as spinner:
        while lag := traffic_lag(admin, plan):
            spinner.update(f"processing: {lag:,} records to go")
            if time.monotonic() > deadline:
                raise OperatorError(
                    f"after {LONGEST_WAIT} s {lag:,} records are still not processed",
                    "`millrace status` shows what is down; `yarn logs` on an edge host has the "
                    "driver's log",
                )
            time.sleep(1)
