"""The planner: configuration in, a plan out. Pure: it reads no clock, no network, no cluster.

The plan says what runs where: hosts, zones, addresses, ports, memory, tuned settings. Pulumi makes
its hosts, Ansible makes its services; none of them decides anything again.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from pydantic import BaseModel, ConfigDict

from millrace.availability import GROUP_STRIDE, HOST_OVERHEAD
from millrace.availability import problems as refusals
from millrace.config import (
    Component,
    Environment,
    Events,
    Memory,
    Profile,
    Replication,
    component_names,
    load_component,
    load_environment,
    load_events,
)
from millrace.errors import OperatorError

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
    subnet: str
    gateway: str
    artifacts: str


class Plan(Model):
    """Everything that later steps need to know about one environment."""

    environment: str
    extends: str | None
    cluster: str
    provider: str
    profile: Profile
    drills: bool
    zones: list[str]
    network: NetworkPlan
    hosts: list[Host]
    services: dict[str, Service]
    shared: dict[str, dict[str, Any]]
    topics: dict[str, TopicPlan]
    limits: dict[str, Any]
    replication: Replication
    applications: dict[str, list[str]]
    endpoints: dict[str, Any]

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
    return make_plan(name, environment, components, load_events())


def make_plan(
    name: str, environment: Environment, components: Mapping[str, Component], events: Events
) -> Plan:
    """The plan of an environment; refuses every topology that one dead host or zone would stop."""
    hosts = list(_hosts(name, environment, components))
    problems = list(refusals(environment, components, hosts))
    if problems:
        where = f"configs/environments/{name}.yaml: "
        raise OperatorError(
            "\n".join(where + problem for problem in problems), "nothing was created or changed"
        )
    return Plan(
        environment=name,
        extends=environment.extends,
        cluster=_cluster(name),
        provider=environment.provider,
        profile=environment.profile,
        drills=environment.drills,
        zones=environment.zones,
        network=_network(environment.network.subnet),
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
        topics=_topics(events, environment),
        limits={key: limit.at(environment.profile) for key, limit in events.limits.items()},
        replication=environment.replication,
        applications=environment.applications,
        endpoints=_endpoints(hosts, components),
    )


def _cluster(environment: str) -> str:
    return f"millrace-{environment}"


def _network(subnet: IPv4Network) -> NetworkPlan:
    return NetworkPlan(
        subnet=str(subnet),
        gateway=str(subnet.network_address + 1),
        artifacts=str(subnet.network_address + ARTIFACTS_OFFSET),
    )


def _hosts(
    name: str, environment: Environment, components: Mapping[str, Component]
) -> Iterator[Host]:
    for number, (group_name, group) in enumerate(environment.groups.items(), start=1):
        for index in range(1, group.hosts + 1):
            host = f"{group_name}-{index}"
            yield Host(
                name=host,
                group=group_name,
                zone=environment.zones[(index - 1) % len(environment.zones)],
                index=index,
                address=str(_address(environment.network.subnet, number, index)),
                memory=group.memory,
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


def _topics(events: Events, environment: Environment) -> dict[str, TopicPlan]:
    kafka = environment.replication.kafka
    return {
        name: TopicPlan(
            partitions=topic.partitions[environment.profile],
            replication=kafka.factor,
            config={"min.insync.replicas": str(kafka.min_insync)}
            | {key: _property(s.at(environment.profile)) for key, s in topic.config.items()},
        )
        for name, topic in events.topics.items()
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
