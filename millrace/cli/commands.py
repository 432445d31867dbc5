"""`millrace`: the operator's command line. Each command calls one module and shows its answer."""

import json
import shlex
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from millrace.audit.command import audit_command
from millrace.cli.dead_letters import app as dead_letters_app
from millrace.cli.jobs import app as jobs_app
from millrace.cli.tables import app as table_app
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.drill.command import app as drill_app
from millrace.generate.command import generate_command
from millrace.hosts.commands import (
    await_command,
    host_command,
    hosts_command,
    on_command,
    who_command,
)
from millrace.ledger.advertise import advertise_command
from millrace.ledger.command import load_command
from millrace.plan import load_plan
from millrace.replay.command import FormatOption, replay_command
from millrace.replay.send import send_command
from millrace.support.bundle import bundle_command
from millrace.support.logs import logs_command

YesOption = Annotated[
    bool, typer.Option("--yes", help="Where changes need somebody's word: they have it.")
]
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Plan, run and prove a highly available stream-processing service.",
)
# Tables that go to a file or a pipe aren't squeezed into the 80 columns of no terminal.
console = Console(width=None if sys.stdout.isatty() else 120)


@app.command()
def plan(
    as_json: Annotated[bool, typer.Option("--json", help="The whole plan, for scripts.")] = False,
) -> None:
    """Show what runs where: hosts x services x memory, per zone."""
    from millrace.cli.views import cost_view, plan_view

    planned = load_plan(stack_name())
    if as_json:
        print(planned.model_dump_json(indent=2))
    else:
        console.print(plan_view(planned))
        if planned.aws:
            console.print(cost_view(planned.aws))


@app.command()
def alerts() -> None:
    """Print the alerts' rules for Prometheus; docs/alerts.md says what they mean."""
    import yaml

    from millrace.alerts import load_alerts, rules

    print(yaml.safe_dump(rules(load_plan(stack_name()), load_alerts()), sort_keys=False), end="")


@app.command()
def dashboards(
    for_page: Annotated[
        bool, typer.Option("--page", help="As the operations page takes them.")
    ] = False,
) -> None:
    """Print the dashboard of configs/panels.yaml, to be imported into a Grafana of yours."""
    from millrace.alerts import load_alerts
    from millrace.panels import dashboard, load_panels, page

    planned, panels = load_plan(stack_name()), load_panels()
    made = page(planned, panels, load_alerts()) if for_page else dashboard(planned, panels)
    print(json.dumps(made, indent=2))


@app.command()
def capacity(
    events_per_second: Annotated[float, typer.Option(min=1)],
    event_bytes: Annotated[float, typer.Option("--bytes", min=1, help="Bytes of one event.")],
    retention_days: Annotated[float, typer.Option(min=0.01)],
    replication: Annotated[int, typer.Option(min=1, help="Copies of each event.")] = 3,
) -> None:
    """Size disks, brokers, partitions and Cassandra for a load, assumptions shown."""
    from millrace.cli.views import capacity_view
    from millrace.config import PROFILES, load_component
    from millrace.plan.capacity import Load, load_assumptions, size

    most = load_component("spark").settings["common"]["max_events_per_second"]
    load = Load(events_per_second, event_bytes, retention_days, replication)
    assumptions = load_assumptions()
    bounds = {profile: most.at(profile) for profile in PROFILES}
    console.print(capacity_view(load, size(load, assumptions), assumptions, bounds))


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Ask each host by SSH and no Prometheus: slow, with memory."),
    ] = False,
) -> None:
    """Show the cluster's state: healthy, degraded, down or unknown; exit 1 unless it is healthy.

    Unknown is what wasn't answered in time, which a busy cluster may be; each line says by whom.
    """
    from millrace.status.collect import collect
    from millrace.status.verdict import HEALTHY, judge

    planned = load_plan(stack_name())
    seen = judge(planned, collect(planned, fresh=fresh))
    if as_json:
        print(json.dumps(seen.as_json(), indent=2))
    else:
        from millrace.status.render import render

        console.print(render(seen, planned.cluster))
    if seen.state != HEALTHY:
        raise typer.Exit(1)


@app.command()
def setup(
    only: Annotated[
        list[str] | None, typer.Option(help="One step, by the name that the progress shows.")
    ] = None,
) -> None:
    """Install what this machine lacks: engines, base image, distributions."""
    from millrace.setup.machine import run

    run(console, only)


@app.command()
def preflight() -> None:
    """Check that this machine can hold the stack's cluster; refuse with numbers."""
    from millrace.cli.operations import check_machine

    check_machine(load_plan(stack_name()), console)


