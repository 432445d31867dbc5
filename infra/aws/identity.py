"""What the hosts of a group may do on AWS: be entered, fetch artifacts, write their logs, and the
archive where they run jobs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi import ComponentResource, Output, ResourceOptions
from pulumi_aws import iam

from infra.aws.naming import named, tags
from millrace.plan import Plan

# Containers of the jobs run beside it, as its host.
RUNS_JOBS = "nodemanager"
SESSION_MANAGER = {
    "Sid": "SessionManager",
    "Effect": "Allow",
    "Action": [
        "ssm:UpdateInstanceInformation",
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
    ],
    # None of these knows a narrower one (Service Authorization Reference, ssm and ssmmessages).
    "Resource": "*",
}


def trust(service: str) -> str:
    """Returns who may take a role on: one of AWS's services."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": "sts:AssumeRole",
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@dataclass(frozen=True)
class Storage:
    """ARNs of the buckets, of the key that encrypts both, and of the group of hosts' logs."""

    artifacts: pulumi.Input[str]
    archive: pulumi.Input[str]
    key: pulumi.Input[str]
    logs: pulumi.Input[str]


class Identities(ComponentResource):
    """``profiles``: the instance profile's name by host group."""

    profiles: dict[str, Output[str]]

    def __init__(
        self, name: str, plan: Plan, storage: Storage, opts: ResourceOptions | None = None
    ) -> None:
        super().__init__("millrace:aws:Identities", name, None, opts)
        self._plan = plan
        self._storage = storage
        self._child = ResourceOptions(parent=self)
        with_jobs = {host.group for host in plan.hosts_of(RUNS_JOBS)}
        self.profiles = {
            group: self._make_profile(group, jobs=group in with_jobs)
            for group in dict.fromkeys(host.group for host in plan.hosts)
        }
        self.register_outputs({"profiles": self.profiles})

    def _make_profile(self, group: str, *, jobs: bool) -> Output[str]:
        role = iam.Role(
            group,
            name=named(self._plan, group),
            description=f"Hosts of {self._plan.cluster}, group {group}",
            assume_role_policy=trust("ec2.amazonaws.com"),
            tags=tags(self._plan, group),
            opts=self._child,
        )
        storage = self._storage
        policy = Output.all(storage.artifacts, storage.archive, storage.key, storage.logs).apply(
            lambda arns: host_policy(*arns, jobs=jobs)
        )
        iam.RolePolicy(group, role=role.id, policy=policy, opts=self._child)
        return iam.InstanceProfile(
            group,
            name=named(self._plan, group),
            role=role.name,
            tags=tags(self._plan, group),
            opts=self._child,
        ).name


def log_writing(group: str) -> dict[str, Any]:
    """To the streams of this group, and to nothing else."""
    actions = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
    return _allow("WriteLogs", actions, [group, f"{group}:*"])


def host_policy(artifacts: str, archive: str, key: str, logs: str, *, jobs: bool) -> str:
    """ARNs of the buckets, their key, a log group; ``jobs``: Spark runs on these hosts."""
    statements = [
        SESSION_MANAGER,
        _allow("FetchArtifacts", ["s3:GetObject"], f"{artifacts}/*"),
        log_writing(logs),
    ]
    use = ["kms:Decrypt"]
    if jobs:
        statements += _archive(archive)
        use.append("kms:GenerateDataKey")
    statements.append(_allow("BucketsKey", use, key))
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def _archive(bucket: str) -> Iterator[dict[str, Any]]:
    yield _allow("ListArchive", ["s3:ListBucket"], bucket)
    change = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    yield _allow("UseArchive", change, f"{bucket}/*")


def _allow(sid: str, actions: list[str], resource: str | list[str]) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource}
