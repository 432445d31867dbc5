"""Models of everything under ``configs/``, and a loader whose refusals name file and key."""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from millrace.common.errors import NOTHING_CHANGED, OperatorError, Problems
from millrace.common.parsing import parse_yaml
from millrace.common.paths import CONFIGS

Profile = Literal["small", "standard", "large"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
Scalar = bool | int | float | str
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=32)]
ReceiverKind = Annotated[str, Field(pattern=r"^(webhook|email|pagerduty|slack)_configs$")]
ModelT = TypeVar("ModelT", bound=BaseModel)
Port = Annotated[int, Field(ge=1, le=65535)]
TopicName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]+$", max_length=249)]
ZnodePath = Annotated[str, Field(pattern=r"^(/[a-z0-9_-]+)+$")]

# Clients that are no service: people and programs outside the cluster, known by their addresses.
OPERATOR, PRODUCERS, READERS = "operator", "producers", "readers"
OUTSIDE = (OPERATOR, PRODUCERS, READERS)
# By whose hosts operators come in, where they may enter no others: the tools are there anyway.
ENTRANCE = "job_gateway"
# Who gets metrics.
MONITOR = "prometheus_server"
# What firmware and kernel leave of an instance's nominal memory. /proc/meminfo of EC2 instances
# shows 3 to 6 % less than the type's name promises; measure yours with `millrace preflight`.
USABLE_MEMORY = 0.93


def absent(part: Any) -> bool:
    """Of what isn't in every plan: then it is in neither the plan nor its digest."""
    return part is None


class Model(BaseModel):
    """Strict: an unknown key or ``"3"`` where 3 is meant is a mistake worth stopping for."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Setting(Model):
    """One tuned value with the reason it isn't the default; ``value`` may differ per profile."""

    value: Scalar | list[Scalar] | dict[Profile, Scalar]
    why: str = Field(min_length=10)
    source: str = Field(min_length=3)

    def at(self, profile: Profile) -> Any:
        """The value under a profile; the nearest smaller profile answers where one isn't given."""
        if not isinstance(self.value, dict):
            return self.value
        for name in reversed(PROFILES[: PROFILES.index(profile) + 1]):
            if name in self.value:
                return self.value[name]
        return self.value[next(name for name in PROFILES if name in self.value)]


class JvmFlag(Model):
    """A JVM flag; without ``profiles`` it goes to every one. In one that all services have,
    ``{data}`` and ``{logs}`` stand for the folders of each."""

    value: str = Field(pattern=r"^-")
    why: str = Field(min_length=10)
    source: str = Field(min_length=3)
    profiles: list[Profile] = [*PROFILES]


class Memory(Model):
    """MiB. ``heap`` is a JVM's -Xmx (null: no JVM); ``total`` is the resident size planned for."""

    heap: PositiveInt | None = None
    total: PositiveInt


class Metrics(Model):
    """Where Prometheus gets a service's figures: which of its ports, and the path."""

    port: Name
    path: str = Field(default="/metrics", pattern=r"^/")


class PortRange(Model):
    first: Port
    last: Port


class Component(Model):
    """``configs/components/<name>.yaml``: one service, or settings that services share.

    ``clients`` says for each port which services talk to it (none: only its own host does), and who
    of `OUTSIDE`. What isn't said there, no host lets in. ``udp`` are ports called that way, too.
    """

    summary: str
    distribution: str | None = None
    package: str | None = None
    user: str | None = None
    data: bool = False
    ports: dict[Name, Port] = {}
    port_ranges: dict[Name, PortRange] = {}
    clients: dict[Name, list[Name]] = {}
    udp: list[Name] = []
    metrics: Metrics | None = None
    memory: dict[Profile, Memory] = {}
    jvm: list[JvmFlag] = []
    settings: dict[str, dict[str, Setting]] = {}

    @model_validator(mode="after")
    def _every_port_has_its_clients(self) -> Self:
        ports = self.ports.keys() | self.port_ranges.keys()
        if self.clients.keys() != ports:
            differ = ", ".join(sorted(self.clients.keys() ^ ports))
            raise ValueError(f"clients: each port needs its list, and nothing else: {differ}")
        if unknown := set(self.udp) - ports:
            raise ValueError(f"udp: no such port: {', '.join(sorted(unknown))}")
        return self

    @model_validator(mode="after")
    def _prometheus_may_ask(self) -> Self:
        if self.metrics and not {MONITOR, READERS} & {*self.clients.get(self.metrics.port, [])}:
            raise ValueError(f"clients.{self.metrics.port}: {MONITOR} is to get metrics there")
        return self

    def memory_at(self, profile: Profile) -> Memory | None:
        return self.memory.get(profile)


