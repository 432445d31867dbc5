"""A run's events encoded ahead: per event, only digits are written. Pure.

Events of a pool (`Spec.pool`) come again and again with ids and times of their own. Kafka's records
of all of them are made once, those of each partition one after the other. A range of event numbers
is a slice of each partition then, in which number, time and place are overwritten.

A record's place within its batch is a number of variable length. It is written with two bytes
always, which every reader takes, so that it can be overwritten.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np

from millrace.ledger.events import NUMBER_DIGITS, encode, events, times_ms
from millrace.ledger.spec import Spec

BATCH_BYTES = 64 * 1024  # pyarrow's LZ4 links larger blocks, which Kafka doesn't read
SLICE = 20_000
HEADER = struct.Struct(">hiqqqhii")  # of a batch, from its attributes on
LZ4 = 3
MAGIC = 2
TIME_DIGITS = len("2026-01-01T00:00:00.000")
TENS = 10_000


@dataclass(frozen=True)
class Batch:
    """Records of one partition, not compressed yet; ``numbers`` are their events'."""

    partition: int
    numbers: np.ndarray
    records: np.ndarray


@dataclass(frozen=True)
class _Part:
    """A partition's records: ``starts`` has one more, the end. Positions are from a record's."""

    members: np.ndarray
    starts: np.ndarray
    content: np.ndarray
    number_at: np.ndarray
    time_at: np.ndarray
    place_at: int
    most: int  # records of a batch


class Pool:
    """Made before a run starts: it takes about 15 µs for each event of the pool."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        records: list[list[bytes]] = [[] for _ in range(spec.partitions)]
        members: list[list[int]] = [[] for _ in range(spec.partitions)]
        for start in range(0, spec.pool, SLICE):
            numbers = np.arange(start, min(start + SLICE, spec.pool))
            for number, (key, value) in zip(
                numbers.tolist(), encode(events(spec, numbers)), strict=True
            ):
                partition = partition_of(key, spec.partitions)
                members[partition].append(number)
                records[partition].append(record(key, value))
        self._parts = [
            _part(spec, *of_partition) for of_partition in zip(members, records, strict=True)
        ]

    def start(self, started_ms: int) -> Spec:
        """The run, which starts then: its ids and times depend on it."""
        self._spec = replace(self._spec, started_ms=started_ms)
        prefix = np.frombuffer(self._spec.prefix.encode(), np.uint8)
        for part in self._parts:
            at = part.starts[:-1] + part.number_at - len(prefix)
            _write(part.content, at, np.broadcast_to(prefix, (len(at), len(prefix))))
        return self._spec

    def batches(self, first: int, end: int) -> Iterator[Batch]:
        """Batches of the events ``first`` to ``end``, those of each partition in order."""
        while first < end:
            cycle, start = divmod(first, self._spec.pool)
            stop = min(end, (cycle + 1) * self._spec.pool)
            for partition, part in enumerate(self._parts):
                low, high = np.searchsorted(
                    part.members, [start, stop - cycle * self._spec.pool]
                ).tolist()
                if high > low:
                    numbers = cycle * self._spec.pool + part.members[low:high]
                    yield from self._cut(partition, part, low, high, numbers)
            first = stop

    def _cut(
        self, partition: int, part: _Part, low: int, high: int, numbers: np.ndarray
    ) -> Iterator[Batch]:
        offset = part.starts[low]
        content = part.content[offset : part.starts[high]].copy()
        starts = part.starts[low:high] - offset
        _write(content, starts + part.number_at[low:high], digits_of(numbers))
        _write(
            content, starts + part.time_at[low:high], digits_of_times(times_ms(self._spec, numbers))
        )
        _write(content, starts + part.place_at, places(np.arange(high - low) % part.most))
        for at in range(0, high - low, part.most):
            last = min(at + part.most, high - low)
            end = starts[last] if last < high - low else len(content)
            yield Batch(partition, numbers[at:last], content[starts[at] : end])


def _part(spec: Spec, members: list[int], records: list[bytes]) -> _Part:
    lengths = np.array([len(one) for one in records], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    prefix = spec.prefix.encode()
    number_at = np.array([one.index(prefix) + len(prefix) for one in records], np.int64)
    mark = b'"event_time":"'
    time_at = np.array([one.index(mark) + len(mark) for one in records], np.int64)
    longest = int(lengths.max(initial=1))
    return _Part(
        np.array(members, np.int64),
        starts,
        np.frombuffer(bytearray().join(records), np.uint8),
        number_at,
        time_at,
        # Its length takes two bytes, as any between 64 and 8191; then attributes and time.
        place_at=4,
        most=max(1, BATCH_BYTES // longest),
    )


def _write(content: np.ndarray, at: np.ndarray, texts: np.ndarray) -> None:
    content[at[:, None] + np.arange(texts.shape[1])] = texts


def record(key: bytes, value: bytes) -> bytes:
    """A record of Kafka's format 2 without headers, at the time of its batch, at place 0."""
    place = places(np.zeros(1, np.int64)).tobytes()
    body = b"\0\0" + place + varint(len(key)) + key + varint(len(value)) + value + varint(0)
    length = varint(len(body))
    assert len(length) == 2, f"records of {len(body)} bytes are not foreseen"
    return length + body


def header(count: int, now_ms: int, producer: int, epoch: int, sequence: int) -> bytes:
    """What stands between a batch's checksum and its records, which are compressed by LZ4."""
    return HEADER.pack(LZ4, count - 1, now_ms, now_ms, producer, epoch, sequence, count)


def batch(body: bytes, checksum: int) -> bytes:
    """A whole batch, of its header and records and of their CRC-32C."""
    return struct.pack(">qiibI", 0, len(body) + 9, -1, MAGIC, checksum) + body


def varint(value: int) -> bytes:
    """Zigzag, seven bits a byte, the lowest first."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def places(values: np.ndarray) -> np.ndarray:
    """As varints of two bytes; values up to 8191."""
    doubled = 2 * values
    return np.stack([doubled & 0x7F | 0x80, doubled >> 7], axis=1).astype(np.uint8)


def digits_of(numbers: np.ndarray) -> np.ndarray:
    """Ten digits of each, as ASCII."""
    table = _four_digits()
    head, rest = np.divmod(numbers, TENS * TENS)
    high, low = np.divmod(rest, TENS)
    return np.concatenate([table[head], table[high], table[low]], axis=1)[:, 12 - NUMBER_DIGITS :]


def digits_of_times(times: np.ndarray) -> np.ndarray:
    """Milliseconds since 1970 as ``2026-01-01T00:00:00.000``, in ASCII."""
    seconds, ms = np.divmod(times, 1000)
    distinct, which = np.unique(seconds, return_inverse=True)
    texts = np.datetime_as_string(distinct.astype("datetime64[s]")).astype("S19")
    head = np.frombuffer(texts.tobytes(), np.uint8).reshape(-1, 19)[which]
    point = np.full((len(times), 1), ord("."), np.uint8)
    return np.concatenate([head, point, _four_digits()[ms][:, 1:]], axis=1)


@lru_cache
def _four_digits() -> np.ndarray:
    text = "".join(f"{number:04d}" for number in range(TENS)).encode()
    return np.frombuffer(text, np.uint8).reshape(TENS, 4)


@cache
def partition_of(key: bytes, partitions: int) -> int:
    """Where Java's producer sends a key: murmur2, positive."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Kafka's, as an unsigned number of 32 bits."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if len(data) > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
