"""Power, pulse and network of hosts, by whatever provides them."""

from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Protocol

from millrace.common.errors import OperatorError
from millrace.plan import Host, Plan


class Action(StrEnum):
    KILL = "kill"
    START = "start"
    FREEZE = "freeze"
    THAW = "thaw"
    PARTITION = "partition"
    REJOIN = "rejoin"


class Hosts(Protocol):
    """What a provider can do to one host. Each action may be repeated."""

    def kill(self, host: Host) -> None: ...
    def start(self, host: Host) -> None: ...
    def freeze(self, host: Host) -> None: ...
    def thaw(self, host: Host) -> None: ...
    def partition(self, host: Host) -> None: ...
    def rejoin(self, host: Host) -> None: ...


def act(plan: Plan, action: Action, names: list[str]) -> None:
    """Does it to every host at once. OperatorError for unknown hosts, before anything is done."""
    hosts = [named(plan, name) for name in names]
    provider = _provider(plan)
    with ThreadPoolExecutor(max_workers=len(hosts)) as pool:
        list(pool.map(getattr(provider, action), hosts))


def named(plan: Plan, name: str) -> Host:
    """The host of that name; OperatorError when the plan has none."""
    if name not in [host.name for host in plan.hosts]:
        raise OperatorError(
            f"{plan.environment} has no host '{name}'", "`millrace plan` lists its hosts"
        )
    return plan.host(name)


def _provider(plan: Plan) -> Hosts:
    if plan.provider != "docker":
        raise OperatorError(
            f"hosts of provider '{plan.provider}' can't be handled from here",
            "use the provider's own console; `millrace host` knows Docker hosts only",
        )
    from millrace.hosts.docker import DockerHosts

    return DockerHosts(plan)
