"""An AWS environment: looks at the region, refuses what can't be, declares the cluster."""

import pulumi
import pulumi_aws as aws

from infra.aws.cluster import AwsCluster, AwsClusterArgs
from infra.aws.region import aws_plan, observe, refuse_problems
from infra.aws.storage import artifacts_url
from infra.certificates import balancer_certificate
from infra.exports import export
from infra.keys import ensure_ssh_key
from millrace.common.errors import OperatorError
from millrace.common.paths import ARTIFACTS
from millrace.inventory import build_inventory
from millrace.plan import Plan


def declare(plan: Plan, manifest: dict[str, dict[str, str]]) -> None:
    planned = aws_plan(plan)
    # Also for who runs `pulumi destroy` by hand, which never gets to the refusals here.
    accounts = [planned.account] if planned.account else None
    provider = aws.Provider(plan.cluster, region=planned.region, allowed_account_ids=accounts)
    region = observe(plan, provider)
    refuse_problems(plan, region)
    config = pulumi.Config("millrace")
    args = AwsClusterArgs(
        plan=plan,
        region=region,
        manifest=manifest,
        artifacts=ARTIFACTS,
        authorized_key=ensure_ssh_key(plan.environment),
        certificate=None if planned.certificate else balancer_certificate(plan),
        renew=renewed(plan, config.get("renew") or ""),
        leaving=config.get_bool("leaving") or False,
    )
    cluster = AwsCluster(plan.cluster, args, pulumi.ResourceOptions(providers=[provider]))
    artifacts = artifacts_url(plan, region.account)
    known = pulumi.Output.all(cluster.balancer, pulumi.Output.all(**cluster.devices))
    inventory = known.apply(
        lambda found: build_inventory(
            plan, manifest, artifacts=artifacts, balancer=found[0], devices=found[1]
        )
    )
    export(plan, inventory, public=cluster.address)


def renewed(plan: Plan, hosts: str) -> frozenset[str]:
    """The hosts of `pulumi config set renew "kafka-1 kafka-2"`."""
    names = frozenset(hosts.split())
    if unknown := names - {host.name for host in plan.hosts}:
        raise OperatorError(
            f"renew: there is no host {', '.join(sorted(unknown))} in {plan.environment}",
            "pulumi config set renew HOST, with a host of `millrace plan`",
        )
    return names
