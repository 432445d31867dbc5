"""Dead letters: what Cassandra says of them, and the records themselves."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from millrace.cluster import kafka
from millrace.cluster.kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from millrace.common.errors import OperatorError
from millrace.common.waiting import wait_until
from millrace.plan import Plan

READ_SECONDS = 15.0


@dataclass(frozen=True)
class Counted:
    """Records of one reason within one minute."""

    reason: str
    records: int
    minute: datetime


@dataclass(frozen=True)
class Quarantined:
    """A record that a job leaves out, or has counted since; ``id`` is
    ``<topic>-<partition>-<offset>``."""

    job: str
    id: str
    reason: str
    since: datetime
    retried: datetime | None = None


def counted(plan: Plan, days: Iterable[date]) -> list[Counted]:
    """Counts records of all jobs, by the days on which Kafka received them.

    Raises OperatorError without Cassandra.
    """
    query = (
        f"SELECT reason, records, minute FROM {plan.names.cassandra.keyspace}.dead_letter_counts"
        " WHERE bucket = ?"
    )
    rows = _read(plan, query, days)
    return [Counted(row.reason, row.records, _aware(row.minute)) for row in rows]


def quarantined(plan: Plan, jobs: Iterable[str]) -> list[Quarantined]:
    """Returns what these jobs have put aside. Raises OperatorError without Cassandra."""
    query = (
        'SELECT job, topic, "partition" AS part, "offset" AS place, reason, since, retried'
        f" FROM {plan.names.cassandra.keyspace}.quarantine WHERE job = ?"
    )
    return [
        Quarantined(
            *(row.job, f"{row.topic}-{row.part}-{row.place}", row.reason, _aware(row.since)),
            row.retried and _aware(row.retried),
        )
        for row in _read(plan, query, jobs)
    ]


def record(plan: Plan, place: TopicPartition) -> Message:
    """The record as Kafka has it. Raises OperatorError when it has it no longer, or doesn't
    answer."""
    none = {"group.id": "none", "auto.offset.reset": "earliest"}  # of an expired one, the next
    consumer = kafka.consumer(kafka.fast_failover_client(plan) | none)
    try:
        consumer.assign([place])
        message = wait_until(
            lambda: _poll(consumer), READ_SECONDS, 0, done=lambda found: found is not None
        )
    finally:
        consumer.close()
    if message is None or message.offset() != place.offset:
        raise OperatorError(
            f"topic {place.topic} has no record {place.offset} in partition {place.partition},"
            " or none any more",
            "the topic of the dead letters keeps it for longer, under its ID",
        )
    return message


def place_of(letter: str) -> TopicPartition:
    """Returns the place that a letter's ID names. Raises OperatorError when it names none."""
    topic, _, numbers = letter.rpartition("-")
    topic, _, partition = topic.rpartition("-")
    if not (topic and partition.isdecimal() and numbers.isdecimal()):
        raise OperatorError(
            f"{letter}: an ID is TOPIC-PARTITION-OFFSET, as in events-0-1234",
            "`millrace dead-letters list --job JOB` shows them",
        )
    return TopicPartition(topic, int(partition), int(numbers))


def _poll(consumer: Consumer) -> Message | None:
    """The next record of the partition; None while there is none."""
    message = consumer.poll(1.0)
    if message is None:
        return None
    error = message.error()
    if error is None:
        return message
    if error.code() == KafkaError._PARTITION_EOF or error.retriable():
        return None
    raise OperatorError(f"Kafka: {kafka.reason(KafkaException(error))}", "`millrace status`")


def _read(plan: Plan, query: str, keys: Iterable[Any]) -> list[Any]:
    from millrace.cluster import cassandra  # half of the time that any other command would take

    cassandra.quiet()
    with cassandra.reading(plan) as session:
        return cassandra.read_each(session, query, [(key,) for key in keys])


def _aware(time: datetime) -> datetime:
    """Returns the time as UTC, which Cassandra's driver gives without saying so."""
    return time.replace(tzinfo=UTC)
