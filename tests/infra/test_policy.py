"""The rules of the policy pack: an environment that passes them all, and what turns each red."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from infra.policy import rules
from infra.policy.pack import policies, policy_name
from infra.policy.rules import RESOURCE_RULES, STACK_RULES, Resource
from infra.policy.settings import load_settings

DEMANDS = load_settings()
TAGS = dict.fromkeys(DEMANDS.tags.everywhere, "x")
HOST_TAGS = TAGS | dict.fromkeys(DEMANDS.tags.hosts, "kafka")
TLS_ONLY = {
    "Effect": "Deny",
    "Principal": "*",
    "Action": "s3:*",
    "Resource": "*",
    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
}
INVENTORY = {
    "replication": {"kafka": 3, "min_insync": 2, "cassandra": 3, "hdfs": 3, "sentinel_quorum": 2},
    "topics": {"events": {"replication": 3, "config": {"min.insync.replicas": "2"}}},
}


def policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def resource(type_: str, name: str, *, depends: dict[str, list[str]] | None = None, **props: Any):
    return Resource(type_, name, props, depends=depends or {})


def exported(**changes: Any) -> dict[str, Any]:
    return {"all": {"vars": {"millrace": INVENTORY | changes}}}


def clean_stack() -> list[Resource]:
    """Three hosts with a data volume each, a load balancer, a bucket, a role: nothing to find."""
    hosts = [
        made
        for zone in "abc"
        for made in (
            resource(rules.SUBNET, f"subnet-{zone}", availabilityZone=zone, tags=TAGS),
            resource(
                rules.INSTANCE,
                f"kafka-{zone}",
                tags=HOST_TAGS,
                associatePublicIpAddress=False,
                rootBlockDevice={"encrypted": True},
                metadataOptions={"httpTokens": "required", "httpPutResponseHopLimit": 1},
                depends={"subnetId": [f"subnet-{zone}"], "vpcSecurityGroupIds": ["hosts"]},
            ),
            replace(
                resource(rules.VOLUME, f"data-{zone}", tags=HOST_TAGS, encrypted=True),
                protect=True,
            ),
        )
    ]
    edge = [
        resource(rules.SECURITY_GROUP, "hosts", tags=TAGS),
        resource(rules.SECURITY_GROUP, "balancer", tags=TAGS),
        resource(rules.EIP, "nat", tags=TAGS),
        resource(rules.LOAD_BALANCER, "edge", tags=TAGS, depends={"securityGroups": ["balancer"]}),
        resource(
            rules.INGRESS_RULE,
            "https",
            cidrIpv4="0.0.0.0/0",
            ipProtocol="tcp",
            fromPort=443,
            toPort=443,
            depends={"securityGroupId": ["balancer"]},
        ),
        resource(
            rules.INGRESS_RULE,
            "between-hosts",
            ipProtocol="tcp",
            fromPort=9092,
            toPort=9092,
            depends={"securityGroupId": ["hosts"]},
        ),
    ]
    on_bucket = {"bucket": ["archive"]}
    storage = [
        resource(rules.BUCKET, "archive", tags=TAGS),
        resource(
            rules.PUBLIC_ACCESS_BLOCK,
            "block",
            blockPublicAcls=True,
            blockPublicPolicy=True,
            ignorePublicAcls=True,
            restrictPublicBuckets=True,
            depends=on_bucket,
        ),
        resource(
            rules.BUCKET_VERSIONING,
            "versioning",
            versioningConfiguration={"status": "Enabled"},
            depends=on_bucket,
        ),
        resource(
            rules.BUCKET_ENCRYPTION,
            "encryption",
            rules=[{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms"}}],
            depends=on_bucket,
        ),
        resource(rules.BUCKET_POLICY, "tls", policy=policy(TLS_ONLY), depends=on_bucket),
    ]
    reads = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": "arn:aws:s3:::archive/*"}
    role = resource("aws:iam/rolePolicy:RolePolicy", "reads", policy=policy(reads))
    return [*hosts, *edge, *storage, role, resource(rules.STACK, "stack", inventory=exported())]


def changed(name: str, **props: Any) -> list[Resource]:
    """The clean stack with other properties of one resource; None: the property isn't set."""

    def change(each: Resource) -> Resource:
        merged = {**each.props, **props}
        return replace(each, props={k: v for k, v in merged.items() if v is not None})

    return [change(each) if each.urn == name else each for each in clean_stack()]


