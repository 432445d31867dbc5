"""`millrace jobs …`: the streaming jobs one by one, in the plan and on the running service."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import typer

from millrace import completion
from millrace.cli.job_facts import Facts, facts_of
from millrace.cli.job_skips import skip_command, skips_command
from millrace.cluster import kafka, zookeeper
from millrace.common.consent import YesOption, agree
from millrace.common.console import Console
from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.common.tables import (
    NOTHING,
    Answer,
    Column,
    JsonOption,
    Row,
    Table,
    shown,
    tell,
)
from millrace.common.waiting import wait_until
from millrace.plan import Plan, load_plan
from millrace_shared.driver_record import DriverRecord, leader

DISABLED = "disabled"
RUNNING = "running"

app = typer.Typer(help="List, check, disable and enable the streaming jobs, one by one.")
console = Console()

JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="One of an application's jobs.", autocompletion=completion.jobs
    ),
]
Within = Annotated[str, typer.Option(help="How long to wait until it is so.")]


@dataclass(frozen=True)
class Running:
    """What the running service says of one job.

    ``trouble`` is why it doesn't run well, ``runbook`` the page that says what to do; ``behind`` is
    in records.
    """

    state: str | None = None
    host: str | None = None
    trouble: str | None = None
    runbook: str | None = None
    behind: int | None = None


@app.callback(invoke_without_command=True)
def main_command(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the streaming jobs: what each is, and what it does now."""
    if context.invoked_subcommand is None:
        list_command(as_json)


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """List the streaming jobs: what each is, and what it does now."""
    plan = load_plan(stack_name())
    try:
        found = jobs_view(plan, ask_running(plan))
    except OperatorError as error:
        found = jobs_view(plan, {}, error.message)
    tell(found, as_json)


@app.command("disable")
def disable_command(job: JobName, within: Within = "120s", yes: YesOption = False) -> None:
    """Let a job finish its batch and begin no other one; its state stays, the other jobs go on."""
    plan = load_plan(stack_name())
    application = application_of(plan, job)
    agree(f"Disable {job} in {plan.environment}? Its results stand still meanwhile.", yes=yes)
    zookeeper.disable(plan, job)
    _say(f"{job}: finishes its batch; state and rows stay, and its events wait in Kafka")
    host = _await(plan, application, job, DISABLED, parse_duration(within))
    _say(f"{job}: disabled on {host}; `millrace jobs enable {job}` goes on from there")


@app.command("enable")
def enable_command(job: JobName, within: Within = "120s") -> None:
    """Have a disabled job go on where it stopped; what waits in Kafka it catches up with."""
    plan = load_plan(stack_name())
    application = application_of(plan, job)
    zookeeper.enable(plan, job)
    _say(f"{job}: goes on from its checkpoint")
    host = _await(plan, application, job, RUNNING, parse_duration(within))
    _say(f"{job}: runs on {host}; `millrace status` shows what it still has to catch up")


@app.command("check")
def check_command(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB]…", help="By default all declared ones.", autocompletion=completion.jobs
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Have Spark analyse the declared jobs on this machine, without a cluster.

    Shows how each was understood. Exit 6 if one can't be run.
    """
    from millrace.cli.job_check import check_jobs

    plan, chosen = load_plan(stack_name()), jobs or []
    for job in chosen:
        application_of(plan, job)
    tell(understood(check_jobs(plan, chosen)), as_json)


def understood(read: Mapping[str, Mapping[str, Any]]) -> Answer:
    """How the jobs were read that can be run."""
    rows = [{"job": job, **found} for job, found in read.items()]
    notes = [f"{row['job']}: {note}" for row in rows for note in row["notes"]]
    title = "jobs that can be run" if rows else "no declared jobs"
    return Answer.of(*notes, jobs=Table(title, READ, rows))


app.command("skip")(skip_command)
app.command("skips")(skips_command)


def ask_running(plan: Plan) -> dict[str, Running]:
    """Returns how each job runs. Raises OperatorError when ZooKeeper doesn't answer."""
    drivers, disabled = zookeeper.drivers(plan), zookeeper.disabled(plan)
    admin = kafka.connect(plan)
    running = {}
    for application, jobs in plan.applications.items():
        leading = leader(drivers[application])
        for job in jobs:
            state = DISABLED if not leading and job in disabled else state_of(leading, job)
            running[job] = Running(
                state,
                host=leading.host if leading else None,
                trouble=leading.troubles.get(job) if leading else None,
                runbook=leading.runbooks.get(job) if leading else None,
                behind=_behind(admin, plan, job),
            )
    return running


