"""The results topic: an upsert stream that a ``read_committed`` reader sees each batch of once.

A batch is one transaction. With its records the transaction commits, under the job's consumer
group, how far the batch has read: the pattern of Kafka's own consume-process-produce. So a batch
that ran again after a crash is recognised and not sent twice, and ``kafka-consumer-groups`` shows
the job's lag.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from millrace_jobs.inputs.checkpoint import Offsets
from millrace_jobs.inputs.continuity import check_published
from millrace_jobs.inputs.skipped import SkippedRange, explain_positions
from millrace_jobs.retries import retry
from millrace_jobs.settings import KafkaClientSettings
from millrace_shared.names import KafkaNames

log = logging.getLogger(__name__)

CALL_SECONDS = 30.0
GIVE_UP_SECONDS = 120.0


class Results:
    """Publishes a job's batches in order. The producer that takes over fences the one before it.

    ``verify`` returns only while this driver leads, by what ZooKeeper says at that moment.
    """

    def __init__(
        self,
        brokers: str,
        names: KafkaNames,
        job: str,
        settings: KafkaClientSettings,
        verify: Callable[[], None],
        skipped: Callable[[], Sequence[SkippedRange]] = tuple,
    ) -> None:
        """
        Args:
            skipped: what the job leaves out for good: a batch that was published may run again
                without it.
        """
        name = f"{names.group_prefix}{job}"
        self._topic = names.topics.results
        common = {
            "bootstrap.servers": brokers,
            "socket.connection.setup.timeout.ms": settings.kafka_connect_ms,
            "socket.timeout.ms": settings.kafka_answer_ms,
            "reconnect.backoff.max.ms": settings.kafka_reconnect_ms,
        }
        self._verify = verify
        self._skipped = skipped
        self._group_settings = common | {"group.id": name}
        # The default of 60 s would block readers for so long after a driver died in a transaction.
        self._settings = common | {
            "transactional.id": name,
            "transaction.timeout.ms": 15000,
            "linger.ms": 5,
        }
        self._job = job
        self._published: int | None = None
        self._producing = threading.RLock()  # a producer has one transaction at a time
        self._joining = ThreadPoolExecutor(1, "results")  # one after the other
        self._joined: Future[None] | None = None

    @cached_property
    def _producer(self) -> Producer:
        """Has threads of its own from its beginning, and a job that is only prepared needs none."""
        return Producer(self._settings)

    @cached_property
    def _group(self) -> Consumer:
        return Consumer(self._group_settings)

    def connect(self) -> None:
        """Reach the brokers ahead of time; fences nobody."""
        self._producer.list_topics(self._topic, CALL_SECONDS)
        self._group.list_topics(self._topic, CALL_SECONDS)

    def take_over(self) -> None:
        """Fence the producer before this one, beside what else there is to do.

        Again whenever the job's query begins anew: a producer joins only once.
        """
        join = self._join if self._joined is None else self._join_anew
        self._joined = self._joining.submit(join)

    def check(self, checkpoint: str, batch: int, read: Offsets) -> int:
        """The newest batch that is published. Arguments are those of `publish`.

        Raises CheckpointMismatch if this one is, with other records: ask before it writes anywhere.
        """
        if self._joined is None:
            raise RuntimeError("results are published before they were taken over")
        self._joined.result()
        if self._published is None:
            published, same_offsets = self._last_published(checkpoint, read)
            check_published(self._job, batch, published, same_offsets=same_offsets)
            self._published = published
        return self._published

    def publish(
        self, checkpoint: str, batch: int, read: Offsets, records: Iterable[dict[str, Any]]
    ) -> bool:
        """Send a batch's records unless they were sent already; False if they were.

        Args:
            checkpoint: the query's id; batches of another checkpoint have nothing to do with ours.
            read: the offsets up to which the batch has read its source.
        """
        encoded = [(record["key"], json.dumps(record)) for record in records]
        positions = positions_of(checkpoint, batch, read)

        def publish_once() -> bool:
            if batch <= self.check(checkpoint, batch, read):
                log.info("batch %d is in the results topic already", batch)
                return False
            self._transaction(encoded, positions)
            self._published = batch
            return True

        return retry(publish_once, AbortedError, GIVE_UP_SECONDS, "publishing results")

    def publish_beside(self, records: Iterable[dict[str, Any]]) -> None:
        """Send records that are of no batch, in a transaction of their own, between two batches.

        Sent again after a crash, they say the same again.
        """
        encoded = [(record["key"], json.dumps(record)) for record in records]
        if self._joined is None:
            raise RuntimeError("results are published before they were taken over")
        self._joined.result()
        retry(
            lambda: self._transaction(encoded, []),
            AbortedError,
            GIVE_UP_SECONDS,
            "publishing results",
        )

    def tell_position(self, checkpoint: str, batch: int, read: Offsets) -> None:
        """Commit a position that no records came with: those behind a batch were skipped."""
        positions = positions_of(checkpoint, batch, read)
        if self._joined is None:
            raise RuntimeError("a position is told before results were taken over")
        self._joined.result()
        retry(
            lambda: self._transaction([], positions),
            AbortedError,
            GIVE_UP_SECONDS,
            "telling a position",
        )

    def _join(self) -> None:
        """Afterwards it is certain what the producers before this one have committed."""
        retry(self._join_once, KafkaException, GIVE_UP_SECONDS, "joining transactions")

    def _join_anew(self) -> None:
        with self._producing:
            self._producer = Producer(self._settings)
            self._join()
            self._published = None  # whether the last commit took place is unknown

    def _join_once(self) -> None:
        self._verify()  # it fences the one before, which must not be the leader after us
        try:
            self._producer.init_transactions(CALL_SECONDS)
        except KafkaException as error:
            if error.args[0].fatal():
                self._producer = Producer(self._settings)
            raise

    def _last_published(self, checkpoint: str, read: Offsets) -> tuple[int, bool]:
        """The newest batch of this checkpoint, -1 if none; whether it read up to ``read``."""
        partitions = [TopicPartition(t, int(p)) for t, numbers in read.items() for p in numbers]
        committed = retry(
            lambda: self._group.committed(partitions, CALL_SECONDS),
            KafkaException,
            GIVE_UP_SECONDS,
            "reading the group's offsets",
        )
        ends = {(position.topic, position.partition): position.offset for position in committed}
        same_offsets = explain_positions(read, ends, self._skipped())
        tokens = [position.metadata.split() for position in committed if position.metadata]
        batches = [int(batch) for owner, batch in tokens if owner == checkpoint]
        return max(batches, default=-1), same_offsets

    def _transaction(self, records: list[tuple[str, str]], positions: list[TopicPartition]) -> None:
        with self._producing:
            try:
                self._producer.begin_transaction()
                for key, value in records:
                    self._produce(key, value)
                if positions:
                    group = self._group.consumer_group_metadata()
                    self._producer.send_offsets_to_transaction(positions, group, CALL_SECONDS)
                self._commit()
            except KafkaException as error:
                self._undo(error)
                raise AbortedError(str(error)) from error

    def _undo(self, error: KafkaException) -> None:
        """Abort, or replace the producer that can't. Raises LeaseLost when another driver leads.

        A producer that is fenced doesn't say who did it: the next leader, a driver that woke up and
        has yet to learn that it doesn't lead, or Kafka itself, whose transaction had expired.
        """
        if not error.args[0].fatal():
            try:
                self._producer.abort_transaction(CALL_SECONDS)
                return
            except KafkaException as unaborted:
                error = unaborted
        self._begin_anew(error)

    def _begin_anew(self, error: KafkaException) -> None:
        """Replace a producer that is beyond repair; joining aborts what it left open.

        A broker that was cut off, and leads again, refuses its sequence numbers (KAFKA-14920).
        Java's client gets itself a new epoch then; librdkafka's error is fatal.
        """
        log.warning("the results' producer is replaced: %s", error)
        self._join_anew()

    def _produce(self, key: str, value: str) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, key)
                return
            except BufferError:  # the local queue is full: let it drain
                self._producer.poll(0.1)

    def _commit(self) -> None:
        """Whether a commit that timed out took place is unknown; only asking again tells."""
        while True:
            try:
                self._producer.commit_transaction(CALL_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                log.warning("committing results: %s; asking again", error)


def positions_of(checkpoint: str, batch: int, read: Offsets) -> list[TopicPartition]:
    """How far a batch has read, with what tells it from other batches."""
    return [
        TopicPartition(topic, int(partition), offset, metadata=f"{checkpoint} {batch}")
        for topic, partitions in read.items()
        for partition, offset in partitions.items()
    ]


class AbortedError(Exception):
    """The transaction was undone and may be tried again."""
