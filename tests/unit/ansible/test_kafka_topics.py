"""What the module that keeps topics in order changes, and what it leaves."""

from types import ModuleType
from typing import Any

import pytest

from tests.unit.role_modules import module_of_role

TOPIC = {"partitions": 3, "replication": 3, "config": {"retention.ms": "1"}}


@pytest.fixture(scope="module")
def topics() -> ModuleType:
    return module_of_role("kafka_topics", "kafka_topics")


def found(**other: Any) -> dict[str, dict[str, Any]]:
    return {"events": TOPIC | other}


def test_a_topic_as_it_should_be_is_left_alone(topics: ModuleType) -> None:
    assert topics.compare({"events": TOPIC}, found()) == []
    assert topics.surplus({"events": TOPIC}, found()) == []


def test_a_topic_that_is_missing_or_too_small_is_made_or_grows(topics: ModuleType) -> None:
    assert topics.compare({"events": TOPIC}, {}) == ["create events: 3 partitions"]
    assert topics.surplus({"events": TOPIC}, {}) == []
    grows = topics.compare({"events": TOPIC}, found(partitions=2))
    assert grows == ["events: 2 -> 3 partitions"]


def test_a_topic_from_before_keeps_its_partitions(topics: ModuleType) -> None:
    """A cluster whose topic has six takes a version that makes new ones with three."""
    assert topics.compare({"events": TOPIC}, found(partitions=6)) == []
    [line] = topics.surplus({"events": TOPIC}, found(partitions=6))
    assert "events keeps its 6 partitions" in line


def test_replicas_are_moved_by_hand(topics: ModuleType) -> None:
    with pytest.raises(ValueError, match="kafka-reassign-partitions"):
        topics.compare({"events": TOPIC}, found(replication=1))
