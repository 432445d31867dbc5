"""`millrace jobs …`: the streaming jobs one by one, on the running service."""

from typing import Annotated, Any

import typer
from rich.console import Console

from millrace.cluster import zookeeper
from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.common.waiting import wait_until
from millrace.plan import Plan, load_plan

DISABLED = "disabled"
RUNNING = "running"

app = typer.Typer(no_args_is_help=True, help="Check, disable and enable single jobs.")
console = Console(soft_wrap=True, highlight=False)

JobName = Annotated[str, typer.Argument(metavar="JOB", help="One of an application's jobs.")]
Within = Annotated[str, typer.Option(help="How long to wait until it is so.")]


@app.command("disable")
def disable_command(job: JobName, within: Within = "120s") -> None:
    """Let a job finish its batch and begin no other one; its state stays, the other jobs go on."""
    plan = load_plan(stack_name())
    application = application_of(plan, job)
    zookeeper.disable(plan, job)
    console.print(f"{job}: finishes its batch; state and rows stay, and its events wait in Kafka")
    host = _await(plan, application, job, DISABLED, parse_duration(within))
    console.print(f"{job}: disabled on {host}; `millrace jobs enable {job}` goes on from there")


@app.command("enable")
def enable_command(job: JobName, within: Within = "120s") -> None:
    """Have a disabled job go on where it stopped; what waits in Kafka it catches up with."""
    plan = load_plan(stack_name())
    application = application_of(plan, job)
    zookeeper.enable(plan, job)
    console.print(f"{job}: goes on from its checkpoint")
    host = _await(plan, application, job, RUNNING, parse_duration(within))
    console.print(f"{job}: runs on {host}; `millrace status` shows what it still has to catch up")


@app.command("check")
def check_command(job: Annotated[str | None, typer.Argument(metavar="[JOB]")] = None) -> None:
    """Have Spark analyse the declared jobs, here and without a cluster: exit 1 if one can't run."""
    from millrace.cli.job_check import check_jobs

    plan = load_plan(stack_name())
    if job:
        application_of(plan, job)
    check_jobs(plan, job)
    console.print(f"{job or 'all declared jobs'}: can be run")


def application_of(plan: Plan, job: str) -> str:
    """OperatorError for a job that none runs."""
    for application, jobs in plan.applications.items():
        if job in jobs:
            return application
    known = ", ".join(job for jobs in plan.applications.values() for job in jobs)
    raise OperatorError(f"no application runs a job {job}; they run {known}", "nothing was changed")


def leader_of(drivers: list[dict[str, Any]], application: str) -> dict[str, Any] | None:
    """The driver that leads; of two that say so, one of which was frozen, the later."""
    leading = [d for d in drivers if (d["application"], d["state"]) == (application, "leading")]
    return max(leading, key=lambda driver: driver["since"], default=None)


def _await(plan: Plan, application: str, job: str, state: str, seconds: float) -> str:
    """The host of the driver that has the job in a state; OperatorError if none gets there."""
    seen: dict[str, str] = {}

    with console.status("") as spinner:

        def host() -> str | None:
            leader = leader_of(zookeeper.drivers(plan), application)
            seen["state"] = state_of(leader, job)
            spinner.update(f"{job}: {seen['state']}")
            return leader["host"] if leader and seen["state"] == state else None

        if found := wait_until(host, seconds):
            return found
    raise OperatorError(
        f"job {job} is not {state} after {seconds:.0f} s, but {seen['state']}",
        "the order stands, and is followed as soon as it can be; `millrace status` shows whether a"
        " driver leads, and its log on YARN says what holds it up",
    )


def state_of(leader: dict[str, Any] | None, job: str) -> str:
    """What a job does, as the driver that leads tells it."""
    if leader is None:
        return "without a driver that leads"
    return str(leader.get("jobs", {}).get(job, "not told of by its driver"))
