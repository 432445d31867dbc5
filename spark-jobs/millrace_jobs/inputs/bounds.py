"""Where the records of a partition begin and end, as its leader says."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from millrace_jobs.retries import retry
from millrace_jobs.settings import KafkaClientSettings

ANSWER_SECONDS = 5.0
GIVE_UP_SECONDS = 30.0


@dataclass(frozen=True)
class Bounds:
    """The first offset that is kept, and the one after the last."""

    start: int
    end: int


Partition = tuple[str, int]


def bounds_of(
    brokers: str, settings: KafkaClientSettings, partitions: Iterable[Partition]
) -> dict[Partition, Bounds]:
    """Raises KafkaException when a leader doesn't answer for half a minute."""
    with _consumer(brokers, settings) as consumer:

        def ask(partition: Partition) -> Bounds:
            return retry(
                lambda: Bounds(
                    *consumer.get_watermark_offsets(TopicPartition(*partition), ANSWER_SECONDS)
                ),
                KafkaException,
                GIVE_UP_SECONDS,
                "asking where a partition begins",
            )

        return {partition: ask(partition) for partition in partitions}


def partitions_of(brokers: str, settings: KafkaClientSettings, topic: str) -> list[Partition]:
    """Raises KafkaException when no broker answers for half a minute."""
    with _consumer(brokers, settings) as consumer:
        found = retry(
            lambda: consumer.list_topics(topic, ANSWER_SECONDS).topics[topic].partitions,
            KafkaException,
            GIVE_UP_SECONDS,
            "asking for partitions",
        )
    return [(topic, number) for number in sorted(found)]


@contextmanager
def _consumer(brokers: str, settings: KafkaClientSettings) -> Iterator[Any]:
    """It joins no group; librdkafka wants the name of one."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "none",
            "socket.connection.setup.timeout.ms": settings.kafka_connect_ms,
            "socket.timeout.ms": settings.kafka_answer_ms,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()
