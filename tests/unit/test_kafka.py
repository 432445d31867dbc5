"""What the traffic job has before it, asked of brokers that may be away."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo

from millrace.cluster import kafka
from millrace.plan import load_plan


class Silent:
    """Brokers that take a question and never answer."""

    def list_offsets(self, asked, **_):
        return {partition: Future() for partition in asked}

    def list_consumer_group_offsets(self, asked):
        return {group.group_id: Future() for group in asked}


def test_no_answer_is_an_error_of_kafka(monkeypatch):
    monkeypatch.setattr(kafka, "TIMEOUT", 0.01)
    with pytest.raises(KafkaException, match="no answer"):
        kafka.traffic_lag(Silent(), load_plan("local"))
    with pytest.raises(KafkaException, match="no answer"):
        kafka.positions(Silent(), load_plan("local"))


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


def test_a_lag_is_what_is_unread_and_overdue_what_waits_too_long():
    ends, read = [100, 50, 30, 0], [40, 50, 10, 0]
    due = [70, 50, -1, -1]  # the first record that is recent; none is
    assert kafka.lag_of(ends, read, due) == kafka.Lag(records=80, overdue=30 + 0 + 20 + 0)
    assert kafka.lag_of([100], [90], [70]).overdue == 0
    assert kafka.lag_of([100], [90], [120]).overdue == 10  # an open transaction's isn't readable
