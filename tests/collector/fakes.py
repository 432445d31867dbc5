"""A producer whose acknowledgements a test gives or withholds."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tests.waiting import pause

# So that a test which forgot its answer ends all the same: two milliseconds each, and no clock.
POLLS_TO_TIME_OUT = 30_000

Report = Callable[[KafkaError | None, Any], None]


class FakeProducer:
    """As confluent_kafka's, as far as the collector uses it.

    Attributes:
        answers: whether Kafka does; if not, records wait until it does.
        error: what it says of each record; ``errors`` by what a record has in it.
        refuses: what the client itself says of a record that has this in it.
    """

    def __init__(self) -> None:
        self.answers = True
        self.error: KafkaError | None = None
        self.errors: dict[bytes, KafkaError] = {}
        self.refuses: dict[bytes, Exception] = {}
        self.fatal = False
        self.looks = 0
        self.written: list[tuple[str, bytes, bytes]] = []
        self.failed = 0
        self.polls = 0
        self._waiting: deque[tuple[int, tuple[str, bytes, bytes], Report]] = deque()

    def produce(self, topic: str, value: bytes, key: bytes, on_delivery: Report) -> None:
        if self.fatal:
            raise KafkaException(KafkaError(KafkaError._FATAL, "out of sequence", fatal=True))
        for content, refusal in self.refuses.items():
            if content in value:
                raise refusal
        self._waiting.append((self.polls, (topic, key, value), on_delivery))

    def poll(self, seconds: float) -> None:
        while self._waiting and (self.answers or self._is_late()):
            _, record, report = self._waiting.popleft()
            error = self._error_of(record[2])
            if not error:
                self.written.append(record)
            else:
                self.failed += 1
            offset = len(self.written) - 1
            report(error, SimpleNamespace(partition=lambda: 0, offset=lambda o=offset: o))
        self.polls += 1
        pause(0.002, "a poll takes a while")

    def _error_of(self, value: bytes) -> KafkaError | None:
        if not self.answers:
            return KafkaError(KafkaError._MSG_TIMED_OUT)
        found = (error for content, error in self.errors.items() if content in value)
        return next(found, self.error)

    def _is_late(self) -> bool:
        return self.polls - self._waiting[0][0] > POLLS_TO_TIME_OUT

    def purge(self) -> None:
        self.error = KafkaError(KafkaError._PURGE_QUEUE)
        self.answers = True

    def list_topics(self, timeout: float) -> None:
        self.looks += 1
        if not self.answers:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def __len__(self) -> int:
        return len(self._waiting)