def _behind(admin: kafka.AdminClient, plan: Plan, job: str) -> int | None:
    try:
        return kafka.lag(admin, plan, job)
    except kafka.KafkaException:
        return None


def jobs_view(plan: Plan, running: dict[str, Running], unknown: str | None = None) -> Answer:
    """Each job of the plan's applications; ``unknown`` is why nobody tells what they do now."""
    rows = [
        _row(application, facts_of(plan, job), running.get(job) or Running())
        for application, jobs in plan.applications.items()
        for job in jobs
    ]
    notes = [f"what they do now is unknown: {unknown}"] if unknown else []
    found = Answer.of(*notes, jobs=Table(f"{plan.cluster}: jobs", COLUMNS, rows))
    return replace(found, data={**found.data, "unknown": unknown})


def _row(application: str, job: Facts, running: Running) -> Row:
    return {
        "job": job.name,
        "application": application,
        "kind": f"{job.kind}, in real time" if job.real_time else job.kind,
        "streams": job.streams,
        "real_time": job.real_time,
        "routes": job.routes,
        **asdict(running),
    }


def said(row: Row) -> str:
    """``failed on worker-2: it is the code (runbooks/job-failed.md)``."""
    where = f" on {row['host']}" if row["host"] else ""
    why = f": {row['trouble']}" if row["trouble"] else ""
    page = f" (runbooks/{row['runbook']}.md)" if why and row["runbook"] else ""
    return f"{shown(row['state'])}{where}{why}{page}"


def _routes(row: Row) -> str:
    return "results topic only" if row["real_time"] else "\n".join(row["routes"]) or NOTHING


COLUMNS = (
    *map(Column, ("job", "application", "kind", "streams")),
    Column("state", show=said),
    Column("behind"),
    Column("routes", "route", _routes),
)


READ = tuple(map(Column, ("job", "windows", "join", "key", "values", "state")))


def _say(line: str) -> None:
    console.print(line, soft_wrap=True)


def application_of(plan: Plan, job: str) -> str:
    """Returns the application that runs a job. Raises OperatorError when none does."""
    for application, jobs in plan.applications.items():
        if job in jobs:
            return application
    known = ", ".join(plan.jobs)
    raise OperatorError(f"no application runs a job {job}; they run {known}", "nothing was changed")


def _await(plan: Plan, application: str, job: str, state: str, seconds: float) -> str:
    """The host of the driver that has the job in a state. Raises OperatorError if none gets
    there."""
    seen: dict[str, str] = {}

    with console.status("") as spinner:

        def host() -> str | None:
            leading = leader(zookeeper.drivers(plan)[application])
            seen["state"] = state_of(leading, job)
            spinner.update(f"{job}: {seen['state']}")
            return leading.host if leading and seen["state"] == state else None

        if found := wait_until(host, seconds):
            return found
    raise OperatorError(
        f"job {job} is not {state} after {seconds:.0f} s, but {seen['state']}",
        "the order stands, and is followed as soon as it can be; `millrace status` shows whether a"
        " driver leads, and its log on YARN says what holds it up",
    )


def state_of(leading: DriverRecord | None, job: str) -> str:
    """Returns what a job does, as the driver that leads tells it."""
    if leading is None:
        return "nobody leads"
    return leading.jobs.get(job, "not told of by its driver")
