"""The planner: configuration in, a plan out. Pure: it reads no clock, no network, no cluster.

The plan says what runs where: hosts, zones, addresses, ports, memory, tuned settings. Pulumi makes
its hosts, Ansible makes its services; none of them decides anything again.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from millrace.availability import GROUP_STRIDE, HOST_OVERHEAD
from millrace.availability import problems as refusals
from millrace.aws import AwsPlan, plan_aws, private_subnet
from millrace.aws import problems as aws_refusals
from millrace.common.errors import OperatorError
from millrace.config import (
    Component,
    Environment,
    Events,
    Memory,
    Names,
    Profile,
    Replication,
    component_names,
    load_component,
    load_environment,
    load_events,
    load_names,
)
from millrace.jobs import load_job_settings, with_jobs
from millrace.streams import Stream, StreamPlan, load_streams, plan_stream
from millrace.streams import problems as stream_refusals

# Components that aren't a service on a host but configure one or more of them.
SHARED_COMPONENTS = ("hadoop", "spark")

DATA_ROOT = "/var/lib/millrace"
# Addresses: .1 is the gateway, .2 the artifact server, .11 the first host of the first group.
ARTIFACTS_OFFSET = 2
# Node ids of KRaft controllers start here, so that they can't meet those of brokers.
CONTROLLER_ID_BASE = 100


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Volume(Model):
    """Data that outlives its host; ``path`` is where the service finds it."""

    name: str
    path: str


class Host(Model):
    """A machine. ``memory`` is MiB; ``index`` counts from 1 inside its group."""

    name: str
    group: str
    zone: str
    index: int
    address: str
    memory: int
    services: list[str]
    volumes: list[Volume]


class Service(Model):
    """A service and the hosts it runs on; what its role renders."""

    hosts: list[str]
    unit: str
    user: str
    data: bool
    distribution: str | None
    package: str | None
    ports: dict[str, int]
    memory: Memory
    jvm: list[str]
    settings: dict[str, dict[str, Any]]


class TopicPlan(Model):
    partitions: int
    replication: int
    config: dict[str, str]


class NetworkPlan(Model):
    """``gateway`` and ``artifacts`` are addresses on this machine's bridge: of `local` only."""

    subnet: str
    gateway: str | None = None
    artifacts: str | None = None


class MachinesPlan(Model):
    """How to enter hosts that somebody else made, and the URL of their artifact store."""

    user: str
    key: str
    artifacts: str


def _absent(part: Any) -> bool:
    return part is None


class Plan(Model):
    """Everything that later steps need to know about one environment."""

    environment: str
    extends: str | None
    cluster: str
    provider: str
    profile: Profile
    drills: bool
    zones: list[str]
    names: Names
    network: NetworkPlan
    hosts: list[Host]
    services: dict[str, Service]
    shared: dict[str, dict[str, Any]]
    topics: dict[str, TopicPlan]
    limits: dict[str, Any]
    streams: dict[str, StreamPlan]
    replication: Replication
    applications: dict[str, list[str]]
    endpoints: dict[str, Any]
    # What only one provider has; not in another one's plan, nor in its digest.
    aws: AwsPlan | None = Field(default=None, exclude_if=_absent)
    machines: MachinesPlan | None = Field(default=None, exclude_if=_absent)

    @property
    def digest(self) -> str:
        """A fingerprint of the whole plan: equal plans, equal digests."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def addresses(self, service: str, port: str) -> list[str]:
        """``address:port`` of each host of a service, for clients outside the cluster's network."""
        number = self.services[service].ports[port]
        return [f"{host.address}:{number}" for host in self.hosts_of(service)]

    @property
    def applications_memory(self) -> int:
        """MiB that all Spark applications' containers ask YARN for."""
        spark = self.shared["spark"]["settings"]["spark-defaults.conf"]
        driver, executor = (
            _mebibytes(spark[f"spark.{kind}.memory"])
            + _mebibytes(spark[f"spark.{kind}.memoryOverhead"])
            for kind in ("driver", "executor")
        )
        return len(self.applications) * (driver + spark["spark.executor.instances"] * executor)

    def planned_memory(self, host: Host) -> int:
        """MiB that the host's services and its own daemons are planned to hold resident."""
        return HOST_OVERHEAD + sum(self.services[name].memory.total for name in host.services)

    def hosts_of(self, service: str) -> list[Host]:
        return [host for host in self.hosts if service in host.services]


