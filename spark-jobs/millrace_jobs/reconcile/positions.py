"""How far jobs are, in Kafka's terms: by what each commits after it has stored that."""

from collections.abc import Iterable

from confluent_kafka import Consumer, TopicPartition

from millrace_jobs.recount.generations import Offsets
from millrace_jobs.settings import KafkaClientSettings

ANSWER_SECONDS = 30.0


class Groups:
    """Args: ``prefix`` is that of each job's consumer group."""

    def __init__(self, brokers: str, prefix: str, settings: KafkaClientSettings) -> None:
        self._settings = {
            "bootstrap.servers": brokers,
            "socket.connection.setup.timeout.ms": settings.kafka_connect_ms,
            "enable.auto.commit": False,
        }
        self._prefix = prefix

    def of(self, job: str, topics: Iterable[str]) -> Offsets:
        """The first offset of each partition that a job hasn't got, 0 where it has none."""
        group = Consumer(self._settings | {"group.id": f"{self._prefix}{job}"})
        try:
            return {topic: self._of(group, topic) for topic in topics}
        finally:
            group.close()

    def _of(self, group: Consumer, topic: str) -> dict[str, int]:
        known = group.list_topics(topic, ANSWER_SECONDS).topics[topic].partitions
        partitions = [TopicPartition(topic, number) for number in known]
        found = group.committed(partitions, ANSWER_SECONDS)
        return {str(one.partition): max(one.offset, 0) for one in found}
