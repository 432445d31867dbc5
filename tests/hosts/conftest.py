"""Testinfra hosts of the running cluster, found through the plan of stack ``$MILLRACE_STACK``."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import httpx
import pytest
import testinfra
from testinfra.host import Host as Connection

from millrace.cluster import doors, tunnel
from millrace.cluster.access import HOST_KEYS, way_in
from millrace.common.paths import stack_name, stack_state
from millrace.plan import Plan, load_plan
from tests.waiting import PATIENCE_SECONDS

SSH = " ".join((*HOST_KEYS, "-o", "LogLevel=ERROR"))
# One connection for each host, however many questions it is asked.
SHARED = "-o ControlMaster=auto -o ControlPersist=60s -o ControlPath=~/.ssh/millrace-%C"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@cache
def _connect(name: str) -> Connection:
    plan = load_plan(stack_name())
    tunnel.enter(plan)
    (Path.home() / ".ssh").mkdir(mode=0o700, exist_ok=True)
    way = shlex.join(way_in(plan, plan.host(name)))
    return testinfra.get_host(
        f"ssh://millrace@{plan.host(name).address}",
        ssh_identity_file=str(stack_state(plan.environment) / "ssh_key"),
        ssh_extra_args=f"{SSH} {SHARED} {way}",
        sudo=True,
    )


@pytest.fixture(scope="session")
def plan() -> Plan:
    return load_plan(stack_name())


@pytest.fixture(scope="session")
def host_named() -> Callable[[str], Connection]:
    """The connection to a host of the plan."""
    return _connect


@pytest.fixture(scope="session")
def hosts_of(plan: Plan) -> Callable[[str], dict[str, Connection]]:
    """Host name → connection, of every host that runs a service."""
    return lambda service: {host.name: _connect(host.name) for host in plan.hosts_of(service)}


@pytest.fixture(scope="session")
def through(plan: Plan) -> Iterator[Callable[[str, str], httpx.Client]]:
    """A client of a door of a host, as the toolkit goes in: `through("edge-1", "own_insights")`."""
    access = doors.credentials(plan)

    @cache
    def client(host: str, door: str) -> httpx.Client:
        at = tunnel.on_host(plan, plan.host(host), doors.SERVICE, door)
        return stack.enter_context(
            httpx.Client(
                base_url=f"https://{at}",
                verify=access.context,
                headers=access.headers,
                timeout=PATIENCE_SECONDS,
            )
        )

    with ExitStack() as stack:
        yield client
