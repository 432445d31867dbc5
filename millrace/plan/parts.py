"""What a plan consists of."""

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from millrace.config import Memory, Metrics, PortRange

# Below these each service has a folder, by the name of its unit.
CONFIG_ROOT = "/etc/millrace"
DATA_ROOT = "/var/lib/millrace"
LOGS_ROOT = "/var/log/millrace"
# Node ids of KRaft controllers start here, so that they can't meet those of brokers.
CONTROLLER_ID_BASE = 100
# MiB of a host that systemd, journald, sshd and an operator's shell need.
HOST_OVERHEAD = 64
DAY_MS = 86_400_000


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Endpoint(NamedTuple):
    """Where a service listens. In JSON, and so for the roles, a pair."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Endpoints(Model):
    """Where clients on the cluster's own hosts find each service, by host name."""

    zookeeper: list[Endpoint] = []
    kafka: list[Endpoint] = []
    kafka_controllers: list[Endpoint] = []
    cassandra: list[Endpoint] = []
    sentinels: list[Endpoint] = []
    resourcemanagers: list[Endpoint] = []
    namenodes: list[Endpoint] = []
    insights: list[Endpoint] = []
    intake: list[Endpoint] = []


class Volume(Model):
    """Data that outlives its host; ``path`` is where the service finds it."""

    name: str
    path: str


class Host(Model):
    """A machine. ``memory`` is MiB, ``cpu_weight`` its group's; ``index`` counts from 1 in it."""

    name: str
    group: str
    zone: str
    index: int
    address: str
    memory: int
    cpu_weight: int = 1
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
    port_ranges: dict[str, PortRange]
    metrics: Metrics | None
    memory: Memory
    jvm: list[str]
    settings: dict[str, dict[str, Any]]


class SharedSettings(Model):
    """What several services are configured with and none of them is."""

    distribution: str | None
    jvm: list[str]
    settings: dict[str, dict[str, Any]]


class TopicPlan(Model):
    partitions: int
    replication: int
    config: dict[str, str]

    @property
    def retention_days(self) -> float:
        """Of a topic that forgets by age."""
        return int(self.config["retention.ms"]) / DAY_MS


class NetworkPlan(Model):
    """``gateway`` and ``artifacts`` are on this machine's bridge: of `local` only.

    ``outside``: the CIDRs that each client from outside comes from. ``way_in``: ``straight``, or
    ``edge`` where operators enter by SSH to an edge host.
    """

    subnet: str
    outside: dict[str, list[str]]
    way_in: str
    gateway: str | None = None
    artifacts: Endpoint | None = None


class MachinesPlan(Model):
    """How to enter hosts that somebody else made, and the URL of their artifact store."""

    user: str
    key: str
    artifacts: str


def unit(service: str) -> str:
    """Returns the name of a service's systemd unit."""
    return service.replace("_", "-")
