"""Where hosts' logs outlive them: the log group that each host's CloudWatch agent writes to."""

from pulumi import ComponentResource, Output, ResourceOptions
from pulumi_aws import cloudwatch

from infra.aws.naming import tags
from infra.aws.region import aws_plan
from millrace.plan import Plan

AGENT = "cloudwatch_agent"


class HostLogs(ComponentResource):
    """``arn`` is the group's."""

    arn: Output[str]

    def __init__(self, name: str, plan: Plan, opts: ResourceOptions | None = None) -> None:
        super().__init__("millrace:aws:HostLogs", name, None, opts)
        group = cloudwatch.LogGroup(
            "hosts",
            name=aws_plan(plan).log_group,
            retention_in_days=plan.services[AGENT].settings["logs"]["keep_days"],
            tags=tags(plan, "hosts"),
            opts=ResourceOptions(parent=self),
        )
        self.arn = group.arn
        self.register_outputs({"arn": self.arn})
