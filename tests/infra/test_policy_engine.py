"""The policy pack under the real engine, with a stand-in for the AWS plugin: no Docker, no AWS."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.automation import engine_environment
from millrace.common.paths import REPO

pytestmark = pytest.mark.engine

PACK = REPO / "infra" / "policy"
STAND_IN = Path(__file__).parent / "standin"
STACK = "policy-test"

# A small environment that every rule passes, but for what a test changes.
GIVEN = {
    "encrypted": True,
    "action": "ec2:DescribeVolumes",
    "zones": "abc",
    "open": "balancer",  # the security group that lets the Internet in
    "versioning": "Enabled",
    "plain_text": "Deny",
}
MAIN = """
import json, pathlib
from pulumi import CustomResource, ResourceOptions, export

given = json.loads(pathlib.Path(__file__).with_name("given.json").read_text())
tags = {f"millrace.{tag}": "kafka" for tag in ("cluster", "stack", "host", "group")}

def policy(**statement):
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})

groups = {
    name: CustomResource("aws:ec2/securityGroup:SecurityGroup", name, {"tags": tags})
    for name in ("balancer", "hosts")
}
CustomResource("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "https", {
    "securityGroupId": groups[given["open"]].id, "cidrIpv4": "0.0.0.0/0",
    "ipProtocol": "tcp", "fromPort": 443, "toPort": 443,
})
CustomResource("aws:lb/loadBalancer:LoadBalancer", "edge", {
    "securityGroups": [groups["balancer"].id], "tags": tags,
})
for index, zone in enumerate(given["zones"]):
    subnet = CustomResource("aws:ec2/subnet:Subnet", f"subnet-{index}", {
        "availabilityZone": zone, "tags": tags,
    })
    CustomResource("aws:ec2/instance:Instance", f"kafka-{index}", {
        "subnetId": subnet.id, "vpcSecurityGroupIds": [groups["hosts"].id], "tags": tags,
        "associatePublicIpAddress": False, "rootBlockDevice": {"encrypted": True},
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1},
    })
CustomResource("aws:ebs/volume:Volume", "data",
    {"tags": tags, "encrypted": given["encrypted"], "size": 10, "type": "gp3"},
    ResourceOptions(protect=True))

bucket = CustomResource("aws:s3/bucket:Bucket", "archive", {"tags": tags})
for type_, props in {
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": dict.fromkeys(
        ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"), True
    ),
    "aws:s3/bucketVersioning:BucketVersioning": {
        "versioningConfiguration": {"status": given["versioning"]}
    },
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": {
        "rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms"}}]
    },
    "aws:s3/bucketPolicy:BucketPolicy": {
        "policy": policy(
            Effect=given["plain_text"], Principal="*", Action="s3:*", Resource="*",
            Condition={"Bool": {"aws:SecureTransport": "false"}},
        )
    },
}.items():
    CustomResource(type_, "archive", props | {"bucket": bucket.id})
CustomResource("aws:iam/rolePolicy:RolePolicy", "reads", {
    "policy": bucket.id.apply(
        lambda id: policy(Effect="Allow", Action=given["action"], Resource=["*", id])
    ),
})
replication = {"kafka": 3, "min_insync": 2, "cassandra": 3, "hdfs": 3}
export("inventory", {"all": {"vars": {"millrace": {"replication": replication, "topics": {}}}}})
"""


class Project:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "__main__.py").write_text(MAIN)
        (folder / "Pulumi.yaml").write_text((REPO / "Pulumi.yaml").read_text())
        self.pulumi("stack", "init", STACK)

    def given(self, **changes: Any) -> None:
        (self._folder / "given.json").write_text(json.dumps(GIVEN | changes))

    def pulumi(self, *args: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | engine_environment(STACK)
        environment["PATH"] = f"{STAND_IN}{os.pathsep}{environment['PATH']}"
        return subprocess.run(
            ["pulumi", *args, "--non-interactive", "--color", "never"],
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def preview(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.pulumi("preview", "--policy-pack", str(PACK), *args)

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.pulumi("up", "--yes", "--skip-preview", "--policy-pack", str(PACK))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    backend = tmp_path / "backend"
    backend.mkdir()
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{backend}")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "only a test's")
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    return Project(tmp_path)


def test_a_clean_program_passes_and_its_second_preview_is_empty(project: Project) -> None:
    project.given()
    previewed = project.preview()
    assert previewed.returncode == 0, previewed.stdout
    made = project.up()
    assert made.returncode == 0, made.stdout
    again = project.preview("--expect-no-changes")
    assert again.returncode == 0, again.stdout
    assert "advisory" not in again.stdout


def test_violations_fail_the_preview_and_are_named(project: Project) -> None:
    project.given(
        encrypted=False, zones="aab", open="hosts", versioning="Suspended", plain_text="Allow"
    )
    previewed = project.preview()
    assert previewed.returncode != 0
    violations = re.findall(r"\[mandatory\].* (\S+)  \((.*)\)", previewed.stdout)
    assert sorted(violations) == [
        ("buckets-tls-only", "aws:s3:Bucket: archive"),
        ("buckets-versioned", "aws:s3:Bucket: archive"),
        ("closed-to-the-internet", "aws:vpc:SecurityGroupIngressRule: https"),
        ("encrypted-disks", "aws:ebs:Volume: data"),
        ("hosts-spread-over-zones", "aws:ec2:Instance: kafka-0"),
    ], previewed.stdout


def test_what_a_preview_cannot_know_is_refused_by_up(project: Project) -> None:
    project.given(action="*")
    previewed = project.preview()
    assert previewed.returncode == 0, previewed.stdout
    assert "can't run policy 'no-wildcard-permissions'" in previewed.stdout
    refused = project.up()
    assert refused.returncode != 0
    assert "a statement allows * on *" in refused.stdout
