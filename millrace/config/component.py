"""Models of ``configs/components/``: services, who calls them, their memory and settings."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, PositiveInt, model_validator

from millrace.common.errors import Problems
from millrace.common.paths import CONFIGS
from millrace.config.load import read_yaml, shown, validate
from millrace.config.model import PROFILES, Model, Name, Profile, Setting

Port = Annotated[int, Field(ge=1, le=65535)]
# Clients that are no service: people and programs outside the cluster, known by their addresses.
OPERATOR, PRODUCERS, READERS = "operator", "producers", "readers"
# The machine whose containers the hosts are: what it sends and reads leaves it by no network.
THIS_MACHINE = "this_machine"
OUTSIDE = (OPERATOR, PRODUCERS, READERS, THIS_MACHINE)
# By whose hosts operators come in, where they may enter no others: the tools are there anyway.
ENTRANCE = "job_gateway"
# Who gets metrics.
MONITOR = "prometheus_server"


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
        shown(path),
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
