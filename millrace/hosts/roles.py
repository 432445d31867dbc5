"""Which host has a role now. Asked of the service itself, so that a dead host doesn't matter."""

import json
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from millrace.cluster import kafka, probe, services, tunnel
from millrace.cluster.ssh import on_all, run_on
from millrace.cluster.zookeeper import drivers
from millrace.common.errors import NobodyError, OperatorError
from millrace.plan import CONTROLLER_ID_BASE, DATA_ROOT, Endpoint, Host, Plan
from millrace_shared.driver_record import DriverRecord

EXECUTOR = "YarnCoarseGrainedExecutorBackend"
TIMEOUT = 4  # s; a frozen service accepts the call and never answers


@dataclass(frozen=True)
class Holder:
    """The host that has a role; ``pids`` are processes there, for roles that are processes."""

    host: Host
    pids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Role:
    """``service`` is where the role can live, ``find`` looks for it; None when nobody has it."""

    service: str
    find: Callable[[Plan], Holder | None]


def holder(plan: Plan, name: str) -> Holder:
    """Finds the host that has the role now.

    Raises OperatorError for an unknown role, NobodyError when no host has it.
    """
    found = _role(name).find(plan)
    if found is None:
        raise NobodyError(f"no host is {name} now", "`millrace status` shows what is down")
    return found


def others(plan: Plan, name: str) -> list[Host]:
    """The hosts of the role's service that don't have the role."""
    has = holder(plan, name).host
    return [host for host in plan.hosts_of(_role(name).service) if host != has]


def _role(name: str) -> Role:
    if name not in ROLES:
        raise OperatorError(f"there is no role '{name}'", "one of: " + ", ".join(ROLES))
    return ROLES[name]


def _kafka_leader(plan: Plan) -> Holder | None:
    address = kafka.leader_address(plan, plan.names.kafka.topics.events, TIMEOUT)
    return _at(plan, "kafka_broker", address) if address else None


def _kafka_controller(plan: Plan) -> Holder | None:
    service = plan.services["kafka_controller"]
    # The quorum's own note; asking with Kafka's tool would cost seconds of a JVM.
    read = f"sudo cat {DATA_ROOT}/{service.unit}/{probe.QUORUM_STATE}"

    def state(host: Host) -> dict[str, int] | None:
        try:
            return json.loads(run_on(plan, host, read, timeout=TIMEOUT).stdout or "null")
        except subprocess.TimeoutExpired:
            return None

    leader = leader_id(on_all(plan.hosts_of("kafka_controller"), state).values())
    hosts = plan.hosts_of("kafka_controller")
    return next((Holder(h) for h in hosts if CONTROLLER_ID_BASE + h.index == leader), None)


def leader_id(states: Iterable[dict[str, int] | None]) -> int | None:
    """The leader in the newest epoch that any controller knows; None stands for a dead one.

    A controller that was cut off or has just come back still names the leader of an older epoch.
    """
    alive = [state for state in states if state]
    return max(alive, key=lambda state: state["leaderEpoch"])["leaderId"] if alive else None


def _reporting(
    service: str, port: str, ask: Callable[[Endpoint], str], role: str
) -> Callable[[Plan], Holder | None]:
    """Finds the host whose service says of itself that it has the role, as `status` asks it."""

    def find(plan: Plan) -> Holder | None:
        def says(host: Host) -> str | None:
            try:
                return ask(tunnel.on_host(plan, host, service, port))
            except (services.BadAnswer, OSError):  # dead, frozen or starting: it doesn't have it
                return None

        hosts = plan.hosts_of(service)
        answers = on_all(hosts, says)
        return next((Holder(host) for host in hosts if answers[host.name] == role), None)

    return find


def _redis_master(plan: Plan) -> Holder | None:
    """Takes the Sentinels' word: a master that was cut off still believes in itself."""
    # Half a second of CPU, which no other role needs: on a cluster in trouble, several seconds.
    from millrace.cluster import redis

    address = redis.master_address(plan)
    return _at(plan, "redis", address) if address else None


