"""The whole plan on AWS."""

from dataclasses import dataclass
from pathlib import Path

from pulumi import ComponentResource, Output, ResourceOptions
from pulumi_aws import ec2, sns

from infra.aws.edge import Edge, EdgeArgs
from infra.aws.firewall import PUBLIC, Firewall
from infra.aws.first_boot import user_data
from infra.aws.flow_log import FlowLog
from infra.aws.host_logs import HostLogs
from infra.aws.hosts import Host, HostArgs
from infra.aws.identity import Identities, Storage
from infra.aws.naming import named, tags
from infra.aws.network import Names, Network
from infra.aws.region import Region, aws_plan
from infra.aws.storage import ARTIFACTS, Artifacts, Bucket, Key
from infra.certificates import Certificate
from millrace.plan import Plan


@dataclass(frozen=True)
class AwsClusterArgs:
    """``renew``: hosts whose instances may be replaced by ones of today's image.

    ``leaving``: all of it is about to be removed.
    """

    plan: Plan
    region: Region
    manifest: dict[str, dict[str, str]]
    artifacts: Path
    authorized_key: str
    certificate: Certificate | None
    renew: frozenset[str]
    leaving: bool


class AwsCluster(ComponentResource):
    """Network, firewall, key, buckets, logs, hosts with their volumes, names, and the public door.

    ``devices``: EBS ids by the plan's volume name. ``balancer``: the load balancer's ARN.
    """

    devices: dict[str, Output[str]]
    address: Output[str]
    balancer: Output[str]

    def __init__(
        self, name: str, args: AwsClusterArgs, opts: ResourceOptions | None = None
    ) -> None:
        super().__init__("millrace:aws:Cluster", name, None, opts)
        self._args = args
        self._child = ResourceOptions(parent=self)
        plan, account = args.plan, args.region.account
        self._network = Network("network", plan, self._child)
        self._firewall = Firewall("firewall", plan, self._network.vpc.id, self._child)
        FlowLog("flow-log", plan, self._network.vpc.id, self._child)
        self._key = Key("key", plan, account, self._child)
        self._identities = self._make_storage(plan, account)
        Names("names", plan, self._network.vpc.id, self._child)
        hosts = self._make_hosts(plan)
        self.devices = {name: id_ for host in hosts.values() for name, id_ in host.volumes.items()}
        edge = self._make_edge(plan, hosts)
        self.address, self.balancer = edge.address, edge.arn
        self.register_outputs({"address": self.address})

    def _make_storage(self, plan: Plan, account: str) -> Identities:
        artifacts = Artifacts(
            ARTIFACTS,
            plan,
            account,
            self._key.arn,
            self._args.manifest,
            self._args.artifacts,
            self._child,
        )
        archive = Bucket(
            "archive",
            plan,
            account,
            key=self._key.arn,
            protect=True,
            opts=self._child,
        )
        storage = Storage(
            artifacts=artifacts.arn,
            archive=archive.arn,
            key=self._key.arn,
            logs=HostLogs("host-logs", plan, self._child).arn,
        )
        return Identities("identities", plan, storage, self._child)

    def _make_hosts(self, plan: Plan) -> dict[str, Host]:
        args = self._args
        topic = sns.Topic(
            "alarms",
            name=named(plan, "alarms"),
            kms_master_key_id=self._key.arn,
            tags=tags(plan, "alarms"),
            opts=self._child,
        )
        region, placements = aws_plan(plan).region, self._make_placements(plan)
        return {
            host.name: Host(
                host.name,
                HostArgs(
                    plan=plan,
                    host=host,
                    image=args.region.image,
                    user_data=user_data(plan, host, region, args.authorized_key),
                    subnet=self._network.private[host.zone],
                    security_group=self._firewall.groups[host.group],
                    profile=self._identities.profiles[host.group],
                    placement=placements[host.name],
                    key=self._key.arn,
                    alarm_topic=topic.arn,
                    renew=host.name in args.renew,
                ),
                self._child,
            )
            for host in plan.hosts
        }

    def _make_placements(self, plan: Plan) -> dict[str, Output[str]]:
        """Placement groups by host: a rack that fails takes one host of a group in its zone."""
        planned = aws_plan(plan).placements
        groups = {
            name: ec2.PlacementGroup(
                name,
                name=named(plan, name),
                strategy="spread",
                tags=tags(plan, name),
                opts=self._child,
            ).name
            for name in dict.fromkeys(planned.values())
        }
        return {host: groups[name] for host, name in planned.items()}

    def _make_edge(self, plan: Plan, hosts: dict[str, Host]) -> Edge:
        args = EdgeArgs(
            plan=plan,
            vpc=self._network.vpc.id,
            subnets=list(self._network.public.values()),
            security_group=self._firewall.groups[PUBLIC],
            instances={name: host.instance.id for name, host in hosts.items()},
            own=self._args.certificate,
            protect=not self._args.leaving,
        )
        return Edge("edge", args, self._child)
