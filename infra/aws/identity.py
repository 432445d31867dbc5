"""What the hosts of a group may do on AWS: be entered, and use the archive if they run jobs."""

import json
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


class Identities(ComponentResource):
    """``profiles``: the instance profile's name by host group."""

    profiles: dict[str, Output[str]]

    def __init__(
        self,
        name: str,
        plan: Plan,
        archive: pulumi.Input[str],
        key: pulumi.Input[str],
        opts: ResourceOptions | None = None,
    ) -> None:
        super().__init__("millrace:aws:Identities", name, None, opts)
        self._plan = plan
        self._child = ResourceOptions(parent=self)
        jobs = {host.group for host in plan.hosts_of(RUNS_JOBS)}
        groups = dict.fromkeys(host.group for host in plan.hosts)
        self.profiles = {}
        for group in groups:
            allowed = [pulumi.Output.from_input(SESSION_MANAGER)]
            if group in jobs:
                allowed.append(archive_statements(archive, key))
            self.profiles[group] = self._make_profile(group, Output.all(*allowed))
        self.register_outputs({"profiles": self.profiles})

    def _make_profile(self, group: str, allowed: Output[list[Any]]) -> Output[str]:
        role = iam.Role(
            group,
            name=named(self._plan, group),
            description=f"Hosts of {self._plan.cluster}'s group {group}",
            assume_role_policy=json.dumps(TRUST),
            tags=tags(self._plan, group),
            opts=self._child,
        )
        iam.RolePolicy(group, role=role.id, policy=allowed.apply(_document), opts=self._child)
        return iam.InstanceProfile(
            group,
            name=named(self._plan, group),
            role=role.name,
            tags=tags(self._plan, group),
            opts=self._child,
        ).name


TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "ec2.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}


def archive_statements(
    archive: pulumi.Input[str], key: pulumi.Input[str]
) -> Output[list[dict[str, Any]]]:
    def statements(arns: list[str]) -> list[dict[str, Any]]:
        bucket, kms_key = arns
        return [
            {
                "Sid": "ListArchive",
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": bucket,
            },
            {
                "Sid": "UseArchive",
                "Effect": "Allow",
                "Action": [
                    "s3:GetObject",
                    "s3:PutObject",
                    "s3:DeleteObject",
                    "s3:AbortMultipartUpload",
                ],
                "Resource": f"{bucket}/*",
            },
            {
                "Sid": "ArchivesKey",
                "Effect": "Allow",
                "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
                "Resource": kms_key,
            },
        ]

    return Output.all(archive, key).apply(statements)


def _document(allowed: list[Any]) -> str:
    flat = [s for part in allowed for s in (part if isinstance(part, list) else [part])]
    return json.dumps({"Version": "2012-10-17", "Statement": flat})
