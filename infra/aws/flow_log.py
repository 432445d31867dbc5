"""What the security groups refused: a call that should work and doesn't, or somebody who tries."""

import json

import pulumi
from pulumi import ComponentResource, ResourceOptions
from pulumi_aws import cloudwatch, ec2, iam

from infra.aws.identity import log_writing, trust
from infra.aws.naming import named, tags
from millrace.plan import Plan

KEEP_DAYS = 30
# Lines of what passes would cost more than the network itself: each event crosses it nine times.
TRAFFIC = "REJECT"


class FlowLog(ComponentResource):
    """Of the whole VPC, in a CloudWatch log group (VPC User Guide, "Publish flow logs")."""

    def __init__(
        self, name: str, plan: Plan, network: pulumi.Input[str], opts: ResourceOptions | None = None
    ) -> None:
        super().__init__("millrace:aws:FlowLog", name, None, opts)
        child = ResourceOptions(parent=self)
        group = cloudwatch.LogGroup(
            "refused",
            name=f"/{plan.cluster}/refused",
            retention_in_days=KEEP_DAYS,
            tags=tags(plan, "refused"),
            opts=child,
        )
        role = iam.Role(
            "flow-log",
            name=named(plan, "flow-log"),
            assume_role_policy=trust("vpc-flow-logs.amazonaws.com"),
            tags=tags(plan, "flow-log"),
            opts=child,
        )
        allowed = iam.RolePolicy(
            "flow-log", role=role.id, policy=group.arn.apply(writes), opts=child
        )
        ec2.FlowLog(
            "refused",
            vpc_id=network,
            traffic_type=TRAFFIC,
            log_destination=group.arn,
            iam_role_arn=role.arn,
            max_aggregation_interval=60,
            tags=tags(plan, "refused"),
            opts=ResourceOptions.merge(child, ResourceOptions(depends_on=[allowed])),
        )
        self.register_outputs({"group": group.name})


def writes(group: str) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [log_writing(group)]})
