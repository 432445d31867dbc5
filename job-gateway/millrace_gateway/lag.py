"""How far each job is behind Kafka, by what it committed with its results.

`millrace status` counts the same from outside (millrace/cluster/kafka.py); this is its history.
"""

import logging
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from millrace_gateway.settings import Kafka

log = logging.getLogger("gateway.lag")

ANSWER_SECONDS = 5.0
LOOK_BACK_SECONDS = 1800.0  # segments go one by one: a shorter look back sees a jump, or nothing


@dataclass(frozen=True)
class Lag:
    """Committed records that no committed batch has read, and those that wait for too long.

    ``expires_seconds``: until Kafka forgets what the job would read next, if it goes on to do so as
    it did of late. None while it forgets nothing; negative once the job has lost records.
    """

    records: int
    overdue: int
    expires_seconds: float | None = None


@dataclass
class Looks:
    """Offsets of partitions at the looks of the last half hour."""

    seen: dict[tuple[str, int], deque[tuple[float, int]]] = field(default_factory=dict)

    def look(self, now: float, offsets: Mapping[tuple[str, int], int]) -> None:
        for key, offset in offsets.items():
            looks = self.seen.setdefault(key, deque())
            looks.append((now, offset))
            while looks[0][0] < now - LOOK_BACK_SECONDS:
                looks.popleft()


class Ends(Looks):
    """Where partitions ended: which records have waited for how long.

    Kafka itself finds the first record of a time, and is never asked for it: to do so a broker
    reads a compressed batch, each value whole into its heap, and one of 300 MB ended brokers
    (`FileRecords.searchForTimestamp` of Kafka 4).
    """

    def at(self, then: float) -> dict[tuple[str, int], int]:
        """The ends at that time; without partitions that weren't looked at as long ago."""
        found = {}
        for key, looks in self.seen.items():
            if earlier := [offset for at, offset in looks if at <= then]:
                found[key] = earlier[-1]
        return found


class Beginnings(Looks):
    """Where partitions began: how fast Kafka forgets."""

    def expires_seconds(self, read: Mapping[tuple[str, int], int]) -> float | None:
        """Of the partition that is the first to lose what a job, which has read so far, needs."""
        left = (self._left(key, offset) for key, offset in read.items() if key in self.seen)
        return min((seconds for seconds in left if seconds is not None), default=None)

    def _left(self, key: tuple[str, int], offset: int) -> float | None:
        (then, before), (now, start) = self.seen[key][0], self.seen[key][-1]
        if offset < start:
            return float(offset - start)  # so many records are lost
        if start == before:
            return None
        return (offset - start) * (now - then) / (start - before)


class Lags:
    """Asks Kafka. Brokers that are away are everyday: what librdkafka logs of it is left out.

    A job's group is asked by a consumer that never joins it: once the group's coordinator has
    moved, the same question ends an admin client's process (librdkafka's `rd_kafka_cgrp_op`,
    without a group; seen in 2.9).

    ``told`` is how far each job said last that it has read, by topic and partition.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._silence = logging.getLogger("gateway.librdkafka")
        self._silence.disabled = True
        self._admin = AdminClient({"bootstrap.servers": kafka.brokers}, logger=self._silence)
        self._groups: dict[str, Consumer] = {}
        self.told: dict[str, dict[tuple[str, int], int]] = {}
        self._beginnings = Beginnings()
        self._ends = Ends()

    def ask(self, jobs: Mapping[str, int], now: float) -> dict[str, Lag]:
        """Of each job that has committed; none of those of which Kafka doesn't tell now.

        Args:
            jobs: job → how many seconds records may wait for it.
            now: in seconds since 1970.
        """
        for job in self._groups.keys() - jobs.keys():
            self._groups.pop(job).close()
        found: dict[str, Lag] = {}
        try:
            partitions = self._partitions()
        except KafkaException as error:
            log.debug("no lag is known: %s", error)
            return found
        for job, seconds in jobs.items():
            try:
                if positions := self._positions(job, partitions):
                    self.told[job] = {(p.topic, p.partition): p.offset for p in positions}
                    found[job] = self._lag(positions, now, seconds)
            except KafkaException as error:
                log.debug("the lag of %s is unknown: %s", job, error)
        return found

    def _partitions(self) -> list[tuple[str, int]]:
        """All but those of Kafka's own topics: which ones a job reads it knows itself."""
        topics = self._admin.list_topics(timeout=ANSWER_SECONDS).topics
        return [
            (name, partition)
            for name, topic in topics.items()
            if not name.startswith("__")
            for partition in topic.partitions
        ]

    def _positions(self, job: str, partitions: list[tuple[str, int]]) -> list[TopicPartition]:
        """The positions that a job has committed, of these partitions."""
        asked = [TopicPartition(*partition) for partition in partitions]
        found = self._group(job).committed(asked, ANSWER_SECONDS)
        for position in found:
            if position.error:
                raise KafkaException(position.error)
        return [position for position in found if position.offset >= 0]

    def _group(self, job: str) -> Consumer:
        if job not in self._groups:
            settings = {
                "bootstrap.servers": self._kafka.brokers,
                "group.id": f"{self._kafka.group_prefix}{job}",
                "isolation.level": "read_uncommitted",  # what an open transaction says may wait
                "enable.auto.commit": False,
            }
            self._groups[job] = Consumer(settings, logger=self._silence)
        return self._groups[job]

    def _lag(self, positions: list[TopicPartition], now: float, wait_seconds: int) -> Lag:
        read = {(p.topic, p.partition): p.offset for p in positions}
        ends = self._offsets(positions, OffsetSpec.latest())
        self._ends.look(now, ends)
        lag = lag_of(ends, read, self._ends.at(now - wait_seconds))
        self._beginnings.look(now, self._offsets(positions, OffsetSpec.earliest()))
        return replace(lag, expires_seconds=self._beginnings.expires_seconds(read))

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
    """By partition: its end, what was read, and where it ended when what is due had come; nothing
    is due where that isn't known."""
    records = {key: max(0, end - read[key]) for key, end in ends.items()}
    overdue = {key: due.get(key, read[key]) - read[key] for key in ends}
    return Lag(sum(records.values()), sum(max(0, number) for number in overdue.values()))


def _answer(future: Future[Any]) -> Any:
    """No answer at all is one of Kafka's errors, too."""
    try:
        return future.result(ANSWER_SECONDS)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer")) from None
