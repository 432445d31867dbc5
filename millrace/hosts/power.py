"""Power, pulse and network of hosts, by whatever provides them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum

from millrace.common.errors import OperatorError
from millrace.plan import Host, Plan
from millrace.providers import provider_of


class Action(StrEnum):
    KILL = "kill"
    START = "start"
    FREEZE = "freeze"
    THAW = "thaw"
    PARTITION = "partition"
    REJOIN = "rejoin"


BREAK = (Action.KILL, Action.FREEZE, Action.PARTITION)  # the others undo these


def act(plan: Plan, action: Action, hosts: Sequence[Host]) -> None:
    """Does it to every host at once."""
    control = provider_of(plan).control(plan)
    with ThreadPoolExecutor(max_workers=len(hosts)) as pool:
        list(pool.map(getattr(control, action), hosts))


def named(plan: Plan, name: str) -> Host:
    """The host of that name. Raises OperatorError when the plan has none."""
    if name not in [host.name for host in plan.hosts]:
        raise OperatorError(
            f"{plan.environment} has no host '{name}'", "`millrace plan` lists its hosts"
        )
    return plan.host(name)
