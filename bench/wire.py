"""The five requests of Kafka's protocol that a producer needs. Pure: bytes in, bytes out.

Of each the newest version without tagged fields, as <https://kafka.apache.org/protocol> has them.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

CLIENT = "millrace-bench"
PRODUCE, METADATA, INIT_PRODUCER_ID = 0, 3, 22
VERSIONS = {PRODUCE: 8, METADATA: 4, INIT_PRODUCER_ID: 1}
ALL = -1  # acks


class Address(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True)
class Answer:
    """What became of a partition's batch: ``error`` 0 is none."""

    partition: int
    error: int
    offset: int


def request(api: int, correlation: int, body: bytes) -> bytes:
    """With its length before it."""
    head = struct.pack(">hhi", api, VERSIONS[api], correlation) + _string(CLIENT)
    return struct.pack(">i", len(head) + len(body)) + head + body


def metadata_request(topic: str) -> bytes:
    return struct.pack(">i", 1) + _string(topic) + b"\0"


def init_producer_id_request() -> bytes:
    return struct.pack(">hi", -1, 0)


def produce_request(topic: str, batches: Mapping[int, bytes], timeout_ms: int) -> bytes:
    """One batch for each partition, to be acknowledged by all replicas in sync."""
    parts = [struct.pack(">hhiih", -1, ALL, timeout_ms, 1, len(topic)), topic.encode()]
    parts.append(struct.pack(">i", len(batches)))
    for partition, content in batches.items():
        parts += [struct.pack(">ii", partition, len(content)), content]
    return b"".join(parts)


def leaders(body: bytes) -> dict[int, Address | None]:
    """Of an answer to `metadata_request`: each partition's; None while there is none."""
    read = _Reader(body)
    read.int32()  # throttled
    brokers = {}
    for _ in range(read.int32()):
        node = read.int32()
        brokers[node] = Address(read.string(), read.int32())
        read.string()  # rack
    read.string()  # cluster
    read.int32()  # controller
    found: dict[int, Address | None] = {}
    for _ in range(read.int32()):
        read.int16()
        read.string()
        read.int8()
        for _ in range(read.int32()):
            read.int16()
            partition, leader = read.int32(), read.int32()
            found[partition] = brokers.get(leader)
            for _ in range(2):  # replicas, and those in sync
                for _ in range(read.int32()):
                    read.int32()
    return found


def producer_id(body: bytes) -> tuple[int, int, int]:
    """Of an answer to `init_producer_id_request`: error, id and epoch."""
    _, error, producer, epoch = struct.unpack(">ihqh", body[:16])
    return error, producer, epoch


def answers(body: bytes) -> Iterator[Answer]:
    """Of an answer to `produce_request`."""
    read = _Reader(body)
    for _ in range(read.int32()):
        read.string()
        for _ in range(read.int32()):
            partition, error, offset = read.int32(), read.int16(), read.int64()
            read.int64()  # its time, if the broker gave it one
            read.int64()  # where the log starts
            for _ in range(read.int32()):  # records at fault
                read.int32()
                read.string()
            read.string()
            yield Answer(partition, error, offset)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def int8(self) -> int:
        return self._number(">b")

    def int16(self) -> int:
        return self._number(">h")

    def int32(self) -> int:
        return self._number(">i")

    def int64(self) -> int:
        return self._number(">q")

    def string(self) -> str:
        """Empty where there is none."""
        length = max(0, self.int16())
        self._at += length
        return self._content[self._at - length : self._at].decode()

    def _number(self, kind: str) -> int:
        (value,) = struct.unpack_from(kind, self._content, self._at)
        self._at += struct.calcsize(kind)
        return int(value)
