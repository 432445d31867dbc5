"""`make demo`: from nothing to live insights, each step the command a user would type."""

import subprocess
import sys
import time
from typing import Annotated

import typer
from rich.text import Text

from millrace.cli.insights import insights_view
from millrace.cli.operations import make_hosts, make_services
from millrace.cli.playbook import run_playbook
from millrace.cli.settling import STILL_SECONDS, Look, await_rest, looking, state, state_line
from millrace.cluster.insight_api import InsightApi
from millrace.common.consent import YesOption
from millrace.common.console import Console
from millrace.common.errors import UnhealthyError
from millrace.common.exits import Exit
from millrace.common.paths import stack_name, stack_state
from millrace.common.stage import Stage, clock
from millrace.plan import Plan, load_plan
from millrace.replay.command import FormatOption
from millrace.replay.run import ReplayOptions, replay_log, twice_readable
from millrace.replay.start import TooLate
from millrace.setup.machine import run as run_setup

GENERATED_SPAN = "24h"
GENERATED_RATE = "1"  # requests/s on average: some 86,000 lines
LIVE_SPAN = "20s"
LIVE_RATE = "40"


def demo_command(
    log: Annotated[
        str | None, typer.Option("--input", metavar="FILE|-", help="Your own access log.")
    ] = None,
    log_format: FormatOption = "",
    yes: YesOption = False,
) -> None:
    """Go from nothing to live insights: all steps below, traffic, and its results.

    millrace demo --input access.log
    """
    run_demo(load_plan(stack_name()), log, log_format, Console(), yes=yes)


def run_demo(
    plan: Plan, log: str | None, log_format: str, console: Console, *, yes: bool = False
) -> None:
    """Performs every step. Each can be interrupted; the same command again goes on where it was."""
    started = time.monotonic()

    def step(title: str) -> None:
        since = clock(time.monotonic() - started)
        console.rule(Text.assemble((title, "bold"), "  ", (since, "dim")), align="left")

    step("1/5 What this machine lacks")
    run_setup(console)
    step("2/5 Hosts: pulumi up")
    make_hosts(plan, console, yes=yes)
    step("3/5 Services: Ansible")
    make_services(plan, console)
    step("4/5 Streaming jobs")
    run_playbook(plan, "deploy-jobs.yml", [], console)
    step("5/5 Traffic")
    if log is None:
        _generated_traffic(plan, console)
    else:
        _replay(plan, log, console, log_format)
    look = _wait(plan, console)
    step("Insights")
    _show_end(plan, look, console)
    if not look.at_rest:
        raise UnhealthyError(
            f"nothing got on for {STILL_SECONDS / 60:.0f} min: {'; '.join(look.waits)}",
            "`make status` shows more; what was sent waits in Kafka, and `make demo` goes on",
        )


def _wait(plan: Plan, console: Console) -> Look:
    """Until jobs have caught up, a standby is ready and all is healthy; or nothing gets on."""
    with Stage(console, "waiting for jobs and the standby driver") as stage:
        look = await_rest(looking(plan), stage.say)
    if look.at_rest:
        console.print(f"jobs have caught up, the standby driver is ready: {stage.took} minutes")
    return look


def _show_end(plan: Plan, look: Look, console: Console) -> None:
    """The results if they are there, the state in a line, and where to look at it live."""
    if not look.records:
        console.print(insights_view(InsightApi(plan)))
    status = look.status or state(plan)
    console.print(state_line(plan.cluster, status), soft_wrap=True)
    first, *others = [f"{door}/" for door in plan.doors("insights")]
    page = Text.assemble((f"The live page: {first}", "bold"), f"   (or {' '.join(others)})")
    console.print(page, soft_wrap=True)
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


def _replay(plan: Plan, log: str, console: Console, log_format: str = "") -> None:
    """The log with its own dates where the jobs can still take them, else as today's traffic."""
    with twice_readable(log) as path:
        try:
            _send(plan, ReplayOptions(path, format=log_format))
        except TooLate as late:
            console.print(f"{late.message}; sending it as today's traffic (--shift-to-now)")
            _send(plan, ReplayOptions(path, to_now=True, format=log_format))


def _send(plan: Plan, asked: ReplayOptions) -> None:
    if not replay_log(plan, asked):
        raise typer.Exit(Exit.STOPPED)
