"""The open loop: sends each event when it is due, whatever became of those before it.

A generator that waits for answers slows down with the service and so hides its outages. This one
keeps to its schedule; where it can't, because the producer's queue is full, it waits, drops nothing
and says how far behind it got.

An idempotent producer of librdkafka can end for good when a partition's leader dies: its sequence
numbers no longer fit the broker's, which it calls fatal. Then, as its documentation asks for, a new
one goes on, and what the old one had on its way is in doubt: nobody knows whether Kafka has it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from millrace.cluster import kafka
from millrace.cluster.collector import CollectorProducer
from millrace.cluster.kafka import KafkaError, KafkaException, Message, Producer
from millrace.ledger.events import encode, events
from millrace.ledger.spec import Spec
from millrace.ledger.store import FAILED, State, Writer

TICK_SECONDS = 0.02
WRITE_SECONDS = 0.2  # what a crash may leave in doubt
SLICE = 1000  # events that are made at once: after a standstill many are due
DELIVERY_SECONDS = 600  # longer than any failover; then an event has failed
# Of an event that a producer gave back because it ended: it may have been written.
IN_DOUBT = {KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
QUEUE_EVENTS = 1_000_000
QUEUE_KIBIBYTES = 512 * 1024


@dataclass
class Seen:
    """What the operator is shown; ``behind`` is in seconds now, ``worst`` was the most so far.

    ``producers`` is how many it took, ``ended`` why the last of those that ended did.
    """

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    in_doubt: int = 0
    producers: int = 1
    ended: str = ""
    behind: float = 0.0
    worst: float = 0.0

    @property
    def waiting(self) -> int:
        return self.sent - self.acknowledged - self.failed - self.in_doubt


class Load:
    """One run. ``stopping`` is asked all the time; ``show`` is told about five times a second.

    ``connect`` makes a producer: at the start, and whenever the one before can't go on.
    """

    def __init__(
        self,
        spec: Spec,
        connect: Callable[[], Producer | CollectorProducer],
        ledger: Writer,
        stopping: Callable[[], bool],
        show: Callable[[Seen], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._spec = spec
        self._connect = connect
        self._producer = connect()
        self._ledger = ledger
        self._stopping = stopping
        self._show = show
        self._clock = clock
        self._written = 0.0
        self.seen = Seen()

    def run(self) -> None:
        """Sends until all is sent or it is told to stop; then waits for what is on its way."""
        schedule = self._spec.schedule
        while self.seen.sent < schedule.events and not self._stopping():
            due = schedule.due(self._elapsed())
            if due > self.seen.sent:
                self._send(min(due, self.seen.sent + SLICE))
            # Polling is also the pause until the next tick; behind schedule there is none.
            self._poll(TICK_SECONDS if due <= self.seen.sent else 0)
        while len(self._producer):
            self._poll(WRITE_SECONDS)
        self._ledger.close(self._state(finished=True))
        self._show(self.seen)

    def _send(self, end: int) -> None:
        numbers = np.arange(self.seen.sent, end)
        records = encode(events(self._spec, numbers))
        self._note_lag()
        for number, (key, value) in zip(numbers.tolist(), records, strict=True):
            self._produce(number, key, value)
            self.seen.sent = number + 1

    def _produce(self, number: int, key: bytes, value: bytes) -> None:
        delivered = partial(self._delivered, number)
        while True:
            try:
                self._producer.produce(self._spec.topic, value, key, on_delivery=delivered)
                return
            except BufferError:
                self._poll(TICK_SECONDS)
                self._note_lag()
            except KafkaException as failure:
                if not failure.args[0].fatal():
                    raise
                self._replace_producer(str(failure.args[0].str()))

    def _replace_producer(self, reason: str) -> None:
        """Every event that the old one still had is told of, as purged, before it goes."""
        self.seen.producers += 1
        self.seen.ended = reason
        self._producer.purge()
        while len(self._producer):
            self._poll(TICK_SECONDS)
        self._producer = self._connect()

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error and error.code() in IN_DOUBT:
            self.seen.in_doubt += 1
        elif error:
            self.seen.failed += 1
            self._ledger.record(number, FAILED, -1, self._elapsed_ms())
        else:
            self.seen.acknowledged += 1
            self._ledger.record(number, message.partition(), message.offset(), self._elapsed_ms())

    def _poll(self, seconds: float) -> None:
        self._producer.poll(seconds)
        if self._clock() - self._written >= WRITE_SECONDS:
            self._written = self._clock()
            self._ledger.write(self._state())
            self._show(self.seen)

    def _note_lag(self) -> None:
        """Notes how late the next event is sent."""
        due = float(self._spec.schedule.times(np.array([self.seen.sent]))[0])
        self.seen.behind = max(0.0, self._elapsed() - due)
        self.seen.worst = max(self.seen.worst, self.seen.behind)

    def _state(self, finished: bool = False) -> State:
        # A slice may be sent until the next write: in doubt is better said too often.
        ahead = 0 if finished else SLICE
        return State(self.seen.sent + ahead, self.seen.worst, finished)

    def _elapsed(self) -> float:
        return self._clock() - self._spec.started_ms / 1000

    def _elapsed_ms(self) -> int:
        return int(1000 * self._elapsed())


def connect(client: dict[str, Any], acks: str) -> Producer:
    """A producer that tries for minutes; with ``acks`` "all" it neither repeats nor reorders."""
    settings: dict[str, Any] = client | {
        "client.id": "millrace-load",
        "acks": acks,
        "enable.idempotence": acks == "all",
        "message.timeout.ms": DELIVERY_SECONDS * 1000,
        "queue.buffering.max.messages": QUEUE_EVENTS,
        "queue.buffering.max.kbytes": QUEUE_KIBIBYTES,
        "linger.ms": 100,  # a request takes a broker as much as its events do
        "compression.type": "lz4",
        "partitioner": "murmur2_random",  # Java's, so that a key has one partition for all
    }
    return kafka.producer(settings)
