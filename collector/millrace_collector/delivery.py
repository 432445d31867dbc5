"""To Kafka, and back with its word on each record: acknowledged by all in-sync replicas, or not.

Every record that was handed over is told of once, as delivered or as failed, within the client's
``message.timeout.ms``. So when a request is answered, nothing of it is left to be sent.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock, Thread
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millrace_collector.fates import Failure, Fate, Kind

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
LOOK_SECONDS = 2.0
LOOK_AGAIN_SECONDS = 1.0
AT_ONCE = 500  # records; then others have their turn, some two milliseconds later
# What no waiting mends. A broker judges batches, with records of several requests in them: none of
# those is to blame for what it says.
OPERATORS = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_REQUIRED_ACKS,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.POLICY_VIOLATION,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.SECURITY_DISABLED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._AUTHENTICATION,
    KafkaError._INVALID_ARG,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNSUPPORTED_FEATURE,
}


class Delivery:
    """A producer, and another one once that can't go on: see ``_replace``."""

    def __init__(
        self, connect: Callable[[], Producer], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._connect = connect
        self._connection = Connection(connect())
        self.producers = 1
        self._now = now
        self._looking = asyncio.Lock()
        self._looked_at = -LOOK_AGAIN_SECONDS
        self._is_reachable = False

    async def deliver(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> list[Fate]:
        """Keys and values to a topic; what became of each, once that is known of all."""
        batch = Batch(len(records))
        for start in range(0, len(records), AT_ONCE):
            await asyncio.sleep(0)
            numbers = range(start, min(start + AT_ONCE, len(records)))
            if not self._hand_over(topic, records, numbers, batch):
                break
        fates = await batch.told()
        if failed := Counter(fate.why for fate in fates if isinstance(fate, Failure)):
            log.warning("%s: not written, or nobody knows: %s", topic, dict(failed))
        return fates

    def _hand_over(
        self, topic: str, records: Sequence[tuple[bytes, bytes]], numbers: range, batch: "Batch"
    ) -> bool:
        """Whether more may follow."""
        produce, report = self._connection.producer.produce, batch.report
        for number in numbers:
            key, value = records[number]
            try:
                produce(topic, value, key, on_delivery=partial(report, number))
            except BufferError:
                batch.tell(number, Failure(Kind.UNWRITTEN, "_QUEUE_FULL"))
            except KafkaException as failure:
                error = failure.args[0]
                if error.fatal():
                    batch.give_up(number, Failure(Kind.UNWRITTEN, error.name()))
                    self._replace(str(error.str()))
                    return False
                batch.tell(number, _not_taken(error))
        return True

    def _replace(self, reason: str) -> None:
        """An idempotent producer ends for good when its sequence numbers don't fit the broker's, as
        when a partition's leader dies. Then, as librdkafka asks for, a new one goes on."""
        log.warning("a new producer takes over: %s", reason)
        self._connection.retire()
        self._connection = Connection(self._connect())
        self.producers += 1

    async def is_reachable(self) -> bool:
        """A broker answers within two seconds. Kafka is asked once a second, whoever wants to
        know."""
        async with self._looking:
            if self._now() - self._looked_at >= LOOK_AGAIN_SECONDS:
                self._is_reachable = await asyncio.to_thread(self._answers)
                self._looked_at = self._now()
        return self._is_reachable

    def _answers(self) -> bool:
        try:
            self._connection.producer.list_topics(timeout=LOOK_SECONDS)
        except KafkaException:
            return False
        return True

    async def close(self) -> None:
        await asyncio.to_thread(self._connection.close)


class Connection:
    """A producer with the thread that brings its reports."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self._closing = False
        self._thread = Thread(target=self._bring_reports, daemon=True)
        self._thread.start()

    def retire(self) -> None:
        """Whatever it still has is told of as purged, and then it ends."""
        self.producer.purge()
        self._closing = True

    def close(self) -> None:
        """Once it has told of everything."""
        self._closing = True
        self._thread.join()

    def _bring_reports(self) -> None:
        while not self._closing or len(self.producer):
            self.producer.poll(POLL_SECONDS)


class Batch:
    """The records of one request, on their way. Reports come on another thread."""

    def __init__(self, size: int) -> None:
        self._fates: list[Fate] = [Failure(Kind.UNWRITTEN, "not told of")] * size
        self._left = size
        self._lock = Lock()
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        if not size:
            self._done.set()

    def report(self, number: int, error: KafkaError | None, message: Message) -> None:
        fate = _told(error) if error else (message.partition(), message.offset())
        self.tell(number, fate)

    def tell(self, number: int, fate: Fate) -> None:
        self._fates[number] = fate
        self._count(1)

    def give_up(self, first: int, fate: Failure) -> None:
        """That record and those behind it, which won't be handed over."""
        rest = len(self._fates) - first
        self._fates[first:] = [fate] * rest
        self._count(rest)

    def _count(self, records: int) -> None:
        with self._lock:
            self._left -= records
            is_last = not self._left
        if is_last:
            self._loop.call_soon_threadsafe(self._done.set)

    async def told(self) -> list[Fate]:
        """Once all are told of."""
        await self._done.wait()
        return self._fates


def _not_taken(error: KafkaError) -> Failure:
    """Of a record that the client itself didn't take: it is this one's fault, or an operator's."""
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return Failure(Kind.REFUSED, "it is larger than Kafka takes")
    return Failure(Kind.UNWRITABLE if error.code() in OPERATORS else Kind.UNWRITTEN, error.name())


def _told(error: KafkaError) -> Failure:
    """Of a record that was handed over. One that timed out or was purged may have been sent."""
    return Failure(Kind.UNWRITABLE if error.code() in OPERATORS else Kind.UNKNOWN, error.name())


def connect(settings: dict[str, Any]) -> Producer:
    """A producer by librdkafka's properties; keys go to partitions as Java's clients send them."""
    fixed = {
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        # The bound is the collector's own buffer, which refuses before anything is handed over.
        "queue.buffering.max.messages": 0,
    }
    return Producer(settings | fixed, logger=log)