@app.command()
def up(yes: YesOption = False) -> None:
    """Make the hosts (Pulumi) and their services (Ansible). Again: heal what drifted."""
    from millrace.cli.operations import make_hosts
    from millrace.cli.playbook import run_playbook

    make_hosts(load_plan(stack_name()), console, yes=yes)
    run_playbook(stack_name(), "site.yml", [], console)


@app.command()
def deploy(yes: YesOption = False) -> None:
    """Deploy the streaming jobs of this checkout; where they run already, upgrade by hand-over."""
    from millrace.cli.operations import deploy_jobs

    deploy_jobs(load_plan(stack_name()), console, yes=yes)


@app.command()
def upgrade(
    version: Annotated[
        str | None, typer.Argument(help="One of `millrace versions`; else this checkout's.")
    ] = None,
    release: Annotated[
        str, typer.Option(help="A name that makes the same code another version, to try it.")
    ] = "",
) -> None:
    """Upgrade or back out by hand-over: the old version leads until the new one stands by."""
    from millrace.cli.operations import deploy_jobs
    from millrace.cli.service import run_version

    if version:
        run_version(load_plan(stack_name()), version, console)
    else:
        deploy_jobs(load_plan(stack_name()), console, release)


@app.command()
def versions() -> None:
    """Show the versions of the jobs that may be run, and which one does."""
    from millrace.cli.service import versions_view

    console.print(versions_view(load_plan(stack_name())))


@app.command()
def suspend() -> None:
    """Let the streaming jobs finish their batches and end; events wait in Kafka."""
    from millrace.cli.service import suspend as suspend_service

    suspend_service(load_plan(stack_name()), console)


@app.command()
def resume() -> None:
    """Have the jobs go on where they were suspended."""
    from millrace.cli.service import resume as resume_service

    resume_service(load_plan(stack_name()), console)


@app.command()
def playbook(
    name: Annotated[str, typer.Argument(help="A file of ansible/playbooks, such as site.yml.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="For ansible-playbook.")] = None,
) -> None:
    """Run one playbook against the stack: millrace playbook site.yml -- --check --diff."""
    from millrace.cli.playbook import run_playbook

    run_playbook(stack_name(), name, arguments or [], console)


app.add_typer(jobs_app, name="jobs")
app.add_typer(dead_letters_app, name="dead-letters")
app.command("replay")(replay_command)
app.command("send")(send_command)
app.command("generate")(generate_command)
app.add_typer(drill_app, name="drill")
app.command("load")(load_command)
app.command("advertise")(advertise_command)
app.add_typer(table_app, name="table")
app.command("audit")(audit_command)
app.command("who")(who_command)
app.command("hosts")(hosts_command)
app.command("on")(on_command)
app.command("host")(host_command)
app.command("await")(await_command)
app.command("logs")(logs_command)
app.command("support-bundle")(bundle_command)


@app.command()
def insights() -> None:
    """Show the latest results as the API gives them."""
    from millrace.cli.insights import insights_view
    from millrace.cluster.insight_api import InsightApi

    console.print(insights_view(InsightApi(load_plan(stack_name()))))


@app.command()
def demo(
    log: Annotated[
        str | None, typer.Option("--input", metavar="FILE|-", help="Your own access log.")
    ] = None,
    log_format: FormatOption = "",
) -> None:
    """From nothing to live insights: everything above, then traffic, then a look at the results."""
    from millrace.cli.demo import run_demo

    run_demo(stack_name(), log, log_format, console)


@app.command()
def down(
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove the data volumes as well.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Remove everything that `up` made; data volumes stay unless --purge."""
    from millrace.cli.operations import remove_hosts

    remove_hosts(load_plan(stack_name()), console, purge=purge, yes=yes)


@app.command()
def env() -> None:
    """Print the environment for plain `pulumi` commands: eval "$(millrace env)"."""
    from infra.automation import engine_environment, shared_state
    from infra.automation import stack as open_stack

    if shared_state(stack_name()):
        open_stack(stack_name())  # with it come the keys that its program looks for
    for key, value in engine_environment(stack_name()).items():
        print(f"export {key}={shlex.quote(value)}")


@app.command()
def lock() -> None:
    """For maintainers: resolve versions.yaml and requirements/*.in anew and write the locks."""
    from millrace.setup.relock import relock

    relock()


@app.command()
def docs(
    check: Annotated[bool, typer.Option("--check", help="Only say whether it is current.")] = False,
) -> None:
    """For maintainers: write the generated parts of the documents anew from configs/."""
    from millrace.cli.docs import write_docs

    write_docs(check)


def main() -> None:
    """Entry point: an OperatorError is shown as it is and ends with its exit code."""
    try:
        app()
    except OperatorError as error:
        show = Console(stderr=True)
        show.print(f"[bold red]error:[/] {escape(error.message)}", highlight=False, soft_wrap=True)
        if error.hint:
            show.print(f"[bold]next:[/]  {escape(error.hint)}", highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
