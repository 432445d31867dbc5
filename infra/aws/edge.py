"""The public door: a load balancer that speaks TLS and hands on to the insight API."""

from dataclasses import dataclass

import pulumi
from pulumi import ComponentResource, Output, ResourceOptions
from pulumi_aws import acm, lb

from infra.aws.firewall import HTTPS
from infra.aws.naming import named, tags
from infra.aws.region import aws_plan
from infra.keys import Certificate
from millrace.plan import Plan

SERVICE, PORT = "insight_api", "http"
# Live updates are a stream that may be silent; its keep-alives come each 15 s.
IDLE_SECONDS = 120


@dataclass(frozen=True)
class EdgeArgs:
    """``instances`` by host name. ``own`` is used when the plan has no certificate.

    ``protect``: AWS refuses to remove it, whoever asks.
    """

    plan: Plan
    vpc: pulumi.Input[str]
    subnets: list[pulumi.Input[str]]
    security_group: pulumi.Input[str]
    instances: dict[str, pulumi.Input[str]]
    own: Certificate | None
    protect: bool


class Edge(ComponentResource):
    address: Output[str]

    def __init__(self, name: str, args: EdgeArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("millrace:aws:Edge", name, None, opts)
        self._args = args
        self._child = ResourceOptions(parent=self)
        plan = args.plan
        balancer = lb.LoadBalancer(
            "edge",
            name=named(plan, "edge"),
            load_balancer_type="application",
            internal=False,
            subnets=args.subnets,
            security_groups=[args.security_group],
            drop_invalid_header_fields=True,
            idle_timeout=IDLE_SECONDS,
            enable_deletion_protection=args.protect,
            tags=tags(plan, "edge"),
            opts=self._child,
        )
        lb.Listener(
            "https",
            load_balancer_arn=balancer.arn,
            port=HTTPS,
            protocol="HTTPS",
            ssl_policy="ELBSecurityPolicy-TLS13-1-2-2021-06",
            certificate_arn=self._certificate(),
            default_actions=[{"type": "forward", "target_group_arn": self._make_targets()}],
            tags=tags(plan, "https"),
            opts=self._child,
        )
        self.address = balancer.dns_name.apply(lambda name: f"https://{name}")
        self.register_outputs({"address": self.address})

    def _make_targets(self) -> Output[str]:
        plan = self._args.plan
        port = plan.services[SERVICE].ports[PORT]
        group = lb.TargetGroup(
            "api",
            name=named(plan, "api"),
            vpc_id=self._args.vpc,
            target_type="instance",
            port=port,
            protocol="HTTP",
            # Longer than any answer but a live stream, which its page opens again.
            deregistration_delay=30,
            health_check={
                "path": "/healthz",
                "matcher": "200",
                "interval": 5,
                "timeout": 2,
                "healthy_threshold": 2,
                "unhealthy_threshold": 2,
            },
            tags=tags(plan, "api"),
            opts=self._child,
        )
        for host in plan.hosts_of(SERVICE):
            lb.TargetGroupAttachment(
                host.name,
                target_group_arn=group.arn,
                target_id=self._args.instances[host.name],
                port=port,
                opts=self._child,
            )
        return group.arn

    def _certificate(self) -> pulumi.Input[str]:
        plan, own = self._args.plan, self._args.own
        if arn := aws_plan(plan).certificate:
            return arn
        assert own
        return acm.Certificate(
            "own",
            certificate_body=own.certificate,
            private_key=pulumi.Output.secret(own.private_key),
            tags=tags(plan, "own"),
            opts=self._child,
        ).arn