def without(name: str) -> list[Resource]:
    return [each for each in clean_stack() if each.urn != name]


def plus(type_: str, **given: Any) -> list[Resource]:
    return [*clean_stack(), resource(type_, "new", **given)]


def unprotected(name: str) -> list[Resource]:
    return [replace(each, protect=False) if each.urn == name else each for each in clean_stack()]


def balanced_hosts() -> list[Resource]:
    """The hosts stand in the load balancer's group, which lets everyone in."""
    both = {"subnetId": ["subnet-a"], "vpcSecurityGroupIds": ["hosts", "balancer"]}
    return [
        replace(each, depends=both) if each.urn == "kafka-a" else each for each in clean_stack()
    ]


def allows(**statement: Any) -> list[Resource]:
    return changed("reads", policy=policy({"Effect": "Allow", "Resource": "*", **statement}))


def findings(rule: Callable, stack: Sequence[Resource]) -> list[tuple[str, str]]:
    if rule in RESOURCE_RULES:
        return [(each.urn, found) for each in stack for found in rule(each, DEMANDS)]
    return [(each.urn, found) for each, found in rule(stack, DEMANDS)]


OPEN = {"cidrBlocks": ["0.0.0.0/0"], "protocol": "tcp", "fromPort": 22, "toPort": 22}
TOKENS = {"httpTokens": "required"}
ADMINISTRATOR = "arn:aws:iam::aws:policy/AdministratorAccess"

# rule, stack, which resource is wrong, a part of what is said about it
RED = [
    (rules.encrypted_disks, changed("data-a", encrypted=None), "data-a", "set encrypted"),
    (rules.encrypted_disks, changed("data-a", encrypted=False), "data-a", "set encrypted"),
    (rules.encrypted_disks, changed("kafka-a", rootBlockDevice=None), "kafka-a", "rootBlockDevice"),
    (
        rules.encrypted_disks,
        changed("kafka-a", ebsBlockDevices=[{"deviceName": "/dev/sdf"}]),
        "kafka-a",
        "/dev/sdf",
    ),
    (
        rules.no_public_address,
        changed("kafka-a", associatePublicIpAddress=True),
        "kafka-a",
        "associatePublicIpAddress",
    ),
    (
        rules.no_public_address,
        changed("kafka-a", associatePublicIpAddress=None),
        "kafka-a",
        "associatePublicIpAddress",
    ),
    (rules.no_public_address, plus(rules.EIP, tags=TAGS, instance="i-1"), "new", "Elastic IP"),
    (rules.no_public_address, plus(rules.EIP_ASSOCIATION), "new", "Elastic IP"),
    (
        rules.session_metadata,
        changed("kafka-a", metadataOptions={"httpPutResponseHopLimit": 1}),
        "kafka-a",
        "httpTokens",
    ),
    (rules.session_metadata, changed("kafka-a", metadataOptions=TOKENS), "kafka-a", "HopLimit"),
    (
        rules.session_metadata,
        changed("kafka-a", metadataOptions=TOKENS | {"httpPutResponseHopLimit": 2}),
        "kafka-a",
        "HopLimit",
    ),
    (rules.required_tags, changed("edge", tags=None), "edge", "missing: millrace.cluster"),
    (rules.required_tags, changed("data-a", tags=TAGS), "data-a", "missing: millrace.host"),
    (rules.protected_data, unprotected("data-a"), "data-a", "protect=True"),
    (rules.no_wildcard_permissions, allows(Action="*"), "reads", "allows *"),
    (rules.no_wildcard_permissions, allows(Action=["s3:*"]), "reads", "allows s3:*"),
    (rules.no_wildcard_permissions, allows(NotAction="iam:*"), "reads", "NotAction"),
    *(
        (rules.own_permissions, plus(type_, policyArn=ADMINISTRATOR), "new", "AdministratorAccess")
        for type_ in rules.ATTACHMENTS
    ),
    (
        rules.own_permissions,
        plus(rules.ROLE, tags=TAGS, managedPolicyArns=[ADMINISTRATOR]),
        "new",
        "AdministratorAccess",
    ),
    (rules.closed_to_the_internet, changed("https", toPort=444.0), "https", "443 to 444"),
    (rules.closed_to_the_internet, changed("https", fromPort=80, toPort=80), "https", "80 to 80"),
    (rules.closed_to_the_internet, changed("https", ipProtocol="-1"), "https", "protocol -1"),
    (
        rules.closed_to_the_internet,
        changed("between-hosts", cidrIpv6="::/0"),
        "between-hosts",
        "::",
    ),
    (rules.closed_to_the_internet, balanced_hosts(), "https", "0.0.0.0/0"),
    (rules.closed_to_the_internet, without("edge"), "https", "0.0.0.0/0"),
    (rules.closed_to_the_internet, changed("hosts", ingress=[OPEN]), "hosts", "ports 22"),
    (
        rules.closed_to_the_internet,
        plus(rules.SECURITY_GROUP_RULE, type="ingress", **OPEN),
        "new",
        "ports 22",
    ),
    (rules.buckets_private, without("block"), "archive", "blockPublicAcls"),
    (
        rules.buckets_private,
        changed("block", restrictPublicBuckets=False),
        "archive",
        "must set restrictPublicBuckets",
    ),
    (rules.buckets_versioned, without("versioning"), "archive", "Enabled"),
    (
        rules.buckets_versioned,
        changed("versioning", versioningConfiguration={"status": "Suspended"}),
        "archive",
        "Enabled",
    ),
    (rules.buckets_encrypted, without("encryption"), "archive", "aws:kms"),
    (rules.buckets_encrypted, changed("encryption", rules=[{}]), "archive", "aws:kms"),
    (rules.buckets_tls_only, without("tls"), "archive", "SecureTransport"),
    (
        rules.buckets_tls_only,
        changed("tls", policy=policy(TLS_ONLY | {"Effect": "Allow"})),
        "archive",
        "SecureTransport",
    ),
    (
        rules.hosts_spread_over_zones,
        changed("subnet-b", availabilityZone="a"),
        "kafka-a",
        "the 3 hosts of kafka stand in a, c; they need 3 zones",
    ),
    (
        rules.replicated_enough,
        changed("stack", inventory=exported(replication=INVENTORY["replication"] | {"hdfs": 2})),
        "stack",
        "replication.hdfs is 2, at least 3 is needed",
    ),
    (
        rules.replicated_enough,
        changed(
            "stack",
            inventory=exported(
                topics={"events": {"replication": 2, "config": {"min.insync.replicas": "2"}}}
            ),
        ),
        "stack",
        "topic events has 2 copies",
    ),
    (
        rules.replicated_enough,
        changed(
            "stack",
            inventory=exported(
                topics={"events": {"replication": 3, "config": {"min.insync.replicas": "1"}}}
            ),
        ),
        "stack",
        "too few copies in sync",
    ),
    (rules.replicated_enough, changed("stack", inventory=None), "stack", "exports no inventory"),
]


