"""Security groups: one for each group of hosts, one rule for each edge of the plan."""

import pulumi
from pulumi import ComponentResource, Output, ResourceOptions
from pulumi_aws import ec2, vpc

from infra.aws.naming import named, tags
from millrace.config import OUTSIDE, READERS
from millrace.plan import Plan
from millrace.plan.aws import BALANCED
from millrace.plan.edges import Edge

# The load balancer's own group: to the hosts, it is the readers and the producers.
PUBLIC = "public"
HTTPS = 443
# Out of the VPC: packages, and AWS's own services. In it, whoever listens says who may call.
WEB = (80, HTTPS)
ANYWHERE = "0.0.0.0/0"


def public_port(plan: Plan, client: str) -> int:
    """Returns where a client comes in at the load balancer: producers at the proxies' own port."""
    return HTTPS if client == READERS else plan.services["edge_proxy"].ports["intake"]


class Firewall(ComponentResource):
    """``groups``: security group ids by host group, and the load balancer's as ``public``."""

    groups: dict[str, Output[str]]

    def __init__(
        self,
        name: str,
        plan: Plan,
        network: pulumi.Input[str],
        opts: ResourceOptions | None = None,
    ) -> None:
        super().__init__("millrace:aws:Firewall", name, None, opts)
        self._plan = plan
        self._network = network
        self._child = ResourceOptions(parent=self)
        hosts = dict.fromkeys(host.group for host in plan.hosts)
        self.groups = {group: self._make_group(group) for group in (*hosts, PUBLIC)}
        for edge in plan.edges:
            self._allow(edge)
        for group in hosts:
            self._let_out(group)
        self._open_to_the_world()
        self.register_outputs({"groups": self.groups})

    def _make_group(self, group: str) -> Output[str]:
        return ec2.SecurityGroup(
            group,
            name=named(self._plan, group),
            description=f"{self._plan.cluster}: {group}",
            vpc_id=self._network,
            tags=tags(self._plan, group),
            opts=self._child,
        ).id

    def _allow(self, edge: Edge) -> None:
        if edge.client in BALANCED:
            self._let_in(edge, edge.name, referenced_security_group_id=self.groups[PUBLIC])
        elif edge.client in OUTSIDE:
            for cidr in self._plan.sources(edge.client):
                self._let_in(edge, f"{edge.name}-{cidr}", cidr_ipv4=cidr)
        else:
            self._let_in(edge, edge.name, referenced_security_group_id=self.groups[edge.client])

    def _let_in(self, edge: Edge, name: str, **source: pulumi.Input[str]) -> None:
        vpc.SecurityGroupIngressRule(
            name,
            security_group_id=self.groups[edge.server],
            ip_protocol=edge.protocol,
            from_port=edge.first,
            to_port=edge.last,
            description=edge.purpose,
            tags=tags(self._plan, name),
            opts=self._child,
            **source,
        )

    def _let_out(self, group: str) -> None:
        inside = self._plan.network.subnet
        ways = [(f"web-{port}", ANYWHERE, "tcp", port, port) for port in WEB]
        ways.append(("inside", inside, "tcp", 1, 65535))
        if any(edge.client == group and edge.protocol == "udp" for edge in self._plan.edges):
            ways.append(("inside-udp", inside, "udp", 1, 65535))
        for name, cidr, protocol, first, last in ways:
            vpc.SecurityGroupEgressRule(
                f"{group}-to-{name}",
                security_group_id=self.groups[group],
                cidr_ipv4=cidr,
                ip_protocol=protocol,
                from_port=first,
                to_port=last,
                tags=tags(self._plan, f"{group}-to-{name}"),
                opts=self._child,
            )

    def _open_to_the_world(self) -> None:
        """The load balancer: HTTPS from readers and producers, and to what it balances."""
        for client in BALANCED:
            port = public_port(self._plan, client)
            for cidr in self._plan.network.outside[client]:
                name = f"public-{port}-from-{cidr}"
                vpc.SecurityGroupIngressRule(
                    name,
                    security_group_id=self.groups[PUBLIC],
                    cidr_ipv4=cidr,
                    ip_protocol="tcp",
                    from_port=port,
                    to_port=port,
                    description=client,
                    tags=tags(self._plan, name),
                    opts=self._child,
                )
        for edge in self._plan.edges:
            if edge.client in BALANCED:
                vpc.SecurityGroupEgressRule(
                    f"public-to-{edge.server}-{edge.first}",
                    security_group_id=self.groups[PUBLIC],
                    referenced_security_group_id=self.groups[edge.server],
                    ip_protocol="tcp",
                    from_port=edge.first,
                    to_port=edge.last,
                    tags=tags(self._plan, f"public-to-{edge.server}"),
                    opts=self._child,
                )
