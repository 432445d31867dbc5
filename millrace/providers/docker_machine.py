"""Can this machine hold the plan's cluster? Observing is apart from judging."""

import os
import shutil
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

import docker
from docker.errors import DockerException

from millrace.common.errors import OperatorError
from millrace.common.paths import CACHE
from millrace.plan import Plan

# MiB: unpacked distributions, logs and data. Measured on average: 290 when the test suite is
# through, 390 after an hour of drills at 2,000 events/s.
DISK_PER_HOST = 512


@dataclass(frozen=True)
class Machine:
    """What was seen. Memory and disk in MiB; ``routes`` are the machine's other networks."""

    memory_available: int
    disk_available: int
    docker_root: str
    running_hosts: frozenset[str] = frozenset()
    other_clusters: frozenset[str] = frozenset()
    routes: tuple[tuple[IPv4Network, str], ...] = field(default=())


def problems(plan: Plan, machine: Machine) -> list[str]:
    """Why the plan doesn't fit on the machine, with numbers; empty when it does."""
    missing = [host for host in plan.hosts if host.name not in machine.running_hosts]
    found = []
    memory = sum(plan.planned_memory(host) for host in missing)
    memory += plan.applications_memory if missing else 0
    if memory > machine.memory_available:
        found.append(
            f"memory: {len(missing)} hosts of {plan.cluster} need {memory:,} MiB, "
            f"{machine.memory_available:,} MiB are available{_others(machine)}"
        )
    disk = DISK_PER_HOST * len(missing)
    if disk > machine.disk_available:
        found.append(
            f"disk: {len(missing)} hosts need {disk:,} MiB under {machine.docker_root}, "
            f"{machine.disk_available:,} MiB are free"
        )
    subnet = IPv4Network(plan.network.subnet)
    found += [
        f"network: subnet {subnet} overlaps {network} on interface {interface}"
        for network, interface in machine.routes
        if network.overlaps(subnet)
    ]
    return found


def _others(machine: Machine) -> str:
    if not machine.other_clusters:
        return ""
    names = ", ".join(sorted(machine.other_clusters))
    return f"; these clusters run beside it: {names} (`make down` removes one, data volumes stay)"


def observe(plan: Plan) -> Machine:
    """This machine, as the Docker engine and the kernel tell it."""
    try:
        client = docker.from_env()
        containers = client.containers.list(filters={"label": "millrace.cluster"})
        root = client.info()["DockerRootDir"]
        bridge = _bridge(client, plan.cluster)
    except DockerException as error:
        raise OperatorError(
            f"the Docker engine doesn't answer: {error}", "`make up` starts one, or start yours"
        ) from None
    clusters = {container.labels["millrace.cluster"] for container in containers}
    return Machine(
        memory_available=_memory_available(),
        disk_available=shutil.disk_usage(root if Path(root).exists() else CACHE).free >> 20,
        docker_root=root,
        running_hosts=frozenset(
            container.labels.get("millrace.host", "")
            for container in containers
            if container.labels["millrace.cluster"] == plan.cluster
        ),
        other_clusters=frozenset(clusters - {plan.cluster}),
        routes=tuple(r for r in _routes() if r[1] != bridge),
    )


def _bridge(client: docker.DockerClient, cluster: str) -> str:
    """The interface of the cluster's own network, which may of course have its subnet."""
    for network in client.networks.list(names=[cluster]):
        if network.name == cluster:
            return f"br-{network.id[:12]}"
    return ""


def _memory_available() -> int:
    """MiB that new processes may take without swapping, as the kernel estimates it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) >> 10
    return (os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) >> 20


def _routes() -> list[tuple[IPv4Network, str]]:
    """Directly connected networks and static routes; the default route overlaps with nothing."""
    routes = []
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        interface, destination, _, _, _, _, _, mask, *_ = line.split()
        network = IPv4Network((_little_endian(destination), _bits(mask)))
        if network.prefixlen:
            routes.append((network, interface))
    return routes


def _little_endian(word: str) -> int:
    return int.from_bytes(bytes.fromhex(word), "little")


def _bits(mask: str) -> int:
    return _little_endian(mask).bit_count()