def _driver(state: str) -> Callable[[Plan], Holder | None]:
    def find(plan: Plan) -> Holder | None:
        driver = newest(_all_drivers(plan), state)
        if driver is None:
            return None
        return Holder(plan.host(driver.host), (driver.jvm, driver.python))

    return find


def _all_drivers(plan: Plan) -> Iterable[DriverRecord]:
    return chain.from_iterable(drivers(plan).values())


def newest(listed: Iterable[DriverRecord], state: str) -> DriverRecord | None:
    """The latest driver in a state: a frozen one stays listed until its session expires."""
    found = [driver for driver in listed if driver.state == state]
    return max(found, key=lambda driver: driver.since, default=None)


def _executor(plan: Plan) -> Holder | None:
    driver = newest(_all_drivers(plan), "leading")
    if driver is None:
        return None
    hosts = plan.hosts_of("nodemanager")
    found = on_all(hosts, lambda host: _containers_on(plan, host, driver.run))
    return busiest(
        (host, _executor_in(plan, host, container))
        for host in hosts
        for container in found[host.name]
    )


def busiest(executors: Iterable[tuple[Host, str]]) -> Holder | None:
    """Whose loss is felt: a batch of one task runs on one executor, and the others idle.

    Args:
        executors: hosts, each with lines of pids and seconds of CPU time.
    """
    used = [
        (int(seconds), Holder(host, (int(pid),)))
        for host, lines in executors
        for pid, seconds in map(str.split, lines.splitlines())
    ]
    return max(used, key=lambda one: one[0])[1] if used else None


def _containers_on(plan: Plan, host: Host, run: str) -> list[str]:
    """Returns an application's containers on a worker; none when the worker doesn't answer."""
    from millrace.cluster.yarn import containers  # as long as Redis's client

    return containers_of(containers(plan, host), run)


def containers_of(containers: Iterable[dict[str, Any]], run: str) -> list[str]:
    """Ids of an application's running containers among a NodeManager's; the driver's is one."""
    # container_1795252414868_0001_01_000002 belongs to application_1795252414868_0001; after a
    # ResourceManager's restart there is an epoch before it: container_e03_1795252414868_0001_…
    mine = f"_{run.removeprefix('application_')}_"
    ids = [c["id"] for c in containers if c["state"] == "RUNNING"]
    return [i for i in ids if mine in i]


def _executor_in(plan: Plan, host: Host, container: str) -> str:
    """The executor's JVM of a container, its pid and seconds of CPU time; nothing in a driver's,
    whatever its number is.

    Its command line names the container's log directory.
    """
    # Anchored, because the shell that started it has the same words further on.
    pattern = f"^/[^ ]*/java .*{container}.*{EXECUTOR}"
    return run_on(plan, host, f"pgrep -f '{pattern}' | xargs -r ps -o pid=,cputimes= -p").stdout


def _at(plan: Plan, service: str, address: str) -> Holder | None:
    return next((Holder(h) for h in plan.hosts_of(service) if h.address == address), None)


ROLES = {
    "kafka-leader": Role("kafka_broker", _kafka_leader),
    "kafka-controller": Role("kafka_controller", _kafka_controller),
    "zookeeper-leader": Role(
        "zookeeper", _reporting("zookeeper", "client", services.zookeeper_mode, "leader")
    ),
    "namenode": Role(
        "namenode", _reporting("namenode", "http", lambda at: services.namenode(at).role, "active")
    ),
    "resourcemanager": Role(
        "resourcemanager",
        _reporting(
            "resourcemanager", "http", lambda at: services.resourcemanager(at).role, "active"
        ),
    ),
    "redis-master": Role("redis", _redis_master),
    "driver": Role("nodemanager", _driver("leading")),
    "standby-driver": Role("nodemanager", _driver("standby")),
    "executor": Role("nodemanager", _executor),
}
