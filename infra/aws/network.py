"""The VPC: private subnets for hosts, public ones for the way out and the load balancer."""

import pulumi
from pulumi import ComponentResource, Output, ResourceOptions
from pulumi_aws import ec2, route53

from infra.aws.firewall import HTTPS
from infra.aws.naming import named, tags
from infra.aws.region import aws_plan
from millrace.plan import Plan
from millrace.plan.aws import ENDPOINTS, Subnet


class Network(ComponentResource):
    """``private`` and ``public`` are subnet ids by zone."""

    def __init__(self, name: str, plan: Plan, opts: ResourceOptions | None = None) -> None:
        super().__init__("millrace:aws:Network", name, None, opts)
        self._plan = plan
        self._aws = aws_plan(plan)
        self._child = ResourceOptions(parent=self)
        self.vpc = ec2.Vpc(
            "vpc",
            cidr_block=plan.network.subnet,
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=tags(plan, "vpc"),
            opts=self._child,
        )
        # The VPC's own group would let all its members talk; without rules nobody can use it.
        ec2.DefaultSecurityGroup(
            "default", vpc_id=self.vpc.id, tags=tags(plan, "unused"), opts=self._child
        )
        subnets = {subnet.name: self._make_subnet(subnet) for subnet in self._aws.subnets}
        self.public = {zone: subnets[f"public-{zone}"].id for zone in plan.zones}
        self.private = {zone: subnets[f"private-{zone}"].id for zone in plan.zones}
        private_routes = self._make_routes()
        self._make_s3_endpoint(private_routes)
        self._make_service_endpoints()
        self.register_outputs({"vpc": self.vpc.id})

    def _make_subnet(self, subnet: Subnet) -> ec2.Subnet:
        return ec2.Subnet(
            subnet.name,
            vpc_id=self.vpc.id,
            cidr_block=subnet.cidr,
            availability_zone=subnet.availability_zone,
            map_public_ip_on_launch=False,
            tags=tags(self._plan, subnet.name),
            opts=self._child,
        )

    def _make_routes(self) -> list[Output[str]]:
        """Public subnets lead to the internet, private ones out through a NAT gateway."""
        gateway = ec2.InternetGateway(
            "internet",
            vpc_id=self.vpc.id,
            tags=tags(self._plan, "internet"),
            opts=self._child,
        )
        public = self._make_table("public", list(self.public.items()))
        ec2.Route(
            "public-out",
            route_table_id=public,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=gateway.id,
            opts=self._child,
        )
        nat = {zone: self._make_nat(zone, gateway) for zone in self._aws.nat}
        tables = {}
        for zone, subnet in self.private.items():
            tables[zone] = self._make_table(f"private-{zone}", [(zone, subnet)])
            ec2.Route(
                f"private-{zone}-out",
                route_table_id=tables[zone],
                destination_cidr_block="0.0.0.0/0",
                nat_gateway_id=nat[self._aws.nat_of(zone)],
                opts=self._child,
            )
        return list(tables.values())

    def _make_table(self, name: str, subnets: list[tuple[str, Output[str]]]) -> Output[str]:
        table = ec2.RouteTable(
            name, vpc_id=self.vpc.id, tags=tags(self._plan, name), opts=self._child
        )
        for zone, subnet in subnets:
            ec2.RouteTableAssociation(
                f"{name}-in-{zone}", route_table_id=table.id, subnet_id=subnet, opts=self._child
            )
        return table.id

    def _make_nat(self, zone: str, gateway: ec2.InternetGateway) -> Output[str]:
        # Neither works before the VPC has its way out.
        after = ResourceOptions.merge(self._child, ResourceOptions(depends_on=[gateway]))
        name = f"nat-{zone}"
        address = ec2.Eip(name, domain="vpc", tags=tags(self._plan, name), opts=after)
        return ec2.NatGateway(
            name,
            allocation_id=address.allocation_id,
            subnet_id=self.public[zone],
            tags=tags(self._plan, name),
            opts=after,
        ).id

    def _make_s3_endpoint(self, route_tables: list[Output[str]]) -> None:
        """Artifacts and archive needn't go through the NAT gateways, which cost by the byte."""
        ec2.VpcEndpoint(
            "s3",
            vpc_id=self.vpc.id,
            service_name=f"com.amazonaws.{self._aws.region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=route_tables,
            tags=tags(self._plan, "s3"),
            opts=self._child,
        )

    def _make_service_endpoints(self) -> None:
        group = ec2.SecurityGroup(
            "endpoints",
            name=named(self._plan, "endpoints"),
            description="AWS services that hosts call",
            vpc_id=self.vpc.id,
            ingress=[
                {
                    "protocol": "tcp",
                    "from_port": HTTPS,
                    "to_port": HTTPS,
                    "cidr_blocks": [s.cidr for s in self._aws.subnets if not s.public],
                    "description": "hosts",
                }
            ],
            tags=tags(self._plan, "endpoints"),
            opts=self._child,
        )
        for service in ENDPOINTS:
            ec2.VpcEndpoint(
                service,
                vpc_id=self.vpc.id,
                service_name=f"com.amazonaws.{self._aws.region}.{service}",
                vpc_endpoint_type="Interface",
                subnet_ids=list(self.private.values()),
                security_group_ids=[group.id],
                private_dns_enabled=True,
                tags=tags(self._plan, service),
                opts=self._child,
            )


class Names(ComponentResource):
    """A private zone, and each host's name in it, short as in `local` by the search domain."""

    def __init__(
        self, name: str, plan: Plan, vpc: pulumi.Input[str], opts: ResourceOptions | None = None
    ) -> None:
        super().__init__("millrace:aws:Names", name, None, opts)
        child = ResourceOptions(parent=self)
        domain = f"{plan.cluster}.internal"
        zone = route53.Zone(
            "zone",
            name=domain,
            comment=f"Hosts of {plan.cluster}",
            vpcs=[{"vpc_id": vpc}],
            tags=tags(plan, "zone"),
            opts=child,
        )
        for host in plan.hosts:
            route53.Record(
                host.name,
                zone_id=zone.zone_id,
                name=host.name,
                type="A",
                ttl=60,
                records=[host.address],
                opts=child,
            )
        options = ec2.VpcDhcpOptions(
            "search",
            domain_name=domain,
            domain_name_servers=["AmazonProvidedDNS"],
            tags=tags(plan, "search"),
            opts=child,
        )
        ec2.VpcDhcpOptionsAssociation("search", vpc_id=vpc, dhcp_options_id=options.id, opts=child)
        self.register_outputs({"zone": zone.zone_id})
