"""What moto holds against the plan (JSON on standard input). Runs where boto3 is.

prepare      an image with the name that the plan asks for
verify       hosts, volumes, rules, buckets are the plan's
verify-gone  nothing of it is left
"""

import json
import sys
from collections import Counter

import boto3


def prepare(plan: dict) -> None:
    boto3.client("ec2", plan["aws"]["region"]).register_image(
        Name=plan["aws"]["image"]["name"],
        Architecture=plan["aws"]["architecture"],
        RootDeviceName="/dev/xvda",
        VirtualizationType="hvm",
    )


def verify(plan: dict) -> None:
    ec2 = boto3.client("ec2", plan["aws"]["region"])
    places = {
        (subnet["zone"], subnet["public"]): subnet["availability_zone"]
        for subnet in plan["aws"]["subnets"]
    }
    found = instances(ec2, plan)
    wanted = Counter(places[host["zone"], False] for host in plan["hosts"])
    assert Counter(i["Placement"]["AvailabilityZone"] for i in found) == wanted
    assert {i["PrivateIpAddress"] for i in found} == {host["address"] for host in plan["hosts"]}
    assert not [i for i in found if i.get("PublicIpAddress")]
    assert {i["MetadataOptions"]["HttpTokens"] for i in found} == {"required"}
    verify_volumes(ec2, plan)
    verify_rules(ec2, plan)
    verify_buckets(plan)
    print(f"moto holds what the plan says: {len(found)} hosts, {dict(wanted)}")


def instances(ec2, plan: dict) -> list[dict]:
    pages = ec2.get_paginator("describe_instances").paginate(Filters=[of_stack(plan), alive()])
    return [i for page in pages for r in page["Reservations"] for i in r["Instances"]]


def alive() -> dict:
    return {"Name": "instance-state-name", "Values": ["pending", "running"]}


def of_stack(plan: dict) -> dict:
    return {"Name": "tag:millrace.stack", "Values": [plan["environment"]]}


def verify_volumes(ec2, plan: dict) -> None:
    found = ec2.describe_volumes(Filters=[of_stack(plan)])["Volumes"]
    by_name = {tag(volume, "Name"): volume for volume in found}
    for name, planned in plan["aws"]["volumes"].items():
        volume = by_name[name]
        assert volume["Encrypted"], name
        assert (volume["VolumeType"], volume["Size"]) == ("gp3", planned["disk"]["size"]), name
        (attachment,) = volume["Attachments"]
        assert attachment["Device"] == planned["device"], name


def tag(thing: dict, key: str) -> str | None:
    return next((t["Value"] for t in thing.get("Tags", []) if t["Key"] == key), None)


def verify_rules(ec2, plan: dict) -> None:
    groups = ec2.describe_security_groups(Filters=[of_stack(plan)])["SecurityGroups"]
    names = {g["GroupId"]: g["GroupName"].removeprefix(plan["cluster"] + "-") for g in groups}
    allowed, world = set(), set()
    for group in groups:
        server = names[group["GroupId"]]
        for rule in group["IpPermissions"]:
            ports = (rule.get("FromPort"), rule.get("ToPort"))
            for pair in rule["UserIdGroupPairs"]:
                allowed.add((names[pair["GroupId"]], server, *ports))
            for source in rule["IpRanges"]:
                if source["CidrIp"] == "0.0.0.0/0":
                    world.add((server, *ports))
    edges = {(e["client"], e["server"], e["first"], e["last"]) for e in plan["aws"]["edges"]}
    assert allowed == edges, allowed ^ edges
    assert world == {("public", 443, 443)}, world


def verify_buckets(plan: dict) -> None:
    s3 = boto3.client("s3", plan["aws"]["region"])
    mine = [
        b["Name"] for b in s3.list_buckets()["Buckets"] if b["Name"].startswith(plan["cluster"])
    ]
    assert len(mine) == 2, mine
    for name in mine:
        policy = json.loads(s3.get_bucket_policy(Bucket=name)["Policy"])
        assert policy["Statement"][0]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        assert s3.get_bucket_versioning(Bucket=name)["Status"] == "Enabled"
        blocked = s3.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"]
        assert set(blocked.values()) == {True}


def verify_gone(plan: dict) -> None:
    ec2 = boto3.client("ec2", plan["aws"]["region"])
    assert instances(ec2, plan) == []
    assert ec2.describe_volumes(Filters=[of_stack(plan)])["Volumes"] == []


if __name__ == "__main__":
    questions = {"prepare": prepare, "verify": verify, "verify-gone": verify_gone}
    questions[sys.argv[1]](json.load(sys.stdin))
