"""The key that encrypts everything, and the buckets for artifacts and archive."""

import json
from pathlib import Path
from typing import Any

import pulumi
from pulumi import ComponentResource, FileAsset, Output, ResourceOptions
from pulumi_aws import kms, s3

from infra.aws.naming import named, tags
from infra.aws.region import aws_plan
from millrace.plan import Plan

ARTIFACTS = "artifacts"
# Days that a deleted or replaced object can be brought back, and a deleted key.
RECOVERABLE = 30
# Current objects end by whoever wrote them: an age would take files that a table still consists of.
FORGET_REPLACED: dict[str, Any] = {
    "id": "forget-what-was-replaced",
    "status": "Enabled",
    "filter": {"prefix": ""},
    "noncurrent_version_expiration": {"noncurrent_days": RECOVERABLE},
    "abort_incomplete_multipart_upload": {"days_after_initiation": 7},
}


class Key(ComponentResource):
    """The environment's key, of volumes, archive and alarms. Who may use it is said in IAM."""

    arn: Output[str]

    def __init__(
        self, name: str, plan: Plan, account: str, opts: ResourceOptions | None = None
    ) -> None:
        super().__init__("millrace:aws:Key", name, None, opts)
        child = ResourceOptions(parent=self)
        key = kms.Key(
            "key",
            description=f"Data of {plan.cluster}",
            enable_key_rotation=True,
            deletion_window_in_days=RECOVERABLE,
            policy=json.dumps(key_policy(account)),
            tags=tags(plan, "key"),
            # Without it nothing can be read of volumes that `down` leaves.
            opts=ResourceOptions.merge(child, ResourceOptions(protect=True)),
        )
        kms.Alias("key", name=f"alias/{plan.cluster}", target_key_id=key.key_id, opts=child)
        self.arn = key.arn
        self.register_outputs({"arn": self.arn})


def key_policy(account: str) -> dict[str, Any]:
    """IAM decides for the account's own; alarms must be able to write to their topic."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "IamDecides",
                "Effect": "Allow",
                "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
                "Action": "kms:*",
                "Resource": "*",
            },
            {
                "Sid": "AlarmsReachTheirTopic",
                "Effect": "Allow",
                "Principal": {"Service": "cloudwatch.amazonaws.com"},
                "Action": ["kms:Decrypt", "kms:GenerateDataKey*"],
                "Resource": "*",
                "Condition": {"StringEquals": {"aws:SourceAccount": account}},
            },
        ],
    }


class Bucket(ComponentResource):
    """Private, versioned, encrypted, reached by TLS only. Who may use it is said in IAM.

    Args:
        key: the KMS key that encrypts it.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        account: str,
        *,
        key: pulumi.Input[str],
        protect: bool = False,
        opts: ResourceOptions | None = None,
    ) -> None:
        super().__init__("millrace:aws:Bucket", name, None, opts)
        child = ResourceOptions(parent=self)
        bucket = s3.Bucket(
            name,
            bucket=bucket_name(plan, name, account),
            # What guards its content is `protect`, which only `down --purge` lifts.
            force_destroy=True,
            tags=tags(plan, name),
            opts=ResourceOptions.merge(child, ResourceOptions(protect=protect)),
        )
        self.name = bucket.bucket
        self.arn = bucket.arn
        s3.BucketOwnershipControls(
            name, bucket=bucket.id, rule={"object_ownership": "BucketOwnerEnforced"}, opts=child
        )
        block = s3.BucketPublicAccessBlock(
            name,
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=child,
        )
        versioning = s3.BucketVersioning(
            name,
            bucket=bucket.id,
            versioning_configuration={"status": "Enabled"},
            opts=child,
        )
        s3.BucketServerSideEncryptionConfiguration(
            name, bucket=bucket.id, rules=[encryption(key)], opts=child
        )
        # S3 refuses rules on old versions until there can be any.
        s3.BucketLifecycleConfiguration(
            name,
            bucket=bucket.id,
            rules=[FORGET_REPLACED],
            opts=ResourceOptions.merge(child, ResourceOptions(depends_on=[versioning])),
        )
        s3.BucketPolicy(
            name,
            bucket=bucket.id,
            policy=bucket.arn.apply(tls_only),
            opts=ResourceOptions.merge(child, ResourceOptions(depends_on=[block])),
        )
        self.register_outputs({"name": self.name})


def bucket_name(plan: Plan, name: str, account: str) -> str:
    """Names are global: the account's number makes this one ours."""
    return named(plan, f"{name}-{account}")


def encryption(key: pulumi.Input[str]) -> dict[str, Any]:
    return {
        "apply_server_side_encryption_by_default": {
            "sse_algorithm": "aws:kms",
            "kms_master_key_id": key,
        },
        "bucket_key_enabled": True,
    }


def tls_only(bucket: str) -> str:
    """The policy of the bucket with this ARN."""
    refuse = {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [bucket, f"{bucket}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [refuse]})


class Artifacts(ComponentResource):
    """The distributions, which hosts fetch by URL and check by sha256."""

    arn: Output[str]

    def __init__(
        self,
        name: str,
        plan: Plan,
        account: str,
        key: pulumi.Input[str],
        manifest: dict[str, dict[str, str]],
        folder: Path,
        opts: ResourceOptions | None = None,
    ) -> None:
        super().__init__("millrace:aws:Artifacts", name, None, opts)
        child = ResourceOptions(parent=self)
        bucket = Bucket(name, plan, account, key=key, opts=child)
        for entry in manifest.values():
            s3.BucketObjectv2(
                entry["file"],
                bucket=bucket.name,
                key=entry["file"],
                source=FileAsset(str(folder / entry["file"])),
                opts=child,
            )
        self.arn = bucket.arn
        self.register_outputs({"arn": self.arn})


def artifacts_url(plan: Plan, account: str) -> str:
    """Known before the bucket is there, so that the inventory needn't wait for it."""
    bucket = bucket_name(plan, ARTIFACTS, account)
    return f"https://{bucket}.s3.{aws_plan(plan).region}.amazonaws.com"
