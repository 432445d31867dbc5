"""A plan's part for AWS: subnets, instances and disks. Pure.

The components in `infra/aws` declare what stands here, one resource for each entry.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network

from millrace.config import (
    OPERATOR,
    PRODUCERS,
    READERS,
    THIS_MACHINE,
    Aws,
    Component,
    Disk,
    Environment,
    Image,
    SignIn,
    State,
)
from millrace.plan.capacity import Load, load_assumptions, size
from millrace.plan.edges import edges
from millrace.plan.parts import Host, Model, TopicPlan

# A VPC is cut into eight equal subnets: private ones from the front, public ones from the middle.
SUBNET_BITS = 3
PUBLIC_SUBNETS = 4
MOST_ZONES = 4
# Netmasks of a VPC (Amazon VPC User Guide, "VPC CIDR blocks"), less what its subnets need.
WIDEST, NARROWEST = 16, 22
PRIVATE_RANGES = [IPv4Network(r) for r in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
# Inbound rules of a security group, the default quota (Amazon VPC User Guide, "Amazon VPC quotas").
MOST_RULES = 60
# Names: a load balancer takes 32 characters, and `-edge` follows the cluster's name.
MOST_NAME = 27
# Recommended names of further volumes (EC2 User Guide, "Device names for volumes").
DEVICES = [f"/dev/sd{letter}" for letter in "fghijklmnop"]
# Running instances of a spread placement group in a zone (EC2 User Guide, "Placement strategies").
MOST_SPREAD = 7
# Services that hosts call by endpoints in the VPC: they are entered without a way in from outside,
# and their logs leave by no NAT gateway, which costs by the byte.
ENDPOINTS = ("ssm", "ssmmessages", "ec2messages", "logs")
GIB = 2**30
# Of a root disk, beside what services keep there: Debian, the distributions that run and those
# before, the journal and all logs at their bounds.
SYSTEM_GIB = 10
# What services keep on it that have no disk of their own: service → the setting that bounds it.
ON_ROOT = {"prometheus_server": ("flags", "storage.tsdb.retention.size")}
# Prometheus documentation, Storage: powers of 1,024, whatever they are called.
UNITS = {"MB": 2**20, "GB": 2**30}
# Clients that come by way of the load balancer.
BALANCED = (READERS, PRODUCERS)


class Subnet(Model):
    zone: str
    availability_zone: str
    cidr: str
    public: bool

    @property
    def name(self) -> str:
        return f"{'public' if self.public else 'private'}-{self.zone}"


class VolumePlan(Model):
    """A data volume of the plan as a disk; ``device`` is where its host sees it attached."""

    host: str
    device: str
    disk: Disk


class AwsPlan(Model):
    """``instances`` and ``volumes`` by the name of host and volume, ``placements`` by that of a
    host: hosts with the same one share no rack.

    ``vcpus`` are those of all instances. ``state`` is there once the account is known.
    ``log_group`` is where hosts' logs go.
    """

    account: str | None
    state: State | None
    region: str
    image: Image
    architecture: str
    subnets: list[Subnet]
    nat: list[str]  # zones with a NAT gateway
    instances: dict[str, str]
    placements: dict[str, str]
    vcpus: int
    root_disk: Disk
    volumes: dict[str, VolumePlan]
    certificate: str | None
    sign_in: SignIn | None
    log_group: str

    @property
    def disk_gibibytes(self) -> int:
        """Returns the size of all gp3 volumes together."""
        data = sum(volume.disk.size for volume in self.volumes.values())
        return data + self.root_disk.size * len(self.instances)

    def subnet(self, zone: str, *, public: bool = False) -> Subnet:
        return next(s for s in self.subnets if s.zone == zone and s.public == public)

    def nat_of(self, zone: str) -> str:
        """The zone whose NAT gateway a zone's hosts go out by."""
        return zone if zone in self.nat else self.nat[0]


