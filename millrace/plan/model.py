"""The plan itself, and what can be asked of it."""

import hashlib
import json
from typing import Any

from pydantic import Field

from millrace.config import THIS_MACHINE, Names, Profile, Replication, absent
from millrace.plan.aws import BALANCED, AwsPlan
from millrace.plan.edges import Edge
from millrace.plan.parts import (
    HOST_OVERHEAD,
    Endpoint,
    Endpoints,
    Host,
    MachinesPlan,
    Model,
    NetworkPlan,
    Service,
    SharedSettings,
    TopicPlan,
)
from millrace.plan.spark import SparkPlan
from millrace.plan.streams import StreamPlan
from millrace.plan.tables import TablePlan


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
    base: SharedSettings
    hadoop: SharedSettings
    spark: SparkPlan
    topics: dict[str, TopicPlan]
    limits: dict[str, Any]
    streams: dict[str, StreamPlan]
    tables: dict[str, TablePlan]
    replication: Replication
    applications: dict[str, list[str]]
    receiver: dict[str, list[dict[str, Any]]]
    job_folders: list[str]
    endpoints: Endpoints
    edges: list[Edge]
    # What only one provider has; not in another one's plan, nor in its digest.
    aws: AwsPlan | None = Field(default=None, exclude_if=absent)
    machines: MachinesPlan | None = Field(default=None, exclude_if=absent)

    @property
    def digest(self) -> str:
        """A fingerprint of the whole plan: equal plans, equal digests."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def addresses(self, service: str, port: str) -> list[str]:
        """``address:port`` of each host of a service, for clients outside the cluster's network."""
        return [str(endpoint) for endpoint in self.reachable(service, port)]

    def reachable(self, service: str, port: str) -> list[Endpoint]:
        """Returns what `addresses` does, for clients that want host and port apart."""
        number = self.services[service].ports[port]
        return [Endpoint(host.address, number) for host in self.hosts_of(service)]

    @property
    def by_edge(self) -> bool:
        """Returns whether operators enter edge hosts only, and call all others from there."""
        return self.network.way_in == "edge"

    def reached_at(self, address: str) -> str:
        """Returns where an operator's machine finds a host's address: there, or at its mirror.

        The mirror of a.b.c.d is 127.b.c.d on that machine, which SSH forwards: the same ports, and
        a client needs to know nothing else. Brokers advertise it, so it has to be the same for all.
        """
        return f"127.{address.partition('.')[2]}" if self.by_edge else address

    @property
    def applications_memory(self) -> int:
        """MiB that all Spark applications' containers ask YARN for."""
        return len(self.applications) * self.spark.settings.defaults.application_mebibytes

    def planned_memory(self, host: Host) -> int:
        """MiB that the host's services and its own daemons are planned to hold resident."""
        return HOST_OVERHEAD + sum(self.services[name].memory.total for name in host.services)

    @property
    def jobs(self) -> list[str]:
        """Returns the jobs that an application runs."""
        return [job for jobs in self.applications.values() for job in jobs]

    def topics_of(self, job: str) -> list[str]:
        """Returns the topics that a job reads."""
        return [self.streams[stream].topic for stream in self.spark.settings.streams_of(job)]

    def hosts_of(self, service: str) -> list[Host]:
        return [host for host in self.hosts if service in host.services]

    def edges_to(self, host: Host) -> list[Edge]:
        return [edge for edge in self.edges if edge.server == host.group]

    def door(self, host: Host, plane: str) -> str:
        """The URL at which an operator's browser and examples find what readers (``insights``) and
        producers (``intake``) call of a host. Where nothing leaves this machine, plain HTTP will
        do, which no browser warns of."""
        scheme, port = ("http", f"plain_{plane}") if self.is_local else ("https", plane)
        number = self.services["edge_proxy"].ports[port]
        return f"{scheme}://{self.reached_at(host.address)}:{number}"

    def doors(self, plane: str) -> list[str]:
        """Returns `door` of each host."""
        return [self.door(host, plane) for host in self.hosts_of("edge_proxy")]

    @property
    def is_local(self) -> bool:
        """Returns whether this machine's containers are the hosts, and it may call them plainly."""
        return bool(self.network.outside[THIS_MACHINE])

    def sources(self, client: str) -> list[str]:
        """Addresses and CIDRs that the hosts see an edge's client come from."""
        if self.aws and client in BALANCED:
            return [subnet.cidr for subnet in self.aws.subnets if subnet.public]
        if client in self.network.outside:
            return self.network.outside[client]
        return [host.address for host in self.hosts if host.group == client]
