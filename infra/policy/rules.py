"""The rules, as pure functions over resources; their first lines are what an operator reads.

Types and properties are those of pulumi-aws 7. A rule of one resource yields what is wrong with it;
a rule of a stack sees all resources and yields which one is wrong and what with it.

A value that a preview can't know yet raises as soon as it is read, and Pulumi then says that the
rule waits for `up`. So a rule reads nothing it doesn't need, and finds what belongs together by
the engine's record of dependencies, which a preview does know.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from infra.policy.settings import Settings

VOLUME = "aws:ebs/volume:Volume"
INSTANCE = "aws:ec2/instance:Instance"
EIP = "aws:ec2/eip:Eip"
EIP_ASSOCIATION = "aws:ec2/eipAssociation:EipAssociation"
SUBNET = "aws:ec2/subnet:Subnet"
SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
SECURITY_GROUP_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
INGRESS_RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
LOAD_BALANCER = "aws:lb/loadBalancer:LoadBalancer"
BUCKET = "aws:s3/bucket:Bucket"
PUBLIC_ACCESS_BLOCK = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
BUCKET_VERSIONING = "aws:s3/bucketVersioning:BucketVersioning"
BUCKET_ENCRYPTION = (
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
)
BUCKET_POLICY = "aws:s3/bucketPolicy:BucketPolicy"
IAM_POLICIES = (
    "aws:iam/policy:Policy",
    "aws:iam/rolePolicy:RolePolicy",
    "aws:iam/userPolicy:UserPolicy",
    "aws:iam/groupPolicy:GroupPolicy",
)
ROLE = "aws:iam/role:Role"
ATTACHMENTS = (
    "aws:iam/policyAttachment:PolicyAttachment",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    "aws:iam/userPolicyAttachment:UserPolicyAttachment",
    "aws:iam/groupPolicyAttachment:GroupPolicyAttachment",
)
STACK = "pulumi:pulumi:Stack"

AWS_MANAGED = ":iam::aws:policy/"  # in the ARN of a policy that AWS writes, and may widen


@dataclass(frozen=True)
class Resource:
    """What a rule sees of a resource; ``depends``: property -> URNs its value comes from."""

    type: str
    urn: str
    props: Mapping[str, Any]
    protect: bool = False
    depends: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def tags(self) -> Mapping[str, str]:
        return self.props.get("tags") or {}


Finding = tuple[Resource, str]


# One resource at a time


def encrypted_disks(resource: Resource, settings: Settings) -> Iterator[str]:
    """Disks are encrypted at rest."""
    if resource.type == VOLUME and not resource.props.get("encrypted"):
        yield "set encrypted"
    if resource.type == INSTANCE:
        if not (resource.props.get("rootBlockDevice") or {}).get("encrypted"):
            yield "set rootBlockDevice.encrypted"
        for disk in resource.props.get("ebsBlockDevices") or []:
            if not disk.get("encrypted"):
                yield f"set encrypted on the disk {disk.get('deviceName')}"


def no_public_address(resource: Resource, settings: Settings) -> Iterator[str]:
    """No host has a public address: who comes in comes through the load balancer."""
    # Unset means whatever the subnet says, so it must say false.
    if resource.type == INSTANCE and resource.props.get("associatePublicIpAddress") is not False:
        yield "set associatePublicIpAddress to false"
    if resource.type == EIP and "instance" in resource.props:
        yield "an Elastic IP may belong to a NAT gateway, not to an instance"
    if resource.type == EIP_ASSOCIATION:
        yield "an Elastic IP may belong to a NAT gateway, not to an instance"


def session_metadata(resource: Resource, settings: Settings) -> Iterator[str]:
    """Instance metadata answers only to session tokens (IMDSv2), and only on the instance."""
    if resource.type != INSTANCE:
        return
    options = resource.props.get("metadataOptions") or {}
    if options.get("httpTokens") != "required":
        yield "set metadataOptions.httpTokens to required"
    hops = options.get("httpPutResponseHopLimit")
    if hops is None or hops > settings.metadata_hop_limit:
        yield f"set metadataOptions.httpPutResponseHopLimit to {settings.metadata_hop_limit}"


def required_tags(resource: Resource, settings: Settings) -> Iterator[str]:
    """Tags say which cluster, stack and host a resource belongs to."""
    if resource.type not in settings.tagged:
        return
    required = list(settings.tags.everywhere)
    if resource.type in (INSTANCE, VOLUME):
        required += settings.tags.hosts
    if missing := [tag for tag in required if not resource.tags.get(tag)]:
        yield f"missing: {', '.join(missing)}"


def protected_data(resource: Resource, settings: Settings) -> Iterator[str]:
    """What holds data is protected: the engine refuses to remove it."""
    if resource.type in settings.protected and not resource.protect:
        yield "declare it with ResourceOptions(protect=True)"


def no_wildcard_permissions(resource: Resource, settings: Settings) -> Iterator[str]:
    """No IAM policy allows every action on every resource."""
    if resource.type not in IAM_POLICIES:
        return
    for statement in _statements(resource.props["policy"]):
        if statement["Effect"] != "Allow" or "*" not in _listed(statement.get("Resource")):
            continue
        if "NotAction" in statement:
            yield "a statement allows all actions but some (NotAction) on *"
        for action in _listed(statement.get("Action")):
            if action == "*" or action.endswith(":*"):
                yield f"a statement allows {action} on *"


def own_permissions(resource: Resource, settings: Settings) -> Iterator[str]:
    """Permissions are written here: none of AWS's own policies, which are broad, is attached."""
    attached: list[str] = []
    if resource.type in ATTACHMENTS:
        attached = [resource.props["policyArn"]]
    if resource.type == ROLE:
        attached = resource.props.get("managedPolicyArns") or []
    for arn in attached:
        if AWS_MANAGED in arn:
            yield f"{arn}: write down the actions that are needed in its place"