@pytest.mark.parametrize("rule", [*RESOURCE_RULES, *STACK_RULES], ids=policy_name)
def test_a_clean_environment_passes(rule: Callable) -> None:
    assert findings(rule, clean_stack()) == []


@pytest.mark.parametrize(
    ("rule", "stack", "wrong", "said"), RED, ids=[f"{policy_name(r)}-{s}" for r, _, _, s in RED]
)
def test_a_violation_is_found_where_it_is(
    rule: Callable, stack: list[Resource], wrong: str, said: str
) -> None:
    ((where, message),) = findings(rule, stack)
    assert where == wrong
    assert said in message


def test_every_rule_is_seen_red() -> None:
    assert {rule for rule, *_ in RED} == {*RESOURCE_RULES, *STACK_RULES}


def test_one_violation_turns_one_rule_red() -> None:
    for rule, stack, *_ in RED:
        red = {each for each in (*RESOURCE_RULES, *STACK_RULES) if findings(each, stack)}
        assert red == {rule}


def test_a_refusal_of_everything_is_no_wildcard_permission() -> None:
    assert findings(rules.no_wildcard_permissions, allows(Effect="Deny", Action="*")) == []


def test_a_policy_of_our_own_may_be_attached() -> None:
    ours = "arn:aws:iam::123456789012:policy/millrace-reads"
    assert findings(rules.own_permissions, plus(rules.ATTACHMENTS[1], policyArn=ours)) == []


def test_two_hosts_need_two_zones() -> None:
    stack = [each for each in clean_stack() if each.urn != "kafka-c"]
    assert findings(rules.hosts_spread_over_zones, stack) == []


def test_the_pack_has_every_rule_under_its_name() -> None:
    named = {each.name for each in policies(DEMANDS)}
    assert named == {policy_name(rule) for rule in (*RESOURCE_RULES, *STACK_RULES)}
