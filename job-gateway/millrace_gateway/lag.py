"""How far each job is behind Kafka, by what it committed with its results.

`millrace status` counts the same from outside (millrace/cluster/kafka.py); this is its history.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from millrace_gateway.settings import Kafka

log = logging.getLogger("gateway.lag")

ANSWER_SECONDS = 5.0


@dataclass(frozen=True)
class Lag:
    """Committed records that no committed batch has read, and those that wait for too long."""

    records: int
    overdue: int


class Lags:
    """Asks Kafka. Brokers that are away are everyday: what librdkafka logs of it is left out."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        silence = logging.getLogger("gateway.librdkafka")
        silence.disabled = True
        self._admin = AdminClient({"bootstrap.servers": kafka.brokers}, logger=silence)

    def ask(self, jobs: Mapping[str, int], now: float) -> dict[str, Lag]:
        """Of each job that has committed; none of those of which Kafka doesn't tell now.

        Args:
            jobs: job → how many seconds records may wait for it.
            now: in seconds since 1970.
        """
        found = {}
        for job, seconds in jobs.items():
            try:
                if positions := self._positions(job):
                    found[job] = self._lag(positions, now - seconds)
            except KafkaException as error:
                log.debug("the lag of %s is unknown: %s", job, error)
        return found

    def _positions(self, job: str) -> list[TopicPartition]:
        group = f"{self._kafka.group_prefix}{job}"
        asked = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=ANSWER_SECONDS
        )
        return list(_answer(asked[group]).topic_partitions)

    def _lag(self, positions: list[TopicPartition], due_seconds: float) -> Lag:
        read = {(p.topic, p.partition): max(0, p.offset) for p in positions}
        return lag_of(
            self._offsets(positions, OffsetSpec.latest()),
            read,
            self._offsets(positions, OffsetSpec.for_timestamp(int(due_seconds * 1000))),
        )

    def _offsets(self, positions: list[TopicPartition], spec: Any) -> dict[tuple[str, int], int]:
        asked = {TopicPartition(p.topic, p.partition): spec for p in positions}
        answers = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_SECONDS
        )
        return {(p.topic, p.partition): _answer(answer).offset for p, answer in answers.items()}


def lag_of(
    ends: Mapping[tuple[str, int], int],
    read: Mapping[tuple[str, int], int],
    due: Mapping[tuple[str, int], int],
) -> Lag:
    """By partition: its end, what was read, and its first record that isn't due; -1 if all are."""
    records = {key: max(0, end - read[key]) for key, end in ends.items()}
    overdue = {key: (due[key] if due[key] >= 0 else ends[key]) - read[key] for key in ends}
    return Lag(sum(records.values()), sum(max(0, number) for number in overdue.values()))


def _answer(future: Future[Any]) -> Any:
    """No answer at all is one of Kafka's errors, too."""
    try:
        return future.result(ANSWER_SECONDS)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer")) from None
