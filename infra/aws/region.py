"""What AWS offers this account in the region, and why the plan wouldn't fit there.

Observing is apart from judging. Both come before the first resource: an `up` that AWS would refuse
half-way has made nothing yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from math import ceil
from typing import NamedTuple

import pulumi
import pulumi_aws as aws
from pulumi_aws.ec2 import get_ami, get_instance_type_offerings, get_vpc, get_vpcs
from pulumi_aws.servicequotas import get_service_quota

from millrace.common.errors import OperatorError
from millrace.plan import Plan
from millrace.plan.aws import AwsPlan


class Quota(NamedTuple):
    service: str
    code: str
    what: str


# What a new account has too little of for a cluster (Service Quotas console; their defaults are in
# the AWS General Reference, "Service endpoints and quotas").
VCPUS = Quota("ec2", "L-1216C47A", "vCPUs of running on-demand standard instances")
ADDRESSES = Quota("ec2", "L-0263D0A3", "Elastic IP addresses")
NETWORKS = Quota("vpc", "L-F678F1CE", "VPCs")
DISKS = Quota("ebs", "L-7A658B76", "TiB of gp3 volumes")
QUOTAS = (VCPUS, ADDRESSES, NETWORKS, DISKS)


@dataclass(frozen=True)
class Region:
    """``offered`` are pairs of instance type and zone; ``networks`` other VPCs by their id.

    ``quotas``: how much of each the account may have in the region, by code.
    """

    account: str
    zones: frozenset[str]
    offered: frozenset[tuple[str, str]]
    image: str
    architecture: str
    networks: dict[str, IPv4Network]
    quotas: dict[str, float]


def observe(plan: Plan, provider: pulumi.ProviderResource) -> Region:
    """Asks AWS, as whoever the credentials of this shell belong to."""
    planned = aws_plan(plan)
    options = pulumi.InvokeOptions(provider=provider)
    try:
        account = aws.get_caller_identity(opts=options).account_id
        image = _image(planned, options)
        return Region(
            account=account,
            zones=frozenset(aws.get_availability_zones(state="available", opts=options).names),
            offered=frozenset(_offered(planned, options)),
            image=image.id,
            architecture=image.architecture,
            networks=dict(_networks(plan, options)),
            quotas={
                quota.code: get_service_quota(
                    service_code=quota.service, quota_code=quota.code, opts=options
                ).value
                for quota in QUOTAS
            },
        )
    except OperatorError:
        raise
    except Exception as error:  # the SDK raises nothing more exact for a failed call
        raise OperatorError(
            f"AWS {planned.region} doesn't answer as it should: {error}",
            "are there credentials? `aws sts get-caller-identity` must work in this shell; "
            "docs/aws.md lists the permissions; nothing was created or changed",
        ) from error


def problems(plan: Plan, region: Region) -> Iterator[str]:
    planned = aws_plan(plan)
    if planned.account and planned.account != region.account:
        yield f"these are credentials of account {region.account}, not of {planned.account}"
    needed = {subnet.availability_zone for subnet in planned.subnets}
    for zone in sorted(needed - region.zones):
        shown = ", ".join(sorted(region.zones)) or "none"
        yield f"zones: {zone} isn't available to account {region.account}; there are: {shown}"
    if region.architecture != planned.architecture:
        yield (
            f"image: {region.image} is for {region.architecture}, "
            f"the instance types are {planned.architecture}"
        )
    wanted = {
        (planned.instances[host.name], planned.subnet(host.zone).availability_zone)
        for host in plan.hosts
    }
    for kind, zone in sorted(wanted - region.offered):
        if zone in region.zones:
            yield f"instance type {kind} isn't offered in {zone}"
    own = IPv4Network(plan.network.subnet)
    for vpc, network in sorted(region.networks.items()):
        if network.overlaps(own):
            yield f"network.subnet: {own} overlaps {network} of {vpc}: they can't be connected"

    yield from _quota_problems(planned, region)


def _quota_problems(planned: AwsPlan, region: Region) -> Iterator[str]:
    """The plan's own needs: what else the account runs, AWS doesn't tell in this way."""
    needs = {
        VCPUS: planned.vcpus,
        ADDRESSES: len(planned.nat),
        NETWORKS: len(region.networks) + 1,
        DISKS: ceil(planned.disk_gibibytes / 1024),
    }
    for quota, need in needs.items():
        if need > region.quotas[quota.code]:
            yield (
                f"quota: {need} {quota.what} are needed, and the account may have"
                f" {region.quotas[quota.code]:g} in {planned.region}: aws service-quotas"
                f" request-service-quota-increase --service-code {quota.service}"
                f" --quota-code {quota.code} --desired-value {need} --region {planned.region}"
            )


def refuse_problems(plan: Plan, region: Region) -> None:
    if found := list(problems(plan, region)):
        raise OperatorError(
            "\n".join(found),
            f"change configs/aws.yaml or configs/environments/{plan.environment}.yaml, or ask AWS "
            "for what is lacking; nothing was created or changed",
        )


def aws_plan(plan: Plan) -> AwsPlan:
    assert plan.aws, f"{plan.environment} isn't on AWS"
    return plan.aws


def _image(planned: AwsPlan, options: pulumi.InvokeOptions) -> aws.ec2.AwaitableGetAmiResult:
    image = planned.image
    key, value = ("image-id", image.id) if image.id else ("name", image.name)
    try:
        return get_ami(
            owners=[image.owner],
            filters=[{"name": key, "values": [value]}],
            include_deprecated=True,
            opts=options,
        )
    except Exception as error:
        raise OperatorError(
            f"image {value} of owner {image.owner} isn't in {planned.region}: {error}",
            "put the name of one that is into configs/aws.yaml: aws ec2 describe-images --owners "
            f"{image.owner} --filters 'Name=name,Values=debian-12-*' --region {planned.region}",
        ) from error


def _offered(planned: AwsPlan, options: pulumi.InvokeOptions) -> Iterator[tuple[str, str]]:
    types = sorted(set(planned.instances.values()))
    found = get_instance_type_offerings(
        filters=[{"name": "instance-type", "values": types}],
        location_type="availability-zone",
        opts=options,
    )
    yield from zip(found.instance_types, found.locations, strict=True)


def _networks(plan: Plan, options: pulumi.InvokeOptions) -> Iterator[tuple[str, IPv4Network]]:
    for vpc in get_vpcs(opts=options).ids:
        found = get_vpc(id=vpc, opts=options)
        if found.tags.get("millrace.stack") != plan.environment:
            yield vpc, IPv4Network(found.cidr_block)