class CassandraNames(Model):
    datacenter: Name
    keyspace: Name


class RedisNames(Model):
    master: Name
    live_stream: str


class TopicNames(Model):
    """The name of each topic, by the part that it plays."""

    events: TopicName
    dead_letters: TopicName
    results: TopicName
    replay_progress: TopicName


class KafkaNames(Model):
    """``topics`` are those that Millrace needs, ``stream_topics`` those of further streams."""

    topics: TopicNames
    stream_topics: dict[Name, TopicName] = {}
    group_prefix: TopicName

    @property
    def parts(self) -> dict[str, str]:
        """The name of every topic, by the part that it plays."""
        return self.topics.model_dump() | self.stream_topics

    @model_validator(mode="after")
    def _no_topic_plays_two_parts(self) -> Self:
        if twice := self.stream_topics.keys() & TopicNames.model_fields.keys():
            raise ValueError(f"stream_topics: {', '.join(sorted(twice))} stands in topics")
        names = self.parts.values()
        if len(set(names)) != len(names):
            raise ValueError("a name stands twice in topics")
        return self


class ZookeeperNames(Model):
    """Absolute paths of znodes."""

    gateway_lock: ZnodePath
    applications: ZnodePath
    jobs: ZnodePath
    upkeep: ZnodePath


class HdfsNames(Model):
    nameservice: Name
    user: Name


class Names(Model):
    """``configs/names.yaml``: what several programs have to call the same."""

    cassandra: CassandraNames
    redis: RedisNames
    kafka: KafkaNames
    zookeeper: ZookeeperNames
    hdfs: HdfsNames

    def consumer_group(self, job: str) -> str:
        """The consumer group of a job, and its transactional id."""
        return f"{self.kafka.group_prefix}{job}"


class Topic(Model):
    """A Kafka topic: partitions per profile, and its tuned configuration."""

    summary: str
    partitions: dict[Profile, PositiveInt]
    config: dict[str, Setting] = {}


class Events(Model):
    """``configs/components/events.yaml``: topics by their part; the longest line that is sent."""

    summary: str
    topics: dict[str, Topic]
    limits: dict[str, Setting] = {}

    def problems(self, kafka: KafkaNames, profile: Profile) -> Iterator[str]:
        """Why there are no such topics: a part that has no name, or no partitions."""
        if differ := self.topics.keys() ^ kafka.parts.keys():
            yield (
                "topics: each part of kafka.topics and kafka.stream_topics in names.yaml, and"
                f" nothing else: {', '.join(sorted(differ))}"
            )
        for part, topic in self.topics.items():
            if profile not in topic.partitions:
                yield f"topics.{part}.partitions: none for profile {profile}"


class Group(Model):
    """Hosts of one kind: ``memory`` is MiB of one host, or its ``instance`` type says it.

    ``cpu_weight`` counts where hosts are containers that share one machine's cores: while they are
    busy, a host with 4 gets four times as much as one with 1.
    """

    hosts: PositiveInt
    memory: PositiveInt | None = None
    cpu_weight: PositiveInt = 1
    instance: str | None = None
    services: list[Name] = Field(min_length=1)

    @field_validator("services")
    @classmethod
    def _once(cls, services: list[str]) -> list[str]:
        if len(set(services)) != len(services):
            raise ValueError("a service stands twice in the list")
        return services


class Outside(Model):
    """Where those come from who are no host of the cluster, as CIDRs. Nobody, unless it is said."""

    operator: list[Annotated[IPv4Network, Field(strict=False)]] = []
    producers: list[Annotated[IPv4Network, Field(strict=False)]] = []
    readers: list[Annotated[IPv4Network, Field(strict=False)]] = []


class Network(Model):
    """``way_in``: whether operators call the hosts straight, or enter an edge host by SSH and call
    the others from there."""

    subnet: IPv4Network = Field(strict=False)
    outside: Outside = Outside()
    way_in: Literal["straight", "edge"] = "straight"


class KafkaReplication(Model):
    factor: PositiveInt
    min_insync: PositiveInt


