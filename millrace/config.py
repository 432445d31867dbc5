"""Models of everything under ``configs/``, and a loader whose refusals name file and key."""

from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, field_validator

from millrace.errors import OperatorError
from millrace.paths import CONFIGS

PROFILES = ("small", "standard", "large")
Profile = Literal["small", "standard", "large"]
Scalar = bool | int | float | str
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=32)]
ModelT = TypeVar("ModelT", bound=BaseModel)
Port = Annotated[int, Field(ge=1, le=65535)]


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
    """A JVM flag; without ``profiles`` it goes to every one."""

    value: str = Field(pattern=r"^-")
    why: str = Field(min_length=10)
    source: str = Field(min_length=3)
    profiles: list[Profile] = list(PROFILES)


class Memory(Model):
    """MiB. ``heap`` is a JVM's -Xmx (null: no JVM); ``total`` is the resident size planned for."""

    heap: PositiveInt | None = None
    total: PositiveInt


class Component(Model):
    """``configs/components/<name>.yaml``: one service, or settings that services share."""

    summary: str
    distribution: str | None = None
    package: str | None = None
    user: str | None = None
    data: bool = False
    ports: dict[Name, Port] = {}
    memory: dict[Profile, Memory] = {}
    jvm: list[JvmFlag] = []
    settings: dict[str, dict[str, Setting]] = {}

    def memory_at(self, profile: Profile) -> Memory | None:
        return self.memory.get(profile)


class Topic(Model):
    """A Kafka topic: partitions per profile, and its tuned configuration."""

    summary: str
    partitions: dict[Profile, PositiveInt]
    config: dict[str, Setting] = {}


class Events(Model):
    """``configs/components/events.yaml``: the topics and the limits of a valid event."""

    summary: str
    topics: dict[str, Topic]
    limits: dict[str, Setting] = {}


class Group(Model):
    """Hosts of one kind. ``memory`` is MiB of one host."""

    hosts: PositiveInt
    memory: PositiveInt
    services: list[Name] = Field(min_length=1)

    @field_validator("services")
    @classmethod
    def _once(cls, services: list[str]) -> list[str]:
        if len(set(services)) != len(services):
            raise ValueError("a service stands twice in the list")
        return services


class Network(Model):
    subnet: IPv4Network = Field(strict=False)


class KafkaReplication(Model):
    factor: PositiveInt
    min_insync: PositiveInt


class Replication(Model):
    kafka: KafkaReplication
    cassandra: PositiveInt
    hdfs: PositiveInt
    sentinel_quorum: PositiveInt


class Environment(Model):
    """``configs/environments/<name>.yaml``: what runs where."""

    summary: str
    provider: Literal["docker"]
    profile: Profile
    extends: str | None = None
    drills: bool = False
    network: Network
    zones: list[Name] = Field(min_length=1)
    groups: dict[Name, Group] = Field(min_length=1)
    replication: Replication
    applications: dict[Name, list[Name]] = {}

    @field_validator("zones")
    @classmethod
    def _distinct(cls, zones: list[str]) -> list[str]:
        if len(set(zones)) != len(zones):
            raise ValueError("a zone stands twice in the list")
        return zones


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; refused with file, line and reason when it isn't one."""
    try:
        content = yaml.safe_load(path.read_text())
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
            f"{_shown(path)}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()
        ]
        raise OperatorError("\n".join(problems), "nothing was created or changed") from None


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
    return validate(Component, read_yaml(path), path)


def load_events(configs: Path = CONFIGS) -> Events:
    path = configs / "components" / "events.yaml"
    return validate(Events, read_yaml(path), path)


def _shown(path: Path) -> str:
    """The path as the operator knows it: from the repository's root."""
    try:
        return str(path.relative_to(CONFIGS.parent))
    except ValueError:
        return str(path)
