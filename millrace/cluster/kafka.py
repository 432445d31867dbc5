"""How many records of `events` the traffic job still has before it."""

import logging
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from millrace.common.errors import OperatorError
from millrace.plan import Plan

JOB = "traffic"
TIMEOUT = 10  # s
# A partition's leader changed after the client had learned of it: the client's state, not Kafka's.
MOVED = {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
}


def client(plan: Plan) -> dict[str, Any]:
    """The brokers, and when to turn from one that is silent. (A replay has more patience.)"""
    jobs = plan.shared["spark"]["settings"]["common"]
    return {
        "bootstrap.servers": ",".join(plan.addresses("kafka_broker", "client")),
        "socket.connection.setup.timeout.ms": jobs["kafka_connect_ms"],
        "socket.timeout.ms": jobs["kafka_answer_ms"],
    }


def connect(plan: Plan) -> AdminClient:
    """A client of the plan's brokers that says only what is wrong."""
    return AdminClient(client(plan) | {"log_level": 4})


def connect_quietly(plan: Plan) -> AdminClient:
    """For whoever asks what is down: connection errors are the answer, not noise."""
    quiet = logging.getLogger("millrace.kafka")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    return AdminClient(client(plan), logger=quiet)


def traffic_lag(admin: AdminClient, plan: Plan) -> int:
    """Committed records that no committed batch has read; raises KafkaException without brokers."""
    events = plan.names.kafka.topics.events
    ends = topic_ends(admin, events, plan.topics[events].partitions)
    read = {position.partition: position.offset for position in positions(admin, plan)}
    return sum(end - max(0, read.get(partition, 0)) for partition, end in enumerate(ends))


def positions(admin: AdminClient, plan: Plan) -> list[TopicPartition]:
    """What the job committed with its results, its note included; raises KafkaException.

    It commits both in one transaction; see its results sink.
    """
    group = plan.names.consumer_group(JOB)
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return list(_answer(asked[group]).topic_partitions)


def topic_ends(admin: AdminClient, topic: str, partitions: int) -> list[int]:
    """Up to where a ``read_committed`` reader can read each partition; raises KafkaException."""
    try:
        return _ends(admin, topic, partitions)
    except KafkaException as failure:
        if failure.args[0].code() not in MOVED:
            raise
    admin.list_topics(topic, timeout=TIMEOUT)  # who leads now
    return _ends(admin, topic, partitions)


def _ends(admin: AdminClient, topic: str, partitions: int) -> list[int]:
    asked = [TopicPartition(topic, partition) for partition in range(partitions)]
    answers = admin.list_offsets(
        {partition: OffsetSpec.latest() for partition in asked},
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=TIMEOUT,
    )
    return [_answer(answers[partition]).offset for partition in asked]


def require_ends(admin: AdminClient, topic: str, partitions: int) -> list[int]:
    """As ``topic_ends``, with an error for the operator."""
    try:
        return topic_ends(admin, topic, partitions)
    except KafkaException as failure:
        raise OperatorError(
            f"can't read the ends of topic {topic}: {failure.args[0].str()}",
            "`millrace status` shows what is down",
        ) from None


def _answer(future: Future[Any]) -> Any:
    """No answer at all is one of Kafka's errors, too."""
    try:
        return future.result(TIMEOUT)
    except TimeoutError:
        raise KafkaException(
            KafkaError(KafkaError._TIMED_OUT, f"no answer in {TIMEOUT} s")
        ) from None
