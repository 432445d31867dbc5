"""What commands and playbooks talk to, held against the edges of a plan. Pure but for its file."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from millrace.common.paths import CONFIGS
from millrace.config import ENTRANCE, OPERATOR, OUTSIDE, read_yaml, validate
from millrace.config import Model as Config
from millrace.plan.edges import SSH, Edge
from millrace.plan.model import Plan

FILE = CONFIGS / "reachability.yaml"
BY_SSH = "ssh"


class Step(Config):
    """``client`` is a component or one of `OUTSIDE`; ``to`` are ``service.port``, or ``ssh``."""

    step: str
    client: Annotated[str, Field(alias="from")]
    to: list[str] = Field(min_length=1)


class Reachability(Config):
    """``configs/reachability.yaml``."""

    steps: list[Step]


def load_steps() -> list[Step]:
    return validate(Reachability, read_yaml(FILE), FILE).steps


def missing(plan: Plan, step: Step) -> list[str]:
    """Yields what a step talks to and no edge allows; services that the plan doesn't run are left
    out."""
    return [target for target in step.to if not _is_allowed(plan, step.client, target)]


def _is_allowed(plan: Plan, client: str, target: str) -> bool:
    if target == BY_SSH:
        # Session Manager's agent, on the host itself, opens the connection.
        return plan.aws is not None or all(
            any(_lets_in(plan, name, host.group, SSH) for name in {client, *_names(plan, client)})
            for host in plan.hosts
        )
    service, _, port = target.partition(".")
    if service not in plan.services or client not in (*OUTSIDE, *plan.services):
        return True
    number = plan.services[service].ports[port]
    servers = {host.group for host in plan.hosts_of(service)}
    return all(
        _lets_in(plan, name, server, number) for name in _names(plan, client) for server in servers
    )


def _names(plan: Plan, client: str) -> Iterator[str]:
    """By which names the plan's edges know a client."""
    if client == OPERATOR and plan.by_edge:
        yield from {host.group for host in plan.hosts_of(ENTRANCE)}
    elif client in OUTSIDE:
        yield client
    else:
        yield from {host.group for host in plan.hosts_of(client)}


def _lets_in(plan: Plan, client: str, server: str, port: int) -> bool:
    def fits(edge: Edge) -> bool:
        ends = (edge.client, edge.server) == (client, server)
        return ends and edge.protocol == "tcp" and edge.first <= port <= edge.last

    return bool(plan.sources(client)) and any(fits(edge) for edge in plan.edges)
