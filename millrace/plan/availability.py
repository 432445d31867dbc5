"""What can't be highly available, and why: the planner's refusals, each naming its key."""

from collections import Counter
from collections.abc import Iterator, Mapping

from millrace.config import Component, Environment, Profile
from millrace.plan.addresses import group_stride, hosts_subnet
from millrace.plan.parts import CONTROLLER_ID_BASE, HOST_OVERHEAD, Host

# Services that decide by majority: an even count tolerates no more than the odd one below it.
QUORUM_SERVICES = ("zookeeper", "kafka_controller", "journalnode", "redis_sentinel")
# Services with an active and a standby.
PAIRED_SERVICES = (
    "namenode",
    "zkfc",
    "resourcemanager",
    "edge_proxy",
    "insight_api",
    "collector",
    "job_gateway",
)


def problems(
    environment: Environment, components: Mapping[str, Component], hosts: list[Host]
) -> Iterator[str]:
    """Yields every reason why one lost host or zone would stop a service."""
    yield from _network_problems(environment)
    yield from _placement_problems(environment, components)
    yield from _quorum_problems(environment, hosts)
    yield from _pair_problems(hosts)
    yield from _replication_problems(environment, hosts)
    for group in environment.groups:
        yield from _group_problems(group, environment, components)


def _network_problems(environment: Environment) -> Iterator[str]:
    most, why = CONTROLLER_ID_BASE - 1, "the numbers that brokers have"
    if environment.machines is None:
        subnet = hosts_subnet(environment, environment.zones[0])
        stride = group_stride(subnet)
        needed = (len(environment.groups) + 1) * stride
        if subnet.num_addresses <= needed:
            yield f"network.subnet: {subnet} is too small; {needed} addresses are needed"
        if stride <= most:
            most, why = stride - 1, "the addresses of a group"
    for name, group in environment.groups.items():
        if group.hosts > most:
            yield f"groups.{name}.hosts: {group.hosts} is over {most}, {why}"


def _placement_problems(
    environment: Environment, components: Mapping[str, Component]
) -> Iterator[str]:
    seen: dict[str, str] = {}
    places = {"every_host": environment.every_host} | {
        f"groups.{name}.services": group.services for name, group in environment.groups.items()
    }
    for key, services in places.items():
        for service in services:
            if service not in components:
                yield f"{key}: no component '{service}' in configs/components"
            if service in seen:
                yield f"{key}: {service} already stands in {seen[service]}"
            seen[service] = key


def _placed(hosts: list[Host], service: str) -> Counter[str]:
    """Zone → how many hosts of the service stand in it."""
    return Counter(host.zone for host in hosts if service in host.services)


def _quorum_problems(environment: Environment, hosts: list[Host]) -> Iterator[str]:
    for service in QUORUM_SERVICES:
        zones = _placed(hosts, service)
        members = zones.total()
        if not members:
            continue
        if members < 3 or members % 2 == 0:
            yield f"{service}: {members} members; a quorum needs an odd number, 3 or more"
        elif members - max(zones.values()) <= members // 2:
            yield (
                f"{service}: zone {zones.most_common(1)[0][0]} holds {max(zones.values())} of "
                f"{members} members; losing it loses the majority"
            )
    yield from _sentinel_problems(environment, hosts)


def _sentinel_problems(environment: Environment, hosts: list[Host]) -> Iterator[str]:
    sentinels = _placed(hosts, "redis_sentinel")
    quorum = environment.replication.sentinel_quorum
    if not sentinels:
        return
    if quorum > sentinels.total() - max(sentinels.values()):
        yield (
            f"replication.sentinel_quorum: {quorum} is out of reach when a zone is lost: only "
            f"{sentinels.total() - max(sentinels.values())} of {sentinels.total()} sentinels stay"
        )
    if quorum <= sentinels.total() // 2:
        yield (
            f"replication.sentinel_quorum: {quorum} of {sentinels.total()} is no majority; a "
            "minority could declare a healthy master dead"
        )


def _pair_problems(hosts: list[Host]) -> Iterator[str]:
    for service in PAIRED_SERVICES:
        zones = _placed(hosts, service)
        if zones and zones.total() < 2:
            yield f"{service}: 1 host; it needs a second one to fail over to"
        elif zones and len(zones) < 2:
            yield f"{service}: all hosts stand in zone {next(iter(zones))}"


def _replication_problems(environment: Environment, hosts: list[Host]) -> Iterator[str]:
    replication = environment.replication
    kafka = replication.kafka
    if kafka.min_insync >= kafka.factor:
        yield (
            f"replication.kafka.min_insync: {kafka.min_insync} with factor {kafka.factor} refuses "
            "every write as soon as one broker is away; it must be smaller"
        )
    if kafka.min_insync < 2:
        yield "replication.kafka.min_insync: 1 acknowledges events that a single disk holds"
    yield from _spread_problems("replication.kafka.factor", kafka.factor, hosts, "kafka_broker")
    yield from _spread_problems("replication.cassandra", replication.cassandra, hosts, "cassandra")
    yield from _spread_problems("replication.hdfs", replication.hdfs, hosts, "datanode")
    # min-replicas-to-write 1: a master that has lost its only replica stops taking writes.
    yield from _spread_problems("redis", 3, hosts, "redis")
    workers = _placed(hosts, "nodemanager")
    if workers and len(workers) < 2:
        yield f"nodemanager: all hosts stand in zone {next(iter(workers))}"


def _spread_problems(key: str, factor: int, hosts: list[Host], service: str) -> Iterator[str]:
    """A majority of every partition's replicas must outlive any zone."""
    zones = _placed(hosts, service)
    if not zones:
        return
    if factor < 3:
        yield f"{key}: {factor} replicas; with fewer than 3 no majority outlives a lost host"
    if factor > zones.total():
        yield f"{key}: {factor} replicas can't stand on {zones.total()} {service} hosts"
    elif factor > len(zones):
        yield (
            f"{key}: {factor} replicas in {len(zones)} zone(s) ({', '.join(sorted(zones))}); "
            "each replica needs a zone of its own"
        )


def _group_problems(
    name: str, environment: Environment, components: Mapping[str, Component]
) -> Iterator[str]:
    group, profile = environment.groups[name], environment.profile
    available = environment.memory(name)
    known = [service for service in environment.services(name) if service in components]
    used: dict[int, str] = {}
    needed = HOST_OVERHEAD
    for service in known:
        for port_name, port in components[service].ports.items():
            if port in used:
                yield f"groups.{name}: port {port} is {used[port]}'s and {service}.{port_name}'s"
            used[port] = f"{service}.{port_name}"
        memory = components[service].memory_at(profile)
        if memory is None:
            yield f"groups.{name}: {service}'s component file has no memory for profile '{profile}'"
            continue
        if memory.heap and memory.heap >= memory.total:
            yield (
                f"groups.{name}: {service}'s heap of {memory.heap} MiB leaves nothing of its "
                f"{memory.total} MiB"
            )
        needed += memory.total + _lent(components[service], profile)
    if needed > available:
        key = f"groups.{name}.{'instance' if group.instance else 'memory'}"
        of = f" of {group.instance}" if group.instance else ""
        yield f"{key}: {available} MiB{of}; its services need {needed} MiB"


def _lent(component: Component, profile: Profile) -> int:
    """MiB that a service lends to containers it starts beside itself."""
    setting = component.settings.get("yarn-site.xml", {}).get("yarn.nodemanager.resource.memory-mb")
    return setting.at(profile) if setting else 0
