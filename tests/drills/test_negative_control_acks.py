"""Negative control: without what protects, acknowledged events vanish, and the audit says so.

One replica suffices to be in sync (min.insync.replicas 1) and the producer asks the leader only
(acks=1). Then the leader is left alone, takes events, dies, and a follower without them leads.
It happens to a topic of its own: a hole in `events` would stop the jobs, and rightly.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.audit.run import audit_topic
from millrace.cluster import kafka
from millrace.plan import Plan
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.extended]

TOPIC = "ledger-control"
PARTITION = TopicPartition(TOPIC, 0)
UNPROTECTED = {"min.insync.replicas": "1"}
LOAD = [
    sys.executable,
    "-m",
    "millrace.cli",
    "load",
    "--rate",
    "500",
    "--for",
    "10m",
    "--acks",
    "1",
]
ALONE = 1000  # events that the leader takes, and nobody else gets
ANSWER_SECONDS = 30  # of a broker; one that is paused gives none
PATIENCE_SECONDS = 300


def docker(*arguments: str) -> None:
    subprocess.run(["docker", *arguments], check=True, capture_output=True)


@pytest.fixture
def topic(plan: Plan, admin: AdminClient) -> Iterator[str]:
    """One partition, so that one leader has it all."""
    factor = plan.topics[plan.names.kafka.topics.events].replication
    new = NewTopic(TOPIC, num_partitions=1, replication_factor=factor, config=UNPROTECTED)
    admin.create_topics([new])[TOPIC].result(PATIENCE_SECONDS)
    yield TOPIC
    admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_SECONDS)


@pytest.fixture
def brokers(plan: Plan, admin: AdminClient, topic: str) -> Iterator[dict[int, str]]:
    """Containers by node id, all well before; whatever was done to them is undone."""
    wait_until(lambda: _all_in_sync(plan, admin), PATIENCE_SECONDS, "all brokers are well")
    names = {plan.reached_at(host.address): host.name for host in plan.hosts_of("kafka_broker")}
    nodes = admin.list_topics(timeout=ANSWER_SECONDS).brokers
    containers = {node: f"{plan.cluster}-{names[b.host]}" for node, b in nodes.items()}
    yield containers
    for container in containers.values():
        heal(container)
    wait_until(lambda: _all_in_sync(plan, admin), PATIENCE_SECONDS, "all brokers are well again")


def heal(container: str) -> None:
    asked = ["docker", "inspect", "-f", "{{.State.Status}}", container]
    state = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    if state == "paused":
        docker("unpause", container)
    elif state == "exited":
        docker("start", container)


def in_sync(admin: AdminClient) -> list[int]:
    """Empty when the broker that was asked doesn't answer: it may be a paused one."""
    try:
        return admin.list_topics(TOPIC, timeout=ANSWER_SECONDS).topics[TOPIC].partitions[0].isrs
    except KafkaException:
        return []


def leader(admin: AdminClient) -> int:
    return admin.list_topics(TOPIC, timeout=ANSWER_SECONDS).topics[TOPIC].partitions[0].leader


def more_come(admin: AdminClient) -> None:
    """Events that the leader has taken since this began to wait."""

    def written() -> int:
        return kafka.high_watermark(admin, PARTITION)

    before = written()
    wait_until(lambda: written() - before > ALONE, PATIENCE_SECONDS, f"{ALONE} more events", 0.2)


def _all_in_sync(plan: Plan, admin: AdminClient) -> bool:
    seen = admin.list_topics(timeout=ANSWER_SECONDS)
    partitions = [p for topic in seen.topics.values() for p in topic.partitions.values()]
    return len(seen.brokers) == len(plan.hosts_of("kafka_broker")) and all(
        len(partition.isrs) == len(partition.replicas) for partition in partitions
    )


@pytest.fixture
def load(topic: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*LOAD, "--topic", topic, "--run", f"control-{time.time_ns()}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()


def test_what_one_replica_acknowledged_can_vanish_and_the_audit_says_so(
    plan: Plan,
    admin: AdminClient,
    brokers: dict[int, str],
    load: subprocess.Popen[str],
) -> None:
    more_come(admin)
    leading = leader(admin)
    followers = [container for node, container in brokers.items() if node != leading]
    for container in followers:
        docker("pause", container)
    wait_until(
        lambda: in_sync(admin) == [leading], PATIENCE_SECONDS, "the leader is alone in the ISR"
    )
    more_come(admin)
    load.send_signal(signal.SIGTERM)
    output, _ = load.communicate(timeout=PATIENCE_SECONDS)  # all that was sent is acknowledged
    docker("kill", brokers[leading])
    for container in followers:
        docker("unpause", container)
    elect_unclean(admin, leading)
    docker("start", brokers[leading])
    wait_until(
        lambda: len(in_sync(admin)) == len(brokers),
        PATIENCE_SECONDS,
        "all replicas follow the new leader",
    )

    report = audit_topic(plan, Path(output.splitlines()[-1]))

    assert not report.ok
    assert report.lost > 0


def elect_unclean(admin: AdminClient, dead: int) -> None:
    """A leader out of those that are behind: the very thing that is off by default."""

    def has_leader() -> bool:
        try:
            admin.elect_leaders(ElectionType.UNCLEAN, [PARTITION]).result(ANSWER_SECONDS)
            return leader(admin) not in (-1, dead)
        except KafkaException:  # the dead leader's session lasts some seconds yet
            return False

    wait_until(has_leader, PATIENCE_SECONDS, "a follower leads")
