"""What the traffic job has before it, asked of brokers that may be away."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo

from millrace.cluster import kafka
from millrace.plan import load_plan


class Silent:
    """Brokers that take a question and never answer."""

    def list_offsets(self, asked, **_):
        return {partition: Future() for partition in asked}


def test_no_answer_is_an_error_of_kafka(monkeypatch):
    monkeypatch.setattr(kafka, "TIMEOUT", 0.01)
    monkeypatch.setattr(kafka, "brokers", lambda plan: "127.0.0.1:1")
    with pytest.raises(KafkaException, match="no answer"):
        kafka.topic_ends(Silent(), "events", 2)
    with pytest.raises(KafkaException):
        kafka.positions(load_plan("local"))


class Group:
    """A consumer of a group that has committed partition 0 alone; asking may fail for one."""

    def __init__(self, settings, logger, error=None):
        self.group, self._error, self.closed = settings["group.id"], error, False

    def committed(self, asked, timeout):
        for position in asked:
            position.offset = 7 if position.partition == 0 else OFFSET_INVALID
        return [*asked, SimpleNamespace(error=self._error)] if self._error else asked

    def close(self):
        self.closed = True


def test_where_a_job_has_committed_nothing_it_has_no_position(monkeypatch):
    monkeypatch.setattr(kafka, "Consumer", Group)
    plan = load_plan("local")
    found = {(p.topic, p.partition): p.offset for p in kafka.positions(plan, "attribution")}
    assert found == {(topic, 0): 7 for topic in plan.topics_of("attribution")}


def test_a_partition_that_cannot_be_asked_is_an_error(monkeypatch):
    group = Group({"group.id": ""}, None, KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    monkeypatch.setattr(kafka, "Consumer", lambda *_, **__: group)
    with pytest.raises(KafkaException):
        kafka.positions(load_plan("local"))
    assert group.closed


@pytest.mark.parametrize("environment", ["local", "test"])
def test_a_leader_is_a_host_of_the_plan_whatever_address_it_tells_operators(
    monkeypatch, environment
):
    plan = load_plan(environment)
    broker = plan.host("kafka-2")
    told = SimpleNamespace(host=plan.reached_at(broker.address))
    led = {"events": SimpleNamespace(partitions={0: SimpleNamespace(leader=7)})}

    def leader(brokers):
        metadata = SimpleNamespace(brokers=brokers, topics=led)
        client = SimpleNamespace(list_topics=lambda *_, **__: metadata)
        monkeypatch.setattr(kafka, "connect", lambda plan: client)
        return kafka.leader_address(plan, "events", 1)

    assert leader({7: told}) == broker.address
    assert leader({8: told}) is None


class Moved:
    """Brokers that gave a partition another leader after the client had learned of the first.

    They hear of it themselves by the time that they were ``asked`` who leads so often.
    """

    def __init__(self, code: int, asked: int = 1) -> None:
        self._code = code
        self._asked = asked

    def list_topics(self, *_, **__):
        self._asked -= 1

    def list_offsets(self, asked, **_):
        return {partition: self._answer() for partition in asked}

    def _answer(self):
        answer = Future()
        if self._asked <= 0:
            answer.set_result(ListOffsetsResultInfo(7, -1, -1))
        else:
            answer.set_exception(KafkaException(KafkaError(self._code)))
        return answer


def test_a_new_leader_is_asked_in_place_of_the_old_one():
    assert kafka.topic_ends(Moved(KafkaError.FENCED_LEADER_EPOCH), "events", 2) == [7, 7]


def test_a_leader_that_moves_is_waited_for(monkeypatch):
    monkeypatch.setattr(kafka, "MOVING_PAUSE_SECONDS", 0)
    moving = Moved(KafkaError.NOT_LEADER_FOR_PARTITION, asked=3)
    assert kafka.topic_ends(moving, "events", 2) == [7, 7]
    moving = Moved(KafkaError.NOT_LEADER_FOR_PARTITION, asked=3)
    assert kafka.high_watermark(moving, TopicPartition("events", 1)) == 7


def test_a_leader_that_is_not_found_is_told(monkeypatch):
    monkeypatch.setattr(kafka, "MOVING_SECONDS", 0)
    with pytest.raises(KafkaException):
        kafka.topic_ends(Moved(KafkaError.NOT_LEADER_FOR_PARTITION, asked=9), "events", 2)


def test_another_error_is_told():
    with pytest.raises(KafkaException):
        kafka.topic_ends(Moved(KafkaError.TOPIC_AUTHORIZATION_FAILED), "events", 2)
