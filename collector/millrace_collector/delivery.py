"""To Kafka, and back with its word: acknowledged by all in-sync replicas, or not.

Every record that was handed over is told of once, as delivered or as failed, within the client's
``message.timeout.ms``. So when a request is answered, nothing of it is left to be sent.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock, Thread
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millrace_collector.refusals import Undelivered

log = logging.getLogger(__name__)

AGAIN_SECONDS = 2.0
POLL_SECONDS = 0.1
LOOK_SECONDS = 2.0

Place = tuple[int, int]  # partition and offset


class Delivery:
    """A producer, and another one once that can't go on: see ``_replace``."""

    def __init__(self, connect: Callable[[], Producer]) -> None:
        self._connect = connect
        self._connection = Connection(connect())
        self.producers = 1

    async def deliver(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> list[Place]:
        """Keys and values to a topic; where each is now.

        Raises Undelivered when one isn't acknowledged in time.
        """
        batch = Batch(len(records))
        try:
            self._produce(topic, records, batch)
        except KafkaException as failure:
            batch.give_up(failure.args[0])
            if failure.args[0].fatal():
                self._replace(str(failure.args[0].str()))
        if error := await batch.reported():
            log.warning("%s: not delivered: %s", topic, error.str())
            raise Undelivered(
                f"Not every record was acknowledged ({error.name()}); some may have been written."
                " Send all of them again: copies are told by their ids, where the stream does so.",
                retry_after_seconds=AGAIN_SECONDS,
            )
        return batch.places

    def _produce(self, topic: str, records: Sequence[tuple[bytes, bytes]], batch: "Batch") -> None:
        produce, report = self._connection.producer.produce, batch.report
        for number, (key, value) in enumerate(records):
            produce(topic, value, key, on_delivery=partial(report, number))
            batch.handed_over += 1

    def _replace(self, reason: str) -> None:
        """An idempotent producer ends for good when its sequence numbers don't fit the broker's, as
        when a partition's leader dies. Then, as librdkafka asks for, a new one goes on."""
        log.warning("a new producer takes over: %s", reason)
        self._connection.retire()
        self._connection = Connection(self._connect())
        self.producers += 1

    async def is_reachable(self) -> bool:
        """A broker answers within two seconds."""
        try:
            await asyncio.to_thread(self._connection.producer.list_topics, timeout=LOOK_SECONDS)
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
        self.handed_over = 0
        self.places: list[Place] = [(-1, -1)] * size
        self._size = size
        self._left = size
        self._error: KafkaError | None = None
        self._lock = Lock()
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        if not size:
            self._done.set()

    def report(self, number: int, error: KafkaError | None, message: Message) -> None:
        if not error:
            self.places[number] = message.partition(), message.offset()
        self._tell(error, 1)

    def give_up(self, error: KafkaError) -> None:
        """What wasn't handed over won't be."""
        self._tell(error, self._size - self.handed_over)

    def _tell(self, error: KafkaError | None, records: int) -> None:
        with self._lock:
            self._left -= records
            self._error = self._error or error
            is_last = not self._left
        if is_last:
            self._loop.call_soon_threadsafe(self._done.set)

    async def reported(self) -> KafkaError | None:
        """Once all are told of: the first error."""
        await self._done.wait()
        return self._error


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