# The whole stack


def closed_to_the_internet(resources: Sequence[Resource], settings: Settings) -> Iterator[Finding]:
    """The Internet reaches the load balancer's doors and nothing else."""
    balancers = _groups_of(resources, LOAD_BALANCER, "securityGroups")
    hosts = _groups_of(resources, INSTANCE, "vpcSecurityGroupIds")
    for resource in resources:
        for ingress in _ingresses(resource):
            if not (everyone := [cidr for cidr in ingress.sources if _is_everyone(cidr)]):
                continue
            at_balancers = ingress.groups and ingress.groups <= balancers - hosts
            if not (at_balancers and ingress.is_one_of(settings.doors)):
                yield resource, f"lets {', '.join(everyone)} in on {ingress.shown}"


def buckets_private(resources: Sequence[Resource], settings: Settings) -> Iterator[Finding]:
    """Buckets block all public access."""
    blocks = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    for bucket, block in _buckets_with(resources, PUBLIC_ACCESS_BLOCK):
        if off := [key for key in blocks if not (block and block.props.get(key))]:
            yield bucket, f"a BucketPublicAccessBlock must set {', '.join(off)}"


def buckets_versioned(resources: Sequence[Resource], settings: Settings) -> Iterator[Finding]:
    """Buckets keep the versions of what is overwritten or deleted."""
    for bucket, versioning in _buckets_with(resources, BUCKET_VERSIONING):
        configured = versioning.props["versioningConfiguration"] if versioning else {}
        if configured.get("status") != "Enabled":
            yield bucket, "a BucketVersioning must set status to Enabled"


def buckets_encrypted(resources: Sequence[Resource], settings: Settings) -> Iterator[Finding]:
    """Buckets are encrypted with a key of ours: who may read them is then our decision alone."""
    for bucket, encryption in _buckets_with(resources, BUCKET_ENCRYPTION):
        rules = encryption.props["rules"] if encryption else []
        defaults = [rule.get("applyServerSideEncryptionByDefault") or {} for rule in rules]
        if not any(default.get("sseAlgorithm") == "aws:kms" for default in defaults):
            yield bucket, "a BucketServerSideEncryptionConfiguration must set aws:kms"


def buckets_tls_only(resources: Sequence[Resource], settings: Settings) -> Iterator[Finding]:
    """Buckets refuse requests without TLS."""
    for bucket, policy in _buckets_with(resources, BUCKET_POLICY):
        statements = _statements(policy.props["policy"]) if policy else []
        if not any(_denies_plain_text(statement) for statement in statements):
            yield bucket, "a BucketPolicy must deny s3:* where aws:SecureTransport is false"


def hosts_spread_over_zones(resources: Sequence[Resource], settings: Settings) -> Iterator[Finding]:
    """The hosts of each group stand in different zones."""
    by_urn = {resource.urn: resource for resource in resources}
    groups = defaultdict(list)
    for instance in resources:
        # An instance without the tag is another rule's finding.
        if instance.type == INSTANCE and (group := instance.tags.get(settings.tags.group)):
            groups[group].append(instance)
    for group, instances in groups.items():
        zones = {_zone(instance, by_urn) for instance in instances}
        wanted = min(len(instances), settings.zones)
        if len(zones) < wanted:
            yield (
                min(instances, key=lambda each: each.urn),  # the engine has no order of its own
                f"the {len(instances)} hosts of {group} stand in {', '.join(sorted(zones))}; "
                f"they need {wanted} zones",
            )


