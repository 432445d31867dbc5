"""A host: an instance, its data volumes, and the alarms for what Prometheus can't see."""

from dataclasses import dataclass

import pulumi
from pulumi import ComponentResource, Output, ResourceOptions
from pulumi_aws import cloudwatch, ebs, ec2

from infra.aws.naming import named, tags
from infra.aws.region import aws_plan
from millrace.plan import Host as PlannedHost
from millrace.plan import Plan

# CloudWatch metric → what it means.
STATUS_CHECKS = {
    "StatusCheckFailed_System": "the machine below it is broken; AWS moves the instance by itself",
    "StatusCheckFailed_Instance": "the system doesn't answer: runbooks/replace-instance.md",
    "StatusCheckFailed_AttachedEBS": "its volumes don't answer: stop and start the instance",
}
# What an existing instance keeps though the plan says otherwise: it would be replaced for it.
# Replacing is an operation of its own (runbooks/upgrade-image.md), a host at a time.
KEPT = ["ami", "user_data", "placement_group"]


@dataclass(frozen=True)
class HostArgs:
    """``renew``: this host's instance may be replaced by one of today's image."""

    plan: Plan
    host: PlannedHost
    image: str
    user_data: str
    subnet: pulumi.Input[str]
    security_group: pulumi.Input[str]
    profile: pulumi.Input[str]
    placement: pulumi.Input[str]
    key: pulumi.Input[str]
    alarm_topic: pulumi.Input[str]
    renew: bool


class Host(ComponentResource):
    """``volumes``: EBS ids by the plan's volume name."""

    instance: ec2.Instance
    volumes: dict[str, Output[str]]

    def __init__(self, name: str, args: HostArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("millrace:aws:Host", name, None, opts)
        self._args = args
        self._child = ResourceOptions(parent=self)
        self._aws = aws_plan(args.plan)
        self.instance = self._make_instance()
        self.volumes = {v.name: self._make_volume(v.name) for v in args.host.volumes}
        for metric, meaning in STATUS_CHECKS.items():
            self._make_alarm(metric, meaning)
        self.register_outputs({"instance": self.instance.id, "volumes": self.volumes})

    def _make_instance(self) -> ec2.Instance:
        args, host = self._args, self._args.host
        options = ResourceOptions(
            # Its address is the plan's, so the successor can't be there beside it.
            delete_before_replace=True,
            ignore_changes=[] if args.renew else KEPT,
        )
        return ec2.Instance(
            host.name,
            ami=args.image,
            instance_type=self._aws.instances[host.name],
            subnet_id=args.subnet,
            private_ip=host.address,
            associate_public_ip_address=False,
            vpc_security_group_ids=[args.security_group],
            iam_instance_profile=args.profile,
            placement_group=args.placement,
            metadata_options={
                "http_endpoint": "enabled",
                "http_tokens": "required",
                "http_put_response_hop_limit": 1,
            },
            maintenance_options={"auto_recovery": "default"},
            # By hand or by another tool nobody ends it; `up` and `down` still may.
            disable_api_termination=True,
            force_destroy=True,
            root_block_device={
                "volume_type": "gp3",
                "volume_size": self._aws.root_disk.size,
                "encrypted": True,
                "kms_key_id": args.key,
                "delete_on_termination": True,
                "tags": tags(args.plan, f"{host.name}-root", host),
            },
            user_data=args.user_data,
            tags=tags(args.plan, host.name, host),
            opts=ResourceOptions.merge(self._child, options),
        )

    def _make_volume(self, name: str) -> Output[str]:
        args, planned = self._args, self._aws.volumes[name]
        volume = ebs.Volume(
            name,
            availability_zone=self._aws.subnet(args.host.zone).availability_zone,
            type="gp3",
            size=planned.disk.size,
            iops=planned.disk.iops,
            throughput=planned.disk.throughput,
            encrypted=True,
            kms_key_id=args.key,
            tags=tags(args.plan, name, args.host),
            opts=ResourceOptions.merge(self._child, ResourceOptions(protect=True)),
        )
        ec2.VolumeAttachment(
            name,
            device_name=planned.device,
            instance_id=self.instance.id,
            volume_id=volume.id,
            # Pulling a mounted volume would leave its last writes behind.
            stop_instance_before_detaching=True,
            opts=ResourceOptions.merge(self._child, ResourceOptions(delete_before_replace=True)),
        )
        return volume.id

    def _make_alarm(self, metric: str, meaning: str) -> None:
        args, host = self._args, self._args.host
        name = f"{host.name}-{metric.rpartition('_')[2].lower()}"
        cloudwatch.MetricAlarm(
            name,
            name=named(args.plan, name),
            alarm_description=f"{host.name}: {meaning}",
            namespace="AWS/EC2",
            metric_name=metric,
            dimensions={"InstanceId": self.instance.id},
            statistic="Maximum",
            period=60,
            evaluation_periods=2,
            comparison_operator="GreaterThanOrEqualToThreshold",
            threshold=1,
            treat_missing_data="missing",
            alarm_actions=[args.alarm_topic],
            ok_actions=[args.alarm_topic],
            tags=tags(args.plan, name, host),
            opts=self._child,
        )
