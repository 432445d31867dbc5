"""Models of ``configs/environments/``: what runs where."""

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from millrace.common.errors import OperatorError
from millrace.common.paths import CONFIGS
from millrace.config.aws import Aws
from millrace.config.load import merge, read_yaml, shown, validate
from millrace.config.model import Model, Name, Profile

ReceiverKind = Annotated[str, Field(pattern=r"^(webhook|email|pagerduty|slack)_configs$")]
# What firmware and kernel leave of an instance's nominal memory. /proc/meminfo of EC2 instances
# shows 3 to 6 % less than the type's name promises; measure yours with `millrace preflight`.
USABLE_MEMORY = 0.93


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
    this_machine: list[Annotated[IPv4Network, Field(strict=False)]] = []


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
    """What an environment is sized for: a day's mean rate, and bytes of one event as Kafka has it.

    For how many days each kind of data is kept, its own setting says (docs/retention.md).
    """

    events_per_second: PositiveInt
    bytes: PositiveInt


class Environment(Model):
    """``configs/environments/<name>.yaml``: what runs where.

    ``every_host`` are services that each host of each group runs, besides those of its group.
    ``receiver`` is who is told of alerts, in Alertmanager's words; nobody, if it is empty.
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
        if self.aws and self.load is None:
            raise ValueError(
                "load: its disks on AWS are sized for one; say {events_per_second: 100, bytes: 240}"
            )
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
        """Returns what each host of a group runs."""
        return [*self.groups[group].services, *self.every_host]

    def memory(self, group: str) -> int:
        """MiB that one host of a group has for its processes."""
        settings = self.groups[group]
        if self.aws and settings.instance:
            return int(self.aws.instance_types[settings.instance].memory * USABLE_MEMORY)
        assert settings.memory  # validated above
        return settings.memory


def environment_names(configs: Path = CONFIGS) -> list[str]:
    return sorted(path.stem for path in (configs / "environments").glob("*.yaml"))


def load_environment(name: str, configs: Path = CONFIGS) -> Environment:
    """The environment of that name, with what it ``extends`` beneath it (one level)."""
    path = configs / "environments" / f"{name}.yaml"
    if name not in (known := environment_names(configs)):
        raise OperatorError(
            f"no environment '{name}': {shown(path)} does not exist",
            f"the environments are: {', '.join(known)}; a stack has the name of its environment",
        )
    content = read_yaml(path)
    if base := content.get("extends"):
        content = merge(read_yaml(path.with_name(f"{base}.yaml")), content)
    if content.get("provider") == "aws":
        shared = read_yaml(configs / "aws.yaml")
        content["aws"] = merge(shared, content.get("aws") or {})
    return validate(Environment, content, path)
