"""Kafka: clients of the plan's brokers, and how far the jobs are behind them.

Brokers that are down or change their roles are everyday: what librdkafka logs of it is left out,
and errors that matter are raised. Its own types are had from here.
"""

import logging
import time
from concurrent.futures import Future
from contextlib import closing
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from millrace.cluster import tunnel
from millrace.common.errors import OperatorError, UnreachableError
from millrace.plan import Plan

__all__ = [
    "OFFSET_BEGINNING",
    "AdminClient",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "NewTopic",
    "Producer",
    "TopicPartition",
]

JOB = "traffic"
TIMEOUT = 10  # s
MOVING_SECONDS = 5.0
MOVING_PAUSE_SECONDS = 0.2
# A partition's leader changed after the client had learned of it: the client's state, not Kafka's.
MOVED = {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
}


def brokers(plan: Plan) -> str:
    return ",".join(tunnel.addresses(plan, "kafka_broker", "operator"))


def default_client(plan: Plan) -> dict[str, Any]:
    """A client's settings: librdkafka's own time-outs, which bear a broker that hesitates."""
    return {"bootstrap.servers": brokers(plan)}


def fast_failover_client(plan: Plan) -> dict[str, Any]:
    """A client's settings: it turns from a broker that is silent, as soon as the jobs do."""
    jobs = plan.spark.settings.common
    return default_client(plan) | {
        "socket.connection.setup.timeout.ms": jobs.kafka_connect_ms,
        "socket.timeout.ms": jobs.kafka_answer_ms,
        "reconnect.backoff.max.ms": jobs.kafka_reconnect_ms,
    }


def connect(plan: Plan) -> AdminClient:
    return admin(fast_failover_client(plan))


def admin(settings: dict[str, Any]) -> AdminClient:
    return AdminClient(settings, logger=_silent())


def producer(settings: dict[str, Any]) -> Producer:
    return Producer(settings, logger=_silent())


def consumer(settings: dict[str, Any]) -> Consumer:
    """Reads what was committed, commits nothing, and tells of a partition's end."""
    fixed = {
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    return Consumer(settings | fixed, logger=_silent())


def require_topics(client: Producer | AdminClient, topics: set[str]) -> dict[str, int]:
    """Topic → its partitions: a clear word now instead of a delivery time-out later.

    UnreachableError when no broker answers, OperatorError when a topic is missing.
    """
    try:
        known = client.list_topics(timeout=TIMEOUT).topics
    except KafkaException as failure:
        raise UnreachableError(
            f"no Kafka broker answers: {reason(failure)}",
            "is the cluster up? `millrace status` shows it; `make up` brings it up",
        ) from None
    if missing := topics - known.keys():
        raise OperatorError(
            f"Kafka has no topic {' and '.join(sorted(missing))}", "`make deploy` creates them"
        )
    return {topic: len(known[topic].partitions) for topic in topics}


def leader_address(plan: Plan, topic: str, seconds: float) -> str | None:
    """Returns who leads a topic's first partition, by its host's address; None when nobody says
    so."""
    try:
        metadata = connect(plan).list_topics(topic, timeout=seconds)
    except KafkaException:
        return None
    leader = metadata.brokers.get(metadata.topics[topic].partitions[0].leader)
    # Brokers tell operators where those reach them.
    hosts = {plan.reached_at(host.address): host.address for host in plan.hosts_of("kafka_broker")}
    return hosts.get(leader.host) if leader else None


def lag(admin: AdminClient, plan: Plan, job: str) -> int:
    """Counts committed records of a job's topics that no committed batch has read. Raises
    KafkaException without brokers."""
    read = {(p.topic, p.partition): p.offset for p in positions(plan, job)}
    ends = {
        (topic, partition): end
        for topic in plan.topics_of(job)
        for partition, end in enumerate(topic_ends(admin, topic, plan.topics[topic].partitions))
    }
    return sum(end - read.get(place, 0) for place, end in ends.items())


def positions(plan: Plan, job: str = JOB) -> list[TopicPartition]:
    """Returns where a job has committed a position, its note included. Raises KafkaException.

    With its results it does so in one transaction; see the results sink.
    """
    with group(plan, job) as asking:
        return committed(asking, plan, job)


def group(plan: Plan, job: str) -> "closing[Consumer]":
    """A consumer of a job's group that never joins it, to ask where it is: once the group's
    coordinator has moved, the same question ends an admin client's process (librdkafka's
    `rd_kafka_cgrp_op`, without a group; seen in 2.9)."""
    # What an open transaction says may wait; a `consumer` would wait for its end.
    fixed = {"isolation.level": "read_uncommitted", "enable.auto.commit": False}
    settings = fast_failover_client(plan) | fixed | {"group.id": plan.names.consumer_group(job)}
    return closing(Consumer(settings, logger=_silent()))


def committed(group: Consumer, plan: Plan, job: str) -> list[TopicPartition]:
    """Returns what ``positions`` does, for a caller that looks often."""
    asked = [
        TopicPartition(topic, partition)
        for topic in plan.topics_of(job)
        for partition in range(plan.topics[topic].partitions)
    ]
    found = group.committed(asked, TIMEOUT)
    for position in found:
        if position.error:
            raise KafkaException(position.error)
    return [position for position in found if position.offset >= 0]


def topic_ends(admin: AdminClient, topic: str, partitions: int) -> list[int]:
    """Up to where a ``read_committed`` reader can read each partition; raises KafkaException."""
    return _offsets(admin, topic, partitions, OffsetSpec.latest())


def high_watermark(admin: AdminClient, partition: TopicPartition) -> int:
    """Up to where a partition is written, whatever of it is committed; raises KafkaException."""
    asked = [TopicPartition(partition.topic, partition.partition)]
    [end] = _offsets_of(admin, asked, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
    return end


def _offsets(admin: AdminClient, topic: str, partitions: int, spec: OffsetSpec) -> list[int]:
    asked = [TopicPartition(topic, partition) for partition in range(partitions)]
    return _offsets_of(admin, asked, spec, IsolationLevel.READ_COMMITTED)


def _offsets_of(
    admin: AdminClient, asked: list[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
) -> list[int]:
    """Of partitions of one topic. Waits for leaders that move: while brokers hear of it one by one,
    even who has just asked who leads may be sent to the one that doesn't any more."""
    deadline = time.monotonic() + MOVING_SECONDS
    while True:
        try:
            return _offsets_by_leaders(admin, asked, spec, isolation)
        except KafkaException as failure:
            if failure.args[0].code() not in MOVED or time.monotonic() >= deadline:
                raise
        time.sleep(MOVING_PAUSE_SECONDS)
        admin.list_topics(asked[0].topic, timeout=TIMEOUT)  # who leads now


def _offsets_by_leaders(
    admin: AdminClient, asked: list[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
) -> list[int]:
    answers = admin.list_offsets(
        dict.fromkeys(asked, spec), isolation_level=isolation, request_timeout=TIMEOUT
    )
    return [_answer(answers[partition]).offset for partition in asked]


def require_ends(admin: AdminClient, topic: str, partitions: int) -> list[int]:
    """Returns what ``topic_ends`` does. Raises UnreachableError in place of its errors."""
    try:
        return topic_ends(admin, topic, partitions)
    except KafkaException as failure:
        raise UnreachableError(
            f"can't read the ends of topic {topic}: {reason(failure)}",
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


def reason(failure: KafkaException) -> str:
    return str(failure.args[0].str())


def _silent() -> logging.Logger:
    logger = logging.getLogger("millrace.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
