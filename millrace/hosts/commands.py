"""`millrace who | hosts | on | host | await`: what operators type and runbooks run."""

import shlex
import subprocess
from operator import not_
from typing import Annotated

import typer

from millrace import completion
from millrace.cluster.ssh import ssh_command
from millrace.common.consent import YesOption, agree
from millrace.common.console import write
from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError, UnhealthyError, UnreachableError
from millrace.common.paths import stack_name
from millrace.common.waiting import wait_until
from millrace.hosts.power import BREAK, Action, act, named
from millrace.plan import load_plan

PAUSE_SECONDS = 10  # between two looks, each of which costs every host a process or two
HEALTHY = "healthy"
# A driver warms up for minutes on full cores; who asks wants to know whether, not how fast.
PATIENCE = "10m"


def _roles() -> list[str]:
    from millrace.hosts.roles import ROLES

    return list(ROLES)


def who_command(
    role: Annotated[
        str, typer.Argument(help="kafka-leader, namenode, driver, …", autocompletion=_roles)
    ],
    others: Annotated[
        bool, typer.Option("--others", help="The other hosts of that service, one per line.")
    ] = False,
    pids: Annotated[
        bool, typer.Option("--pids", help="Its processes there: a driver's JVM and Python.")
    ] = False,
) -> None:
    """Say which host has a role now; exit 3 if nobody has it.

    millrace who kafka-leader
    """
    from millrace.hosts import roles

    plan = load_plan(stack_name())
    if others:
        write(*(host.name for host in roles.others(plan, role)))
        return
    found = roles.holder(plan, role)
    write(" ".join(map(str, found.pids)) if pids else found.host.name)


def hosts_command(
    service: Annotated[
        str | None,
        typer.Option(
            help="Those that run it, such as kafka_broker.", autocompletion=completion.services
        ),
    ] = None,
    zone: Annotated[
        str | None, typer.Option(help="Those in it.", autocompletion=completion.zones)
    ] = None,
) -> None:
    """List hosts by name, one per line, for loops in the shell.

    for host in $(millrace hosts --service kafka_broker); do millrace on "$host" -- uptime; done
    """
    plan = load_plan(stack_name())
    chosen = (
        host
        for host in plan.hosts
        if service in (None, *host.services) and zone in (None, host.zone)
    )
    write(*(host.name for host in chosen))


def on_command(
    host: Annotated[
        str,
        typer.Argument(
            help="A host's name, as `millrace plan` lists it.", autocompletion=completion.hosts
        ),
    ],
    command: Annotated[list[str], typer.Argument(help="Stands after --.")],
) -> None:
    """Run a command on a host, as root; its exit code is the command's.

    millrace on kafka-1 -- systemctl status kafka-broker
    """
    plan = load_plan(stack_name())
    remote = shlex.join(["sudo", *command])
    done = subprocess.run([*ssh_command(plan, named(plan, host)), remote])
    raise typer.Exit(done.returncode)


def host_command(
    action: Annotated[
        Action, typer.Argument(help="start, thaw and rejoin undo kill, freeze and partition.")
    ],
    hosts: Annotated[
        list[str],
        typer.Argument(
            help="Names, as `millrace plan` lists them.", autocompletion=completion.hosts
        ),
    ],
    yes: YesOption = False,
) -> None:
    """Take power (kill), pulse (freeze) or network (partition) from hosts, or give it back.

    millrace host kill kafka-1
    """
    plan = load_plan(stack_name())
    chosen = [named(plan, name) for name in hosts]
    if action in BREAK:
        names = ", ".join(host.name for host in chosen)
        agree(f"{action.capitalize()} {names} of {plan.environment}?", yes=yes)
    act(plan, action, chosen)


def await_command(
    state: Annotated[
        str, typer.Argument(help="healthy is the only one.", autocompletion=lambda: [HEALTHY])
    ],
    within: Annotated[str, typer.Option(help="How long to wait for it.")] = PATIENCE,
) -> None:
    """Wait until the cluster is healthy.

    Exit 4 if it isn't in time, 5 if nobody knows.

    millrace await healthy --within 2m
    """
    if state != HEALTHY:
        raise OperatorError(f"can't wait for '{state}'", "millrace await healthy")
    from millrace.status import health
    from millrace.status.verdict import UNKNOWN, worst

    plan = load_plan(stack_name())
    seconds = parse_duration(within)
    if ailing := wait_until(lambda: health.ailing(plan), seconds, PAUSE_SECONDS, done=not_):
        is_known = worst(component.state for component in ailing) != UNKNOWN
        error = UnhealthyError if is_known else UnreachableError
        raise error("\n".join([f"not healthy within {within}:", *health.told(ailing)]))
