"""The public doors: a load balancer that speaks TLS, signs people in and hands on to the proxies.

Behind it TLS goes on: it takes the certificates of the environment's own authority as they are
(Application Load Balancer User Guide, "Target groups").
"""

from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi import ComponentResource, Output, ResourceOptions
from pulumi_aws import acm, lb

from infra.aws.firewall import public_port
from infra.aws.naming import named, tags
from infra.aws.region import aws_plan
from infra.certificates import Certificate
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_secrets
from millrace.config import PRODUCERS, READERS
from millrace.plan import Plan
from millrace.plan.aws import BALANCED

SERVICE = "edge_proxy"
# Client → the proxy's port for it.
DOORS = {READERS: "insights", PRODUCERS: "intake"}
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
    """``address``: where readers find it. ``arn``: what signs its word for who has signed in."""

    address: Output[str]
    arn: Output[str]

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
        self.arn = balancer.arn
        certificate = self._certificate()
        for client in BALANCED:
            self._listen(balancer, client, certificate)
        self.address = balancer.dns_name.apply(lambda name: f"https://{name}")
        self.register_outputs({"address": self.address, "arn": self.arn})

    def _listen(
        self, balancer: lb.LoadBalancer, client: str, certificate: pulumi.Input[str]
    ) -> None:
        plan, door = self._args.plan, DOORS[client]
        forward = {"type": "forward", "target_group_arn": self._make_targets(door)}
        signs_in = client == READERS and aws_plan(plan).sign_in is not None
        listener = lb.Listener(
            door,
            load_balancer_arn=balancer.arn,
            port=public_port(plan, client),
            protocol="HTTPS",
            ssl_policy="ELBSecurityPolicy-TLS13-1-2-2021-06",
            certificate_arn=certificate,
            default_actions=[self._sign_in(), forward | {"order": 2}] if signs_in else [forward],
            tags=tags(plan, door),
            opts=self._child,
        )
        if signs_in:
            lb.ListenerRule(
                "programs",
                listener_arn=listener.arn,
                priority=1,
                conditions=[
                    {"http_header": {"http_header_name": "Authorization", "values": ["Bearer *"]}}
                ],
                actions=[forward],
                tags=tags(plan, "programs"),
                opts=self._child,
            )

    def _sign_in(self) -> dict[str, Any]:
        """Who comes without a key signs in first; the API verifies what the balancer says then."""
        provider = aws_plan(self._args.plan).sign_in
        assert provider
        said = provider.model_dump(
            include={
                "issuer",
                "authorization_endpoint",
                "token_endpoint",
                "user_info_endpoint",
                "client_id",
            }
        )
        secret = pulumi.Output.secret(self._client_secret(provider.client_secret_file))
        return {
            "type": "authenticate-oidc",
            "order": 1,
            "authenticate_oidc": said | {"client_secret": secret, "scope": "openid email"},
        }

    def _client_secret(self, name: str) -> str:
        path = stack_secrets(self._args.plan.environment) / name
        if not path.is_file():
            raise OperatorError(
                f"aws.sign_in names the file {name}, which isn't there",
                f"put the secret that your identity provider gave into {path}",
            )
        return path.read_text().strip()

    def _make_targets(self, door: str) -> Output[str]:
        plan = self._args.plan
        port = plan.services[SERVICE].ports[door]
        group = lb.TargetGroup(
            door,
            name=named(plan, door),
            vpc_id=self._args.vpc,
            target_type="instance",
            port=port,
            protocol="HTTPS",
            # Longer than any answer but a live stream, which its page opens again.
            deregistration_delay=30,
            health_check={
                "path": "/healthz",
                "protocol": "HTTPS",
                "matcher": "200",
                "interval": 5,
                "timeout": 2,
                "healthy_threshold": 2,
                "unhealthy_threshold": 2,
            },
            tags=tags(plan, door),
            opts=self._child,
        )
        for host in plan.hosts_of(SERVICE):
            lb.TargetGroupAttachment(
                f"{door}-{host.name}",
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