def load_plan(name: str) -> Plan:
    """The plan of the environment ``configs/environments/<name>.yaml``.

    Raises OperatorError when a file is wrong or the topology can't be highly available.
    """
    environment = load_environment(name)
    services = {s for group in environment.groups.values() for s in group.services}
    known = component_names()
    components = {c: load_component(c) for c in sorted(services & known) + list(SHARED_COMPONENTS)}
    components["spark"] = with_jobs(components["spark"], load_job_settings())
    return make_plan(name, environment, components, load_events(), load_names(), load_streams())


def make_plan(
    name: str,
    environment: Environment,
    components: Mapping[str, Component],
    events: Events,
    names: Names,
    streams: dict[str, Stream],
) -> Plan:
    """The plan of an environment; refuses every topology that one dead host or zone would stop."""
    if problems := list(_machine_problems(environment)):
        raise _refusal(name, problems)
    hosts = list(_hosts(name, environment, components))
    if problems := list(refusals(environment, components, hosts)):
        raise _refusal(name, problems)
    topics = _topics(events, names, environment)
    events_topic = names.kafka.topics.events
    if problems := list(
        aws_refusals(environment, components, hosts, topics, events_topic, _cluster(name))
    ):
        raise _refusal(name, problems)
    load = environment.load and environment.load.events_per_second
    if problems := list(stream_refusals(streams, set(events.topics), load)):
        raise OperatorError("\n".join(problems), "nothing was created or changed")
    return Plan(
        environment=name,
        extends=environment.extends,
        cluster=_cluster(name),
        provider=environment.provider,
        profile=environment.profile,
        drills=environment.drills,
        zones=environment.zones,
        names=names,
        network=_network(environment),
        hosts=hosts,
        services={
            service: _service(service, components[service], hosts, environment.profile)
            for service in sorted({s for host in hosts for s in host.services})
        },
        shared={
            shared: {
                "distribution": components[shared].distribution,
                "jvm": _jvm(components[shared], environment.profile),
                "settings": _settings(components[shared], environment.profile),
            }
            for shared in SHARED_COMPONENTS
            if shared in components
        },
        topics=topics,
        streams={
            stream: plan_stream(
                declared, getattr(names.kafka.topics, declared.topic), environment.profile
            )
            for stream, declared in streams.items()
        },
        limits={key: limit.at(environment.profile) for key, limit in events.limits.items()},
        replication=environment.replication,
        applications=environment.applications,
        endpoints=_endpoints(hosts, components),
        aws=plan_aws(environment, components, hosts),
        machines=_machines(environment),
    )


def _refusal(name: str, problems: list[str]) -> OperatorError:
    where = f"configs/environments/{name}.yaml: "
    return OperatorError(
        "\n".join(where + problem for problem in problems), "nothing was created or changed"
    )


def _cluster(environment: str) -> str:
    return f"millrace-{environment}"


def _network(environment: Environment) -> NetworkPlan:
    subnet = environment.network.subnet
    if environment.provider != "docker":
        return NetworkPlan(subnet=str(subnet))
    return NetworkPlan(
        subnet=str(subnet),
        gateway=str(subnet.network_address + 1),
        artifacts=str(subnet.network_address + ARTIFACTS_OFFSET),
    )


def _machines(environment: Environment) -> MachinesPlan | None:
    if environment.machines is None:
        return None
    return MachinesPlan(**environment.machines.model_dump(exclude={"hosts"}))


def _machine_problems(environment: Environment) -> Iterator[str]:
    """Where the machines that exist aren't those that the groups ask for."""
    if environment.machines is None:
        return
    machines = environment.machines.hosts
    wanted = {
        f"{group}-{index}"
        for group, settings in environment.groups.items()
        for index in range(1, settings.hosts + 1)
    }
    for host in sorted(wanted - machines.keys()):
        yield f"machines.hosts: no machine {host}, which groups ask for"
    for host in sorted(machines.keys() - wanted):
        yield f"machines.hosts.{host}: no group asks for it"
    seen: dict[IPv4Address, str] = {}
    for host, machine in machines.items():
        if machine.address in seen:
            yield f"machines.hosts.{host}: {machine.address} is {seen[machine.address]}'s, too"
        seen[machine.address] = host
        if machine.zone not in environment.zones:
            yield f"machines.hosts.{host}: zone {machine.zone} isn't one of zones"