class Replication(Model):
    kafka: KafkaReplication
    cassandra: PositiveInt
    hdfs: PositiveInt
    sentinel_quorum: PositiveInt


class InstanceType(Model):
    """``memory`` is its nominal MiB."""

    memory: PositiveInt
    vcpus: PositiveInt
    architecture: Literal["x86_64", "arm64"]


# What each gp3 volume has for its price (EBS User Guide, "General Purpose SSD volumes").
INCLUDED_IOPS = 3000
INCLUDED_THROUGHPUT = 125  # MiB/s


class Disk(Model):
    """A gp3 volume. ``size`` GiB, ``iops`` per second, ``throughput`` MiB/s.

    The bounds are those of the EBS User Guide, "General Purpose SSD volumes".
    """

    size: int = Field(ge=1, le=16384)
    iops: int = Field(default=INCLUDED_IOPS, ge=INCLUDED_IOPS, le=16000)
    throughput: int = Field(default=INCLUDED_THROUGHPUT, ge=INCLUDED_THROUGHPUT, le=1000)

    @model_validator(mode="after")
    def _in_proportion(self) -> Self:
        if self.iops > max(3000, 500 * self.size):
            raise ValueError(f"{self.iops} IOPS need {-(-self.iops // 500)} GiB: 500 for each GiB")
        if self.throughput > self.iops / 4:
            raise ValueError(f"{self.throughput} MiB/s need {4 * self.throughput} IOPS: 4 for each")
        return self


class Image(Model):
    """A machine image: its owner's account and exact name, or the ``id`` of one of your own."""

    owner: str = Field(pattern=r"^(\d{12}|self)$")
    name: str
    id: str | None = Field(default=None, pattern=r"^ami-[0-9a-f]+$")


class State(Model):
    """Where operators share Pulumi's state, and what encrypts its secrets.

    URLs, as Pulumi has them. In both, ``{account}`` and ``{region}`` stand for themselves.
    """

    backend: str
    secrets: str


class Aws(Model):
    """Where on AWS; ``configs/aws.yaml`` says it for all, an environment may differ."""

    account: str | None = Field(default=None, pattern=r"^\d{12}$")
    state: State
    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")
    zones: dict[Name, str]
    image: Image
    instance_types: dict[str, InstanceType]
    root_disk: Disk
    disks: dict[Name, Disk]
    nat: Literal["shared", "zonal"]
    certificate: str | None = Field(default=None, pattern=r"^arn:aws[a-z-]*:acm:")


class Machine(Model):
    """A machine that exists already."""

    address: IPv4Address = Field(strict=False)
    zone: Name


class Machines(Model):
    """Hosts that somebody else makes: how to enter them, and where they find the artifacts."""

    user: str
    key: str  # the private key's file; relative to the repository
    artifacts: str = Field(pattern=r"^https?://.*[^/]$")
    hosts: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")], Machine]


class TargetLoad(Model):
    """What an environment is sized for: a day's mean rate, bytes of one event, days kept."""

    events_per_second: PositiveInt
    bytes: PositiveInt
    retention_days: float = Field(gt=0, strict=False)


class CollectorKey(Model):
    """What a key for sending events may do; the key itself is a file of the operator's machine."""

    events_per_second: PositiveInt


