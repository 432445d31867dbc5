"""Machines that somebody else made; the environment lists them."""

import socket
from collections.abc import Iterator
from pathlib import Path

from millrace.common.errors import UnreachableError
from millrace.config import ENTRANCE
from millrace.plan import Plan
from millrace.plan.parts import MachinesPlan
from millrace.providers import HostControl, no_control, refuse

PREVIEWS = False
SSH_PORT = 22
ANSWER_SECONDS = 5


def check_machine(plan: Plan) -> str:
    refuse(list(_unreachable(plan)), UnreachableError)
    return f"this machine can enter the hosts of {plan.cluster}"


def _unreachable(plan: Plan) -> Iterator[str]:
    for host in plan.hosts_of(ENTRANCE) if plan.by_edge else plan.hosts:
        try:
            socket.create_connection((host.address, SSH_PORT), ANSWER_SECONDS).close()
        except OSError as error:
            yield f"{host.name} doesn't answer at {host.address}:{SSH_PORT}: {error}"


def user(plan: Plan) -> str:
    return _machines(plan).user


def key_file(plan: Plan) -> Path:
    return Path(_machines(plan).key)


def ssh_options(plan: Plan) -> tuple[str, ...]:
    return ()


def control(plan: Plan) -> HostControl:
    raise no_control(plan)


def _machines(plan: Plan) -> MachinesPlan:
    assert plan.machines, "every plan of this provider has them"
    return plan.machines
