"""How many committed records Kafka has in a range of offsets.

Ends of transactions and what was aborted have offsets, too, and no client sees them: a range in
which every offset isn't accounted for is read, and what a client gets of it is counted. A client
fetches what stands behind the range, too, be it larger than any client takes: that ends the range.
"""

import logging
from collections.abc import Iterable
from functools import cached_property

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millrace_gateway.books.account import EARLIEST, Piece

ANSWER_SECONDS = 5.0
BUFFER_KB = 8 * 1024
# Of a record, for good: above `receive.message.max.bytes` once decompressed, or damaged.
UNREADABLE = (KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG)


class Witness:
    """Reads without a position of its own, and only what it is asked of."""

    def __init__(self, brokers: str) -> None:
        self._brokers = brokers

    @cached_property
    def _consumer(self) -> Consumer:
        """Has threads and connections from its beginning, and a stream without transactions never
        needs any."""
        silence = logging.getLogger("gateway.librdkafka")
        silence.disabled = True
        return Consumer(
            {
                "bootstrap.servers": self._brokers,
                "group.id": "none",  # it never joins one
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": BUFFER_KB,
            },
            logger=silence,
        )

    def count(self, topic: str, pieces: Iterable[Piece]) -> int | None:
        """None if Kafka has forgotten some of them, or has some that nobody can read here. Raises
        KafkaException without an answer."""
        total = 0
        for piece in pieces:
            place = TopicPartition(topic, piece.partition)
            first, _ = self._consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
            if EARLIEST < piece.start < first:
                return None
            found = self._count(topic, piece, max(first, piece.start))
            if found is None:
                return None
            total += found
        return total

    def _count(self, topic: str, piece: Piece, start: int) -> int | None:
        self._consumer.assign([TopicPartition(topic, piece.partition, start)])
        try:
            found = 0
            while True:
                # One by one: a portion would be waited for until it is full.
                message = self._consumer.poll(ANSWER_SECONDS)
                if message is None:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
                if error := message.error():
                    if error.code() == KafkaError._PARTITION_EOF:
                        return found
                    if error.code() not in UNREADABLE:
                        raise KafkaException(error)
                    return found if message.offset() >= piece.end else None
                if message.offset() >= piece.end:
                    return found
                found += 1
        finally:
            self._consumer.unassign()