class Environment(Model):
    """``configs/environments/<name>.yaml``: what runs where.

    ``every_host`` are services that each host of each group runs, besides those of its group.
    ``receiver`` is who is told of alerts, in Alertmanager's words; nobody, if it is empty.
    ``collector_keys`` are those of who may send events over HTTP; nobody, if it is empty.
    """

    summary: str
    provider: Literal["docker", "aws", "static"]
    profile: Profile
    extends: str | None = None
    drills: bool = False
    load: TargetLoad | None = None
    network: Network
    zones: list[Name] = Field(min_length=1)
    groups: dict[Name, Group] = Field(min_length=1)
    every_host: list[Name] = []
    replication: Replication
    applications: dict[Name, list[Name]] = {}
    receiver: dict[ReceiverKind, list[dict[str, Any]]] = {}
    collector_keys: dict[Name, CollectorKey] = {}
    job_folders: list[str] = []
    aws: Aws | None = None
    machines: Machines | None = None

    @field_validator("zones")
    @classmethod
    def _distinct(cls, zones: list[str]) -> list[str]:
        if len(set(zones)) != len(zones):
            raise ValueError("a zone stands twice in the list")
        return zones

    @model_validator(mode="after")
    def _provider_has_its_section(self) -> Self:
        if (self.aws is not None) != (self.provider == "aws"):
            raise ValueError("aws: belongs to provider aws, which needs it")
        if (self.machines is not None) != (self.provider == "static"):
            raise ValueError("machines: belongs to provider static, which needs it")
        return self

    @model_validator(mode="after")
    def _every_group_has_its_memory(self) -> Self:
        for name, group in self.groups.items():
            if self.aws is None and (group.memory is None or group.instance):
                raise ValueError(f"groups.{name}: needs memory; an instance type is for AWS")
            if self.aws and (group.memory or group.instance not in self.aws.instance_types):
                known = ", ".join(self.aws.instance_types)
                raise ValueError(
                    f"groups.{name}: needs an instance type of configs/aws.yaml: {known}"
                )
        return self

    def services(self, group: str) -> list[str]:
        """What each host of a group runs."""
        return [*self.groups[group].services, *self.every_host]

    def memory(self, group: str) -> int:
        """MiB that one host of a group has for its processes."""
        settings = self.groups[group]
        if self.aws and settings.instance:
            return int(self.aws.instance_types[settings.instance].memory * USABLE_MEMORY)
        assert settings.memory  # validated above
        return settings.memory


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; refused with file, line and reason when it isn't one."""
    try:
        content = parse_yaml(path.read_text())
    except FileNotFoundError:
        raise OperatorError(f"{_shown(path)}: no such file") from None
    except yaml.YAMLError as error:
        raise OperatorError(f"{_shown(path)}: not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise OperatorError(f"{_shown(path)}: expected a mapping of keys at the top")
    return content


def validate(model: type[ModelT], content: dict[str, Any], path: Path) -> ModelT:
    """``content`` as ``model``, or an error that lists each bad key of the file."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = [
            ": ".join(filter(None, (_shown(path), ".".join(map(str, e["loc"])), e["msg"])))
            for e in error.errors()
        ]
        raise OperatorError("\n".join(problems), NOTHING_CHANGED) from None


def load_environment(name: str, configs: Path = CONFIGS) -> Environment:
    """The environment of that name, with what it ``extends`` beneath it (one level)."""
    path = configs / "environments" / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml")))
        raise OperatorError(
            f"no environment '{name}': {_shown(path)} does not exist",
            f"the environments are: {known}; a stack has the name of its environment",
        )
    content = read_yaml(path)
    if base := content.get("extends"):
        content = merge(read_yaml(path.with_name(f"{base}.yaml")), content)
    if content.get("provider") == "aws":
        shared = read_yaml(configs / "aws.yaml")
        content["aws"] = merge(shared, content.get("aws") or {})
    return validate(Environment, content, path)


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """``over`` laid on ``base``: mappings merge key by key, everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def component_names(configs: Path = CONFIGS) -> set[str]:
    return {path.stem for path in (configs / "components").glob("*.yaml")}


def load_component(name: str, configs: Path = CONFIGS) -> Component:
    path = configs / "components" / f"{name}.yaml"
    component = validate(Component, read_yaml(path), path)
    known = component_names(configs) | {*OUTSIDE}
    problems = Problems()
    problems.add(
        (
            f"clients.{port}: no component {', '.join(sorted(unknown))}"
            for port, clients in component.clients.items()
            if (unknown := set(clients) - known)
        ),
        _shown(path),
    )
    problems.refuse()
    return component


def load_components(names: Iterable[str], configs: Path = CONFIGS) -> dict[str, Component]:
    """These components by name. Raises OperatorError with the problems of all their files."""
    found: dict[str, Component] = {}
    problems = Problems()
    for name in names:
        with problems.caught():
            found[name] = load_component(name, configs)
    problems.refuse()
    return found


def load_events(configs: Path = CONFIGS) -> Events:
    path = configs / "components" / "events.yaml"
    return validate(Events, read_yaml(path), path)


def load_names(configs: Path = CONFIGS) -> Names:
    path = configs / "names.yaml"
    return validate(Names, read_yaml(path), path)


def _shown(path: Path) -> str:
    """The path as the operator knows it: from the repository's root."""
    try:
        return str(path.relative_to(CONFIGS.parent))
    except ValueError:
        return str(path)