def replicated_enough(resources: Sequence[Resource], settings: Settings) -> Iterator[Finding]:
    """Every copy count is high enough that a zone may be lost."""
    for stack in resources:
        if stack.type != STACK:
            continue
        if "inventory" not in stack.props:
            yield stack, "exports no inventory, so its replication can't be checked"
            continue
        exported = stack.props["inventory"]["all"]["vars"]["millrace"]
        for what, least in settings.replication.model_dump().items():
            if (planned := exported["replication"][what]) < least:
                yield stack, f"replication.{what} is {planned:g}, at least {least} is needed"
        for name, topic in exported["topics"].items():
            if topic["replication"] < settings.replication.kafka:
                yield stack, f"topic {name} has {topic['replication']:g} copies"
            if int(topic["config"]["min.insync.replicas"]) < settings.replication.min_insync:
                yield stack, f"topic {name} accepts writes with too few copies in sync"


RESOURCE_RULES = (
    encrypted_disks,
    no_public_address,
    session_metadata,
    required_tags,
    protected_data,
    no_wildcard_permissions,
    own_permissions,
)
STACK_RULES = (
    closed_to_the_internet,
    buckets_private,
    buckets_versioned,
    buckets_encrypted,
    buckets_tls_only,
    hosts_spread_over_zones,
    replicated_enough,
)


@dataclass(frozen=True)
class Ingress:
    groups: frozenset[str]  # URNs of the security groups it opens
    sources: Sequence[str]
    protocol: str
    ports: tuple[int | None, int | None]

    def is_one_of(self, ports: Collection[int]) -> bool:
        first, last = self.ports
        return self.protocol == "tcp" and first == last and first in ports

    @property
    def shown(self) -> str:
        first, last = self.ports
        return f"protocol {self.protocol}, ports {first} to {last}"


def _ingresses(resource: Resource) -> Iterator[Ingress]:
    """The three ways to write an ingress rule."""
    groups = frozenset(resource.depends.get("securityGroupId", ()))
    props = resource.props
    if resource.type == INGRESS_RULE:
        sources = [props[key] for key in ("cidrIpv4", "cidrIpv6") if key in props]
        yield Ingress(groups, sources, props["ipProtocol"], _ports(props))
    if resource.type == SECURITY_GROUP_RULE and props["type"] == "ingress":
        yield Ingress(groups, _cidr_blocks(props), props["protocol"], _ports(props))
    if resource.type == SECURITY_GROUP:
        for rule in props.get("ingress") or []:
            own = frozenset({resource.urn})
            yield Ingress(own, _cidr_blocks(rule), rule["protocol"], _ports(rule))


def _ports(rule: Mapping[str, Any]) -> tuple[int | None, int | None]:
    # The engine's numbers are floats.
    first, last = (rule.get(key) for key in ("fromPort", "toPort"))
    return first and int(first), last and int(last)


def _cidr_blocks(rule: Mapping[str, Any]) -> list[str]:
    return [*(rule.get("cidrBlocks") or []), *(rule.get("ipv6CidrBlocks") or [])]


def _is_everyone(cidr: str) -> bool:
    return ip_network(cidr, strict=False).prefixlen == 0


def _groups_of(resources: Sequence[Resource], type_: str, key: str) -> set[str]:
    """URNs of the security groups that resources of a type stand in."""
    return {
        urn
        for resource in resources
        if resource.type == type_
        for urn in resource.depends.get(key, ())
    }


def _buckets_with(
    resources: Sequence[Resource], type_: str
) -> Iterator[tuple[Resource, Resource | None]]:
    """Each bucket with the resource of a type that configures it."""
    configuring = {
        urn: resource
        for resource in resources
        if resource.type == type_
        for urn in resource.depends.get("bucket", ())
    }
    for resource in resources:
        if resource.type == BUCKET:
            yield resource, configuring.get(resource.urn)


def _zone(instance: Resource, by_urn: Mapping[str, Resource]) -> str:
    """The subnet's zone, where there is one: a preview doesn't know the instance's own yet."""
    sources = [by_urn[urn] for urn in instance.depends.get("subnetId", ()) if urn in by_urn]
    subnet = next((each for each in sources if each.type == SUBNET), instance)
    return subnet.props["availabilityZone"]


def _statements(policy: str | Mapping[str, Any]) -> list[Mapping[str, Any]]:
    document = json.loads(policy) if isinstance(policy, str) else policy
    return _listed(document["Statement"])


def _denies_plain_text(statement: Mapping[str, Any]) -> bool:
    """AWS, "Restrict access to only HTTPS requests"."""
    condition = statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport")
    return (
        statement["Effect"] == "Deny"
        and statement.get("Principal") in ("*", {"AWS": "*"})
        and "s3:*" in _listed(statement.get("Action"))
        and str(condition).lower() == "false"
    )


def _listed(value: Any) -> list[Any]:
    """IAM's documents write a list of one as the one."""
    if value is None:
        return []
    return [value] if isinstance(value, str | Mapping) else list(value)
