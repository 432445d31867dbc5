"""Sends records as producers of all kinds do, and keeps where each of them stands."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

from millrace.cluster import kafka
from millrace.cluster.kafka import Message
from millrace.plan import Plan
from tests.fuzz.records import Record

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
FLUSH_SECONDS = 120.0
LARGEST_MESSAGE = 2**20
ABORTS = 0.3  # of the transactions

Place = tuple[str, int, int]  # topic, partition, offset


@dataclass
class Sent:
    """What was done to the record at each place; ``aborted`` are those that nobody may count."""

    kept: dict[Place, str] = field(default_factory=dict)
    aborted: dict[Place, str] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)  # by kind: a broker took none of these


class Sender:
    """Plain producers, one for each compression, and one whose transactions may abort."""

    def __init__(self, plan: Plan, random: Random) -> None:
        self.sent = Sent()
        self._random = random
        common = kafka.default_client(plan) | {"message.max.bytes": LARGEST_MESSAGE}
        self._plain = [
            kafka.producer(common | {"enable.idempotence": True, "compression.type": name})
            for name in COMPRESSIONS
        ]
        self._in_transactions = kafka.producer(common | {"transactional.id": f"fuzz-{uuid4().hex}"})
        self._in_transactions.init_transactions()

    def send(self, topic: str, records: Iterable[Record]) -> None:
        """Sends them by one of the producers; returns once it is known what became of each."""
        producer = self._random.choice([*self._plain, self._in_transactions])
        if producer is not self._in_transactions:
            self._produce(producer, topic, records, self.sent.kept)
            return
        producer.begin_transaction()
        if self._random.random() < ABORTS:
            self._produce(producer, topic, records, self.sent.aborted)
            producer.abort_transaction()
        else:
            self._produce(producer, topic, records, self.sent.kept)
            producer.commit_transaction()

    def _produce(
        self, producer: Any, topic: str, records: Iterable[Record], into: dict[Place, str]
    ) -> None:
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                headers=record.headers,
                on_delivery=self._noting(record.kind, into),
            )
        left = producer.flush(FLUSH_SECONDS)
        assert left == 0, f"{left} records of {topic} are neither written nor refused"

    def _noting(
        self, kind: str, into: dict[Place, str]
    ) -> Callable[[kafka.KafkaError | None, Message], None]:
        def note(error: kafka.KafkaError | None, message: Message) -> None:
            assert error is None, f"{kind}: {error}"
            into[message.topic(), message.partition(), message.offset()] = kind

        return note