def plan_aws(
    cluster: str,
    environment: Environment,
    components: Mapping[str, Component],
    hosts: list[Host],
) -> AwsPlan | None:
    """Returns the plan's part for AWS; None for an environment elsewhere.

    What it takes has passed `problems`.
    """
    aws = environment.aws
    if aws is None:
        return None
    types = {name: group.instance or "" for name, group in environment.groups.items()}
    used = {aws.instance_types[name].architecture for name in types.values()}
    return AwsPlan(
        account=aws.account,
        state=shared_state(aws),
        region=aws.region,
        image=aws.image,
        architecture=used.pop(),
        subnets=list(subnets(environment)),
        nat=environment.zones if aws.nat == "zonal" else environment.zones[:1],
        instances={host.name: types[host.group] for host in hosts},
        placements={host.name: _placement(environment, host) for host in hosts},
        vcpus=sum(aws.instance_types[types[host.group]].vcpus for host in hosts),
        root_disk=aws.root_disk,
        volumes=dict(_volumes(aws, components, hosts)),
        certificate=aws.certificate,
        sign_in=aws.sign_in,
        log_group=f"/{cluster}/hosts",
    )


def shared_state(aws: Aws) -> State | None:
    if aws.account is None:
        return None
    known = {"account": aws.account, "region": aws.region}
    return State(
        backend=aws.state.backend.format(**known), secrets=aws.state.secrets.format(**known)
    )


def private_subnet(environment: Environment, zone: str) -> IPv4Network:
    """Returns the subnet that a zone's hosts are in."""
    return _blocks(environment)[environment.zones.index(zone)]


def subnets(environment: Environment) -> Iterator[Subnet]:
    assert environment.aws
    for public in (False, True):
        for number, zone in enumerate(environment.zones):
            yield Subnet(
                zone=zone,
                availability_zone=environment.aws.zones[zone],
                cidr=str(_blocks(environment)[number + PUBLIC_SUBNETS * public]),
                public=public,
            )


def problems(
    environment: Environment,
    components: Mapping[str, Component],
    hosts: list[Host],
    topics: Mapping[str, TopicPlan],
    events: str,
    cluster: str,
) -> Iterator[str]:
    """Says why AWS would refuse the environment, or its disks couldn't hold what it keeps.

    ``events`` is the topic that the environment's load goes to.
    """
    aws = environment.aws
    if aws is None:
        return
    if len(cluster) > MOST_NAME:
        yield f"{cluster}: names on AWS leave a cluster {MOST_NAME} characters"
    yield from _zone_problems(environment, aws)
    yield from _image_problems(environment, aws)
    needed = {s for host in hosts for s in host.services if components[s].data}
    for service in sorted(needed - aws.disks.keys()):
        yield f"aws.disks: none for {service}, which keeps data"
    for service in sorted(aws.disks.keys() - needed):
        yield f"aws.disks.{service}: no service of that name keeps data here"
    rules: dict[str, int] = defaultdict(int)
    outside = environment.network.outside
    ranges = {OPERATOR: len(outside.operator), THIS_MACHINE: 0}
    for edge in edges(environment, components):
        rules[edge.server] += ranges.get(edge.client, 1)
    for group, count in rules.items():
        if count > MOST_RULES:
            yield f"groups.{group}: {count} security rules; a security group takes {MOST_RULES}"
    yield from _root_problems(environment, aws, components)
    yield from _capacity_problems(environment, aws, topics, events)


def _root_problems(
    environment: Environment, aws: Aws, components: Mapping[str, Component]
) -> Iterator[str]:
    """Root disks that what services keep there would fill: a full one stops the whole host."""
    fill = load_assumptions()["disk_fill"]
    room = aws.root_disk.size * fill
    for name in environment.groups:
        kept = {
            service: _size(components[service].settings[file][key].at(environment.profile))
            for service, (file, key) in ON_ROOT.items()
            if service in environment.services(name)
        }
        if SYSTEM_GIB + sum(kept.values()) > room:
            shown = "".join(f", {service} {size:g}" for service, size in kept.items())
            yield (
                f"aws.root_disk.size: {aws.root_disk.size} GiB; on hosts of {name} the system takes"
                f" {SYSTEM_GIB}{shown}, and {fill:.0%} of the disk are {room:g} GiB"
            )


def _size(text: str) -> float:
    """Returns GiB of what Prometheus writes as ``512MB``."""
    return int(text[:-2]) * UNITS[text[-2:]] / GIB


def _blocks(environment: Environment) -> list[IPv4Network]:
    return list(environment.network.subnet.subnets(prefixlen_diff=SUBNET_BITS))


