"""What AWS is documented to refuse, of what the program makes. Pure: a sentence for each refusal.

`made` are the inputs of the resources that are there, by their ids. A value that is unknown, as in
a preview, is refused by nobody.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

Inputs = Mapping[str, Any]


class Resource(NamedTuple):
    kind: str
    inputs: Inputs


Made = Mapping[str, Resource]

BALANCER = "aws:lb/loadBalancer:LoadBalancer"
INSTANCE = "aws:ec2/instance:Instance"
VOLUME = "aws:ebs/volume:Volume"
ATTACHMENT = "aws:ec2/volumeAttachment:VolumeAttachment"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
MOST_SPREAD = 7
SOURCES = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")
# kind → what its name has to match, and where that is said.
NAMES = {
    BALANCER: (
        r"(?!internal-)[A-Za-z0-9](-?[A-Za-z0-9]){0,31}",
        "ELB API, CreateLoadBalancer",
    ),
    "aws:lb/targetGroup:TargetGroup": (
        r"[A-Za-z0-9](-?[A-Za-z0-9]){0,31}",
        "ELB API, CreateTargetGroup",
    ),
    "aws:iam/role:Role": (r"[\w+=,.@-]{1,64}", "IAM API, CreateRole"),
    "aws:iam/instanceProfile:InstanceProfile": (
        r"[\w+=,.@-]{1,128}",
        "IAM API, CreateInstanceProfile",
    ),
    "aws:ec2/placementGroup:PlacementGroup": (
        r"[\x20-\x7e]{1,255}",
        "EC2 API, CreatePlacementGroup",
    ),
    "aws:ec2/securityGroup:SecurityGroup": (
        r"(?!sg-)[\w .:/()#,@\[\]+=&;{}!$*-]{1,255}",
        "EC2 API, CreateSecurityGroup",
    ),
}
BUCKET_NAME = re.compile(r"(?!xn--|sthree-)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def of_create(kind: str, given: Inputs, made: Made) -> Iterator[str]:
    """Why a resource can't be made."""
    yield from RULES.get(kind, _nothing)(given, made)
    name = given.get("name")  # a resource without one gets one from the provider
    if kind in NAMES and name is not None:
        pattern, source = NAMES[kind]
        if not re.fullmatch(pattern, name):
            yield f"the name {name} isn't allowed ({source})"


def of_delete(kind: str, given: Inputs) -> Iterator[str]:
    """Why a resource can't be removed."""
    ends_by_force = given.get("forceDestroy")
    if kind == INSTANCE and given.get("disableApiTermination") and not ends_by_force:
        yield "OperationNotPermitted: it is protected (EC2 User Guide, termination protection)"
    if kind == BALANCER and given.get("enableDeletionProtection"):
        yield "OperationNotPermitted: it is protected (ELB API, DeleteLoadBalancer)"
    # The EBS User Guide, "Detach an Amazon EBS volume": one that is mounted stays busy.
    if kind == ATTACHMENT and not given.get("stopInstanceBeforeDetaching"):
        yield "the volume is mounted, and stays busy until it isn't"


def _nothing(_given: Inputs, _made: Made) -> Iterator[str]:
    yield from ()


def _rule(kind: str) -> Callable[[Inputs, Made], Iterator[str]]:
    """EC2 API, AuthorizeSecurityGroupIngress and …Egress."""

    def refusals(given: Inputs, made: Made) -> Iterator[str]:
        if not given.get("securityGroupId"):
            yield "MissingParameter: a rule is one of a group"
        sources = [key for key in SOURCES if given.get(key)]
        if len(sources) != 1:
            yield f"InvalidParameterCombination: a rule has one source, not {sources}"
        if given["ipProtocol"] in ("tcp", "udp") and not (
            0 <= given.get("fromPort", -1) <= given.get("toPort", -1) <= 65535
        ):
            yield "InvalidParameterValue: ports are 0 to 65535, the first one first"
        what = ("securityGroupId", "ipProtocol", "fromPort", "toPort", *SOURCES)
        mine = [given.get(key) for key in what]
        for other in made.values():
            if other.kind == kind and [other.inputs.get(key) for key in what] == mine:
                yield "InvalidPermission.Duplicate: the rule is there already"

    return refusals


