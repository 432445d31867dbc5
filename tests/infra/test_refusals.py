"""What the stand-in for AWS refuses, each by an example.

The plans' own resources pass it in the engine's runs.
"""

import pytest

from tests.infra.standin import refusals

RULE = {
    "securityGroupId": "sg",
    "ipProtocol": "tcp",
    "fromPort": 80,
    "toPort": 80,
    "cidrIpv4": "10.0.0.0/8",
}
DISK = {"type": "gp3", "size": 20, "iops": 3000, "throughput": 125, "availabilityZone": "a"}
SUBNET = refusals.Resource("subnet", {"cidrBlock": "10.0.0.0/19", "availabilityZone": "b"})
HOST = {"privateIp": "10.0.2.1", "subnetId": "subnet"}
ATTACHED = {"instanceId": "i", "volumeId": "v", "deviceName": "/dev/sdf"}
MADE = {"subnet": SUBNET, "i": refusals.Resource(refusals.INSTANCE, HOST)}
BUCKET = "aws:s3/bucket:Bucket"


@pytest.mark.parametrize(
    ("kind", "given", "made", "reason"),
    [
        (refusals.INGRESS, RULE | {"securityGroupId": ""}, {}, "MissingParameter"),
        (refusals.INGRESS, RULE | {"referencedSecurityGroupId": "sg-2"}, {}, "one source"),
        (refusals.INGRESS, RULE | {"toPort": 79}, {}, "the first one first"),
        (
            refusals.INGRESS,
            RULE | {"description": "another"},
            {"r": refusals.Resource(refusals.INGRESS, RULE)},
            "Duplicate",
        ),
        (refusals.VOLUME, DISK | {"size": 16385}, {}, "16385 GiB"),
        (refusals.VOLUME, DISK | {"size": 8, "iops": 4500}, {}, "500 for each GiB"),
        (refusals.VOLUME, DISK | {"throughput": 1000}, {}, "1 for 4 IOPS"),
        (refusals.INSTANCE, HOST | {"privateIp": "10.0.0.3"}, {"subnet": SUBNET}, "for instances"),
        (refusals.INSTANCE, HOST | {"privateIp": "10.9.0.9"}, {"subnet": SUBNET}, "for instances"),
        (refusals.INSTANCE, HOST, MADE, "InUse"),
        (
            refusals.ATTACHMENT,
            ATTACHED,
            MADE | {"v": refusals.Resource(refusals.VOLUME, DISK)},
            "ZoneMismatch",
        ),
        (
            refusals.ATTACHMENT,
            ATTACHED,
            {"a": refusals.Resource(refusals.ATTACHMENT, ATTACHED | {"instanceId": "i-2"})},
            "VolumeInUse",
        ),
        (
            refusals.ATTACHMENT,
            ATTACHED | {"volumeId": "v-2"},
            {"a": refusals.Resource(refusals.ATTACHMENT, ATTACHED)},
            "/dev/sdf is in use",
        ),
        (
            refusals.INSTANCE,
            HOST | {"placementGroup": "spread"},
            {"subnet": SUBNET}
            | {
                f"host-{number}": refusals.Resource(
                    refusals.INSTANCE, {"subnetId": "subnet", "placementGroup": "spread"}
                )
                for number in range(7)
            },
            "InsufficientInstanceCapacity: spread has 7 instances in",
        ),
        (BUCKET, {"bucket": "Millrace"}, {}, "InvalidBucketName"),
        (refusals.BALANCER, {"name": "millrace-" + "x" * 30}, {}, "isn't allowed"),
        (refusals.BALANCER, {"name": "internal-edge"}, {}, "isn't allowed"),
    ],
)
def test_it_is_refused(kind, given, made, reason):
    assert reason in "; ".join(refusals.of_create(kind, given, made))


@pytest.mark.parametrize(
    ("kind", "given", "made"),
    [
        (refusals.INGRESS, RULE, {"r": refusals.Resource(refusals.EGRESS, RULE)}),
        (refusals.VOLUME, DISK, {}),
        (refusals.INSTANCE, HOST, {"subnet": SUBNET}),
        (refusals.ATTACHMENT, ATTACHED, {}),
        (BUCKET, {"bucket": "millrace-dev-archive-123456789012"}, {}),
        (refusals.BALANCER, {"name": "millrace-dev-edge"}, {}),
    ],
)
def test_what_is_right_is_taken(kind, given, made):
    assert list(refusals.of_create(kind, given, made)) == []


def test_what_is_mounted_or_protected_stays():
    kept = {"disableApiTermination": True}
    assert list(refusals.of_delete(refusals.INSTANCE, kept))
    assert not list(refusals.of_delete(refusals.INSTANCE, kept | {"forceDestroy": True}))
    assert list(refusals.of_delete(refusals.BALANCER, {"enableDeletionProtection": True}))
    assert list(refusals.of_delete(refusals.ATTACHMENT, ATTACHED))
    unmounted = ATTACHED | {"stopInstanceBeforeDetaching": True}
    assert not list(refusals.of_delete(refusals.ATTACHMENT, unmounted))