def _volumes(
    aws: Aws, components: Mapping[str, Component], hosts: list[Host]
) -> Iterator[tuple[str, VolumePlan]]:
    for host in hosts:
        services = [service for service in host.services if components[service].data]
        for device, service, volume in zip(DEVICES, services, host.volumes, strict=False):
            disk = aws.disks[service]
            yield volume.name, VolumePlan(host=host.name, device=device, disk=disk)


def _placement(environment: Environment, host: Host) -> str:
    """Hosts are dealt to the zones in turn. Those for whom a group has no place get another one, as
    AWS advises; no host that is there would have to leave its own."""
    number = (host.index - 1) // (MOST_SPREAD * len(environment.zones)) + 1
    return f"{host.group}-spread-{number}"


def subnet_problems(environment: Environment) -> Iterator[str]:
    """Says why the network can't be cut into the zones' subnets: then no host has an address."""
    if environment.aws is None:
        return
    subnet = environment.network.subnet
    if not WIDEST <= subnet.prefixlen <= NARROWEST:
        yield f"network.subnet: {subnet}; a VPC with {2**SUBNET_BITS} subnets is /16 to /22"
    if not any(subnet.subnet_of(private) for private in PRIVATE_RANGES):
        yield f"network.subnet: {subnet} isn't private (RFC 1918); its hosts couldn't reach others"
    if not 3 <= len(environment.zones) <= MOST_ZONES:
        yield f"zones: {len(environment.zones)}; 3 or {MOST_ZONES} are needed on AWS"


def _zone_problems(environment: Environment, aws: Aws) -> Iterator[str]:
    if missing := set(environment.zones) - aws.zones.keys():
        yield f"aws.zones: no availability zone for {', '.join(sorted(missing))}"
    used = [aws.zones[zone] for zone in environment.zones if zone in aws.zones]
    if len(set(used)) != len(used):
        yield f"aws.zones: {', '.join(used)}; two zones in one place are lost together"
    for zone in used:
        if not zone.startswith(aws.region):
            yield f"aws.zones: {zone} isn't in {aws.region}"


def _image_problems(environment: Environment, aws: Aws) -> Iterator[str]:
    used: dict[str, list[str]] = defaultdict(list)
    for group in environment.groups.values():
        if group.instance in aws.instance_types:
            used[aws.instance_types[group.instance].architecture].append(group.instance)
    if len(used) > 1:
        shown = "; ".join(f"{arch}: {', '.join(types)}" for arch, types in used.items())
        yield f"groups: one image can't start two architectures ({shown})"


def _capacity_problems(
    environment: Environment, aws: Aws, topics: Mapping[str, TopicPlan], events: str
) -> Iterator[str]:
    """Brokers and their disks against what topics keep and the load that is promised."""
    service = "kafka_broker"
    brokers = sum(g.hosts for g in environment.groups.values() if service in g.services)
    if not brokers or service not in aws.disks:
        return
    assume = load_assumptions()
    kept = _kept(topics) / brokers
    room = aws.disks[service].size * GIB * assume["disk_fill"]
    if kept > room:
        yield (
            f"aws.disks.{service}.size: topics may keep {kept / GIB:,.0f} GiB on each broker, "
            f"{assume['disk_fill']:.0%} of its disk are {room / GIB:,.0f} GiB"
        )
    if environment.load is None:
        return
    load = Load(**environment.load.model_dump(), replication=environment.replication.kafka.factor)
    needed = size(load, assume)
    if brokers < needed.brokers:
        yield f"load: needs {needed.brokers} brokers, there are {brokers}"
    topic = topics[events]
    if topic.partitions < needed.partitions:
        yield f"load: needs {needed.partitions} partitions, topic {events} has {topic.partitions}"
    bound = int(topic.config["retention.bytes"]) * topic.partitions * topic.replication
    if bound < needed.raw:
        yield (
            f"load: {load.retention_days:g} days are {needed.raw / GIB:,.0f} GiB; topic {events} "
            f"keeps {bound / GIB:,.0f} GiB (retention.bytes)"
        )


def _kept(topics: Mapping[str, TopicPlan]) -> int:
    """Bytes that all topics' replicas may take; those that are only compacted have no bound."""
    return sum(
        int(topic.config["retention.bytes"]) * topic.partitions * topic.replication
        for topic in topics.values()
        if "retention.bytes" in topic.config
    )