def _volume(given: Inputs, _made: Made) -> Iterator[str]:
    """The EBS User Guide, "General Purpose SSD volumes"; EC2 API, CreateVolume."""
    if "size" not in given:
        yield "MissingParameter: a volume has a size"
        return
    size, iops, throughput = given["size"], given.get("iops", 3000), given.get("throughput", 125)
    if given.get("type") != "gp3":
        return
    if not 1 <= size <= 16384:
        yield f"InvalidParameterValue: {size} GiB; gp3 has 1 to 16384"
    if not 3000 <= iops <= 16000 or iops > max(3000, 500 * size):
        yield f"InvalidParameterValue: {iops} IOPS; gp3 has 3000 to 16000, and 500 for each GiB"
    if not 125 <= throughput <= 1000 or throughput > iops / 4:
        yield f"InvalidParameterValue: {throughput} MiB/s; gp3 has 125 to 1000, and 1 for 4 IOPS"


def _instance(given: Inputs, made: Made) -> Iterator[str]:
    """VPC User Guide, "Subnet CIDR blocks"; EC2 API, RunInstances."""
    address = given.get("privateIp")
    subnet = made.get(given.get("subnetId", ""))
    if subnet and address:
        network = ip_network(subnet.inputs["cidrBlock"])
        place = int(ip_address(address)) - int(network.network_address)
        if ip_address(address) not in network or not 4 <= place < network.num_addresses - 1:
            yield f"InvalidParameterValue: {address} is none of {network}'s for instances"
    for other in made.values():
        if address and other.kind == INSTANCE and other.inputs.get("privateIp") == address:
            yield f"InvalidIPAddress.InUse: {address}"
    yield from _placement(given, made)


def _placement(given: Inputs, made: Made) -> Iterator[str]:
    """EC2 User Guide, "Placement strategies": seven running instances in a zone."""

    def place(inputs: Inputs) -> tuple[str | None, str | None]:
        subnet = made.get(inputs.get("subnetId", ""))
        return inputs.get("placementGroup"), subnet and subnet.inputs["availabilityZone"]

    group, zone = place(given)
    there = [other for other in made.values() if other.kind == INSTANCE]
    if group and sum(place(other.inputs) == (group, zone) for other in there) >= MOST_SPREAD:
        yield f"InsufficientInstanceCapacity: {group} has {MOST_SPREAD} instances in {zone}"


def _attachment(given: Inputs, made: Made) -> Iterator[str]:
    """EC2 API, AttachVolume."""
    instance, volume = made.get(given["instanceId"]), made.get(given["volumeId"])
    if instance and volume:
        subnet = made[instance.inputs["subnetId"]]
        zones = (subnet.inputs["availabilityZone"], volume.inputs["availabilityZone"])
        if len({*zones}) > 1:
            yield f"InvalidVolume.ZoneMismatch: the instance is in {zones[0]}, it in {zones[1]}"
    for other in made.values():
        if other.kind != ATTACHMENT:
            continue
        if other.inputs["volumeId"] == given["volumeId"]:
            yield "VolumeInUse: it is attached already"
        same_place = [other.inputs[k] == given[k] for k in ("instanceId", "deviceName")]
        if all(same_place):
            yield f"InvalidParameterValue: {given['deviceName']} is in use"


def _bucket(given: Inputs, made: Made) -> Iterator[str]:
    """S3 User Guide, "General purpose bucket naming rules"."""
    name = given.get("bucket")
    if name is None:
        return
    if not BUCKET_NAME.fullmatch(name) or ".." in name:
        yield f"InvalidBucketName: {name}"
    if any(other.inputs.get("bucket") == name for other in made.values() if "tags" in other.inputs):
        yield f"BucketAlreadyOwnedByYou: {name}"


RULES = {
    INGRESS: _rule(INGRESS),
    EGRESS: _rule(EGRESS),
    VOLUME: _volume,
    INSTANCE: _instance,
    ATTACHMENT: _attachment,
    "aws:s3/bucket:Bucket": _bucket,
}