def _hosts(
    name: str, environment: Environment, components: Mapping[str, Component]
) -> Iterator[Host]:
    for number, (group_name, group) in enumerate(environment.groups.items(), start=1):
        for index in range(1, group.hosts + 1):
            host = f"{group_name}-{index}"
            zone, address = _place(environment, host, number, index)
            yield Host(
                name=host,
                group=group_name,
                zone=zone,
                index=index,
                address=str(address),
                memory=environment.memory(group_name),
                services=group.services,
                volumes=[
                    Volume(
                        name=f"{_cluster(name)}-{host}-{_unit(service)}",
                        path=f"{DATA_ROOT}/{_unit(service)}",
                    )
                    for service in group.services
                    if service in components and components[service].data
                ],
            )


def _place(environment: Environment, host: str, group: int, index: int) -> tuple[str, IPv4Address]:
    """Zone and address: dealt to the zones in turn, unless the machine stands somewhere already."""
    if environment.machines:
        machine = environment.machines.hosts[host]
        return machine.zone, machine.address
    zone = environment.zones[(index - 1) % len(environment.zones)]
    aws = environment.aws is not None
    subnet = private_subnet(environment, zone) if aws else environment.network.subnet
    return zone, _address(subnet, group, index)


def _address(subnet: IPv4Network, group: int, index: int) -> IPv4Address:
    # A stride per group: a host added to one group moves no other host's address.
    return subnet.network_address + group * GROUP_STRIDE + index


def _unit(service: str) -> str:
    return service.replace("_", "-")


def _service(name: str, component: Component, hosts: list[Host], profile: Profile) -> Service:
    return Service(
        hosts=[host.name for host in hosts if name in host.services],
        unit=_unit(name),
        user=component.user or name,
        data=component.data,
        distribution=component.distribution,
        package=component.package,
        ports=component.ports,
        memory=component.memory[profile],
        jvm=_jvm(component, profile),
        settings=_settings(component, profile),
    )


def _jvm(component: Component, profile: Profile) -> list[str]:
    return [flag.value for flag in component.jvm if profile in flag.profiles]


def _settings(component: Component, profile: Profile) -> dict[str, dict[str, Any]]:
    return {
        file: {key: setting.at(profile) for key, setting in settings.items()}
        for file, settings in component.settings.items()
    }


def _topics(events: Events, names: Names, environment: Environment) -> dict[str, TopicPlan]:
    kafka = environment.replication.kafka
    return {
        getattr(names.kafka.topics, part): TopicPlan(
            partitions=topic.partitions[environment.profile],
            replication=kafka.factor,
            config={"min.insync.replicas": str(kafka.min_insync)}
            | {key: _property(s.at(environment.profile)) for key, s in topic.config.items()},
        )
        for part, topic in events.topics.items()
    }


def _mebibytes(size: str) -> int:
    """Spark's ``512m`` or ``2g`` in MiB."""
    return int(size[:-1]) * {"m": 1, "g": 1024}[size[-1]]


def _property(value: Any) -> str:
    """A value as Kafka writes it: ``true``, not ``True``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _endpoints(hosts: list[Host], components: Mapping[str, Component]) -> dict[str, Any]:
    def each(service: str, port: str) -> list[str]:
        if service not in components:
            return []
        number = components[service].ports[port]
        return [f"{host.name}:{number}" for host in hosts if service in host.services]

    return {
        "zookeeper": ",".join(each("zookeeper", "client")),
        "kafka": ",".join(each("kafka_broker", "client")),
        "kafka_controllers": ",".join(each("kafka_controller", "controller")),
        "cassandra": [host.name for host in hosts if "cassandra" in host.services],
        "cassandra_port": components["cassandra"].ports["native"],
        "sentinels": each("redis_sentinel", "client"),
        "resourcemanagers": each("resourcemanager", "http"),
        "namenodes": each("namenode", "http"),
        "insight_api": [f"http://{address}" for address in each("insight_api", "http")],
    }
