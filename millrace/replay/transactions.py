"""Appends batches to Kafka, each in one transaction with the position after it."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from millrace.cluster import kafka
from millrace.cluster.kafka import KafkaError, KafkaException, Producer, TopicPartition, reason
from millrace.common.errors import OperatorError
from millrace.config import TopicNames
from millrace.replay.events import Message
from millrace.replay.pipeline import Pipeline
from millrace.replay.progress import Progress

CALL_SECONDS = 5.0  # of one call to Kafka: Ctrl-C is noticed between calls
PATIENCE_SECONDS = 300.0  # without a single committed batch, after which the operator is asked
TRANSACTION_SECONDS = 60  # an abandoned replay holds its readers back no longer than this


class Stopped(Exception):
    """The operator asked to stop while Kafka couldn't take the batch."""


class TransactionalProducer(Protocol):
    """What is used of Kafka's `Producer`."""

    def init_transactions(self, timeout: float) -> None: ...
    def begin_transaction(self) -> None: ...
    def produce(self, topic: str, value: bytes, key: bytes, *, headers: Any) -> None: ...
    def poll(self, timeout: float) -> int: ...
    def commit_transaction(self, timeout: float) -> None: ...
    def abort_transaction(self, timeout: float) -> None: ...


class EventLog:
    """The events topic as one source sees it: append a batch, or don't; nothing in between."""

    def __init__(
        self,
        producer: TransactionalProducer,
        topics: TopicNames,
        source_id: str,
        stopping: Callable[[], bool],
        notice: Callable[[str], None],
    ) -> None:
        self._producer = producer
        self._topics = topics
        self._key = source_id.encode()
        self._stopping = stopping
        self._notice = notice
        self._told = False

    def open(self) -> None:
        """Fences whoever else replays this source, and aborts what a killed one left open."""
        self._insist(self._producer.init_transactions)

    def append(self, messages: Sequence[Message], progress: Progress) -> None:
        """Returns when all of it is committed; after an error, all of it is sent again."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._transaction(messages, progress)
                self._told = False
                return
            except KafkaException as failure:
                self._give_up_if_fenced(failure)
                if time.monotonic() > deadline:
                    raise _no_answer(failure) from None
                self._tell_once(failure)
            self._insist(self._producer.abort_transaction)

    def _transaction(self, messages: Sequence[Message], progress: Progress) -> None:
        self._producer.begin_transaction()
        for message in messages:
            self._produce(self._topics.events, message.value, message.key, message.headers)
        self._produce(self._topics.replay_progress, progress.to_json(), self._key, [])
        self._insist(self._producer.commit_transaction)

    def _produce(
        self, topic: str, value: bytes, key: bytes, headers: list[tuple[str, bytes]]
    ) -> None:
        while True:
            try:
                self._producer.produce(topic, value=value, key=key, headers=headers)
                return
            except BufferError:  # the client's own queue is full: let it drain
                self._stop_if_asked()
                self._producer.poll(CALL_SECONDS)

    def _insist(self, call: Callable[[float], None]) -> None:
        """Repeats a call that Kafka says may be repeated, such as one that timed out."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                call(CALL_SECONDS)
                return
            except KafkaException as failure:
                self._give_up_if_fenced(failure)
                if not failure.args[0].retriable():
                    raise
                if time.monotonic() > deadline:
                    raise _no_answer(failure) from None
                self._tell_once(failure)
            self._stop_if_asked()

    def _tell_once(self, failure: KafkaException) -> None:
        if not self._told:
            self._notice(f"Kafka takes no events ({reason(failure)}); trying until it does")
        self._told = True

    def _stop_if_asked(self) -> None:
        if self._stopping():
            raise Stopped

    @staticmethod
    def _give_up_if_fenced(failure: KafkaException) -> None:
        error = failure.args[0]
        if error.code() == KafkaError._FENCED:
            raise OperatorError(
                "another replay of the same source has taken over, or Kafka was away for more than "
                f"{TRANSACTION_SECONDS} s in the middle of a batch",
                "nothing is lost: run the same command again, once, to go on",
            ) from None
        if error.fatal():
            raise OperatorError(
                f"Kafka refuses this replay: {reason(failure)}",
                "what was committed stays; the same command goes on after it",
            ) from None


def connect(client: dict[str, Any], source_id: str) -> Producer:
    """A producer whose transactions outlive it: the next one with this source id takes over."""
    return kafka.producer(
        client
        | {
            "client.id": f"millrace-replay-{source_id[:8]}",
            "transactional.id": f"replay-{source_id}",
            "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
            # Below the transaction's own time-out, so that a stuck batch is aborted by us and sent
            # again, and not aborted by the broker, which would fence us.
            "message.timeout.ms": TRANSACTION_SECONDS * 1000 // 2,
            "message.max.bytes": 16 * 1024 * 1024,
            "queue.buffering.max.kbytes": 64 * 1024,
            "linger.ms": 20,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",  # Java's, so that a key has one partition for all
        }
    )


def last_progress(pipeline: Pipeline, source_id: str) -> Progress | None:
    """The newest committed position of a source.

    To be called after `EventLog.open`: from then on no transaction of this source is undecided.
    One of another source may be, and hides what comes after it until it ends: so this reads up
    to the high watermark, past every such transaction, and not just to the last stable offset.
    """
    topic = pipeline.topics.replay_progress
    partition = TopicPartition(topic, 0, kafka.OFFSET_BEGINNING)
    # The group is required; nothing is ever committed to it.
    consumer = kafka.consumer(pipeline.client | {"group.id": f"replay-{source_id}"})
    newest: Progress | None = None
    try:
        end = kafka.high_watermark(kafka.admin(pipeline.client), partition)
        consumer.assign([partition])
        deadline = time.monotonic() + 2 * TRANSACTION_SECONDS
        while time.monotonic() < deadline:
            record = consumer.poll(1.0)
            if record is None:
                continue
            if error := record.error():
                if error.code() != KafkaError._PARTITION_EOF:
                    continue  # librdkafka recovers by itself; the deadline bounds it
                if (record.offset() or 0) >= end:
                    return newest
            elif record.key() == source_id.encode():
                newest = Progress.from_json(record.value() or b"")
    finally:
        consumer.close()
    raise OperatorError(
        f"could not read the replay's position from topic {topic} in {2 * TRANSACTION_SECONDS} s",
        "`millrace status` shows whether all of its replicas are there; then try again",
    )


def _no_answer(failure: KafkaException) -> OperatorError:
    return OperatorError(
        f"Kafka hasn't taken a batch for {PATIENCE_SECONDS / 60:g} minutes: {reason(failure)}",
        "nothing is lost: `millrace status` shows what is down; then run the same command again",
    )
