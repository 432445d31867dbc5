"""What makes, changes and shows a cluster, from `millrace setup` to `millrace down`."""

import shlex
from typing import Annotated

import typer

from millrace import completion
from millrace.common.consent import YesOption, agree
from millrace.common.console import Console, write
from millrace.common.paths import ANSIBLE, stack_name
from millrace.common.tables import Answer, JsonOption, tell
from millrace.plan import load_plan

console = Console()


def _playbooks() -> list[str]:
    return sorted(path.name for path in (ANSIBLE / "playbooks").glob("*.yml"))


def setup(
    only: Annotated[
        list[str] | None, typer.Option(help="One step, by the name that the progress shows.")
    ] = None,
) -> None:
    """Install what this machine lacks: engines, base image, distributions."""
    from millrace.setup.machine import run

    run(console, only)


def preflight() -> None:
    """Check that this machine can make and hold the stack's cluster, and say what is missing."""
    from millrace.cli.operations import check_machine

    check_machine(load_plan(stack_name()), console)


def up(yes: YesOption = False) -> None:
    """Make the hosts (Pulumi) and their services (Ansible); again, heal what drifted."""
    from millrace.cli.operations import make_hosts, make_services

    planned = load_plan(stack_name())
    make_hosts(planned, console, yes=yes)
    make_services(planned, console)


def status(
    as_json: JsonOption = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Ask each host by SSH and no Prometheus: slow, with memory."),
    ] = False,
    watched: Annotated[
        bool,
        typer.Option(
            "--watch", "-w", help="Again and again, until Ctrl-C; without a terminal each change."
        ),
    ] = False,
) -> None:
    """Show the cluster's state: healthy, degraded, down or unknown.

    Unknown is what wasn't answered in time, which a busy cluster may be; each line says by whom.
    Exit 4 when it is degraded or down, 5 when nobody knows.
    """
    from millrace.status.collect import collect
    from millrace.status.render import render
    from millrace.status.verdict import Status, judge
    from millrace.status.watch import watch

    planned = load_plan(stack_name())

    def ask() -> Status:
        return judge(planned, collect(planned, fresh=fresh))

    if watched and as_json:
        raise typer.BadParameter("--watch is for people; programs ask again")
    if watched:
        watch(ask, planned.cluster, console)
    seen = ask()
    tell(render(seen, planned.cluster), as_json)
    if seen.exit:
        raise typer.Exit(seen.exit)


def insights(as_json: JsonOption = False) -> None:
    """Show the latest results as the API gives them."""
    from millrace.cli.insights import insights_view
    from millrace.cluster.insight_api import InsightApi

    tell(insights_view(InsightApi(load_plan(stack_name()))), as_json)


def api(
    path: Annotated[str, typer.Argument(help="With its query, such as '/v1/late?from=…&to=…'.")],
    host: Annotated[
        str | None,
        typer.Option(
            help="An edge host's own API; else whichever answers.", autocompletion=completion.hosts
        ),
    ] = None,
) -> None:
    """Ask the insight API, with the toolkit's own key.

    The answer is printed as it comes.

    Example: millrace api /v1/progress
    """
    from millrace.cluster.insight_api import InsightApi
    from millrace.hosts.power import named

    planned = load_plan(stack_name())
    write(InsightApi(planned, named(planned, host) if host else None).text(path))


def deploy(yes: YesOption = False) -> None:
    """Deploy the streaming jobs of this checkout; where they run already, upgrade by hand-over."""
    from millrace.cli.operations import deploy_jobs

    deploy_jobs(load_plan(stack_name()), console, yes=yes)


def upgrade(
    version: Annotated[
        str | None, typer.Argument(help="One of `millrace versions`; else this checkout's.")
    ] = None,
    release: Annotated[
        str, typer.Option(help="A name that makes the same code another version, to try it.")
    ] = "",
    yes: YesOption = False,
) -> None:
    """Upgrade the jobs or back out, by hand-over: the old ones lead until the new ones stand by.

    millrace upgrade 20260517-0a1b2c3
    """
    from millrace.cli.operations import deploy_jobs
    from millrace.cli.service import run_version

    planned = load_plan(stack_name())
    if version:
        run_version(planned, version, console)
    else:
        deploy_jobs(planned, console, release, yes=yes)


def versions(as_json: JsonOption = False) -> None:
    """Show the versions of the jobs that may be run, and which one does."""
    from millrace.cli.service import versions_table

    tell(Answer.of(versions=versions_table(load_plan(stack_name()))), as_json)


def suspend(yes: YesOption = False) -> None:
    """Let all streaming jobs finish their batches and end; events wait in Kafka."""
    from millrace.cli.service import suspend as suspend_service

    planned = load_plan(stack_name())
    agree(f"Suspend all jobs of {planned.environment}? Results stand still meanwhile.", yes=yes)
    suspend_service(planned, console)


def resume() -> None:
    """Have the jobs go on where they were suspended."""
    from millrace.cli.service import resume as resume_service

    resume_service(load_plan(stack_name()), console)


def playbook(
    name: Annotated[
        str,
        typer.Argument(
            help="A file of ansible/playbooks, such as site.yml.", autocompletion=_playbooks
        ),
    ],
    arguments: Annotated[list[str] | None, typer.Argument(help="For ansible-playbook.")] = None,
    yes: YesOption = False,
) -> None:
    """Run one playbook of ansible/playbooks against the stack.

    millrace playbook site.yml -- --check --diff
    """
    from millrace.cli.playbook import STOP_A_HOST, run_playbook

    planned, words = load_plan(stack_name()), arguments or []
    if name in STOP_A_HOST:
        agree(f"Run {name} {' '.join(words)} on {planned.environment}? It stops a host.", yes=yes)
    run_playbook(planned, name, words, console)


def env() -> None:
    """Print the environment that plain `pulumi` commands need.

    eval "$(millrace env)"
    """
    from infra.automation import engine_environment, shared_state
    from infra.automation import stack as open_stack

    if shared_state(stack_name()):
        open_stack(stack_name())  # with it come the keys that its program looks for
    for key, value in engine_environment(stack_name()).items():
        write(f"export {key}={shlex.quote(value)}")


def down(
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove the data volumes as well.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Remove everything that `up` made; data volumes stay unless --purge.

    What goes is named first.
    """
    from millrace.cli.operations import remove_hosts

    remove_hosts(load_plan(stack_name()), console, purge=purge, yes=yes)
