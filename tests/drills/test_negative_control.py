"""Negative control: acknowledged events are deleted, and the audit says so.

They are of a topic of their own: a hole in `events` would stop the jobs, and rightly.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.audit.run import audit_topic
from millrace.plan import Plan

pytestmark = pytest.mark.cluster

TOPIC = "ledger-control"
LOAD = ["load", "--rate", "500", "--for", "5s", "--topic", TOPIC, "--run", "control"]
DELETED = 100
ADMIN_SECONDS = 60  # a broker's answer on cores that are busy


@pytest.fixture
def ledger(plan: Plan, admin: AdminClient) -> Iterator[Path]:
    """A load's ledger; all of it was acknowledged, and is in one partition."""
    factor = plan.topics[plan.names.kafka.topics.events].replication
    new = NewTopic(TOPIC, num_partitions=1, replication_factor=factor)
    admin.create_topics([new])[TOPIC].result(ADMIN_SECONDS)
    loaded = subprocess.run(
        [sys.executable, "-m", "millrace.cli", *LOAD], stdout=subprocess.PIPE, text=True, check=True
    )
    yield Path(loaded.stdout.splitlines()[-1])
    admin.delete_topics([TOPIC])[TOPIC].result(ADMIN_SECONDS)


def test_the_audit_counts_what_was_deleted(plan: Plan, admin: AdminClient, ledger: Path) -> None:
    before = audit_topic(plan, ledger)
    assert before.ok
    up_to = TopicPartition(TOPIC, 0, DELETED)
    admin.delete_records([up_to])[up_to].result(ADMIN_SECONDS)

    report = audit_topic(plan, ledger)

    assert not report.ok
    assert report.lost == DELETED
