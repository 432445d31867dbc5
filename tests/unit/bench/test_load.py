"""The bench's load: records that are encoded ahead, and Kafka's protocol."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import pool, wire
from bench.pool import Pool
from millrace.ledger.events import encode, events
from millrace.ledger.spec import Spec
from tests.unit.runs import SPEC as RUN

SPEC = replace(RUN, started_ms=0, results_offsets=[], pool=1000)
STARTED_MS = 1_795_252_545_936


def read_varint(content: bytes, at: int) -> tuple[int, int]:
    """As Kafka's documentation has it, however many bytes a writer took."""
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def read_records(content: bytes) -> list[tuple[int, bytes, bytes]]:
    """Place, key and value of each record."""
    found, at = [], 0
    while at < len(content):
        length, at = read_varint(content, at)
        end = at + length
        _, at = read_varint(content, at + 1)  # attributes, then the time
        place, at = read_varint(content, at)
        size, at = read_varint(content, at)
        key, at = content[at : at + size], at + size
        size, at = read_varint(content, at)
        value, at = content[at : at + size], at + size
        headers, at = read_varint(content, at)
        assert (headers, at) == (0, end)
        found.append((place, key, value))
    return found


@pytest.fixture(scope="module")
def started() -> tuple[Pool, Spec]:
    made = Pool(SPEC)
    return made, made.start(STARTED_MS)


class TestPool:
    @given(first=st.integers(0, 15_000), count=st.integers(1, 3000))
    @settings(max_examples=20)
    def test_what_it_writes_is_what_the_ledger_knows(
        self, started: tuple[Pool, Spec], first: int, count: int
    ) -> None:
        made, spec = started
        expected = encode(events(spec, np.arange(first, first + count)))
        seen: dict[int, tuple[bytes, bytes]] = {}
        for batch in made.batches(first, first + count):
            records = read_records(batch.records.tobytes())
            assert [place for place, *_ in records] == list(range(len(batch.numbers)))
            assert len(batch.records) <= pool.BATCH_BYTES
            for number, (_, key, value) in zip(batch.numbers.tolist(), records, strict=True):
                assert pool.partition_of(key, spec.partitions) == batch.partition
                seen[number - first] = key, value
        assert [seen[at] for at in range(count)] == expected

    def test_a_partition_gets_its_events_in_order(self, started: tuple[Pool, Spec]) -> None:
        numbers: dict[int, list[int]] = {}
        for batch in started[0].batches(500, 4500):
            numbers.setdefault(batch.partition, []).extend(batch.numbers.tolist())
        assert all(sorted(own) == own for own in numbers.values())
        assert sum(map(len, numbers.values())) == 4000

    def test_a_partition_without_keys_is_left_out(self) -> None:
        made = Pool(replace(SPEC, pool=3, partitions=50))
        made.start(STARTED_MS)
        assert sum(len(batch.numbers) for batch in made.batches(0, 3)) == 3


# Of Kafka's own UtilsTest.testMurmur2.
@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_placed_as_java_places_them(key: bytes, signed: int) -> None:
    assert pool.murmur2(key) == signed % 2**32


@given(st.integers(-(2**40), 2**40))
def test_a_varint_is_read_back(value: int) -> None:
    written = pool.varint(value)
    assert read_varint(written, 0) == (value, len(written))


@given(st.integers(0, 8191))
def test_a_place_always_takes_two_bytes(value: int) -> None:
    assert read_varint(pool.places(np.array([value])).tobytes(), 0) == (value, 2)


def test_a_batch_is_laid_out_as_kafka_documents_it() -> None:
    body = pool.header(count=7, now_ms=123, producer=44, epoch=1, sequence=5) + b"records"
    (offset, length, leader, magic, checksum) = struct.unpack_from(
        ">qiibI", content := pool.batch(body, 99)
    )
    assert (offset, leader, magic, checksum) == (0, -1, 2, 99)
    assert length == len(content) - 12
    assert struct.unpack_from(">hiqqqhii", content, 21) == (3, 6, 123, 123, 44, 1, 5, 7)
    assert content[61:] == b"records"


class TestWire:
    def test_a_request_begins_with_its_length(self) -> None:
        asked = wire.request(wire.METADATA, 3, wire.metadata_request("events"))
        assert struct.unpack_from(">ihhi", asked) == (len(asked) - 4, 3, 4, 3)

    def test_leaders_are_read_and_those_that_are_missing(self) -> None:
        def text(value: bytes) -> bytes:
            return struct.pack(">h", len(value)) + value

        broker = struct.pack(">i", 9) + text(b"kafka-9") + struct.pack(">ih", 9092, -1)
        parts = [
            struct.pack(">hiiiiii", 0, partition, leader, 1, 9, 1, 9)
            for partition, leader in ((0, 9), (1, -1))
        ]
        topic = struct.pack(">h", 0) + text(b"events") + b"\0" + struct.pack(">i", 2)
        answer = struct.pack(">ii", 0, 1) + broker + struct.pack(">hi", -1, 9)
        answer += struct.pack(">i", 1) + topic + b"".join(parts)
        assert wire.leaders(answer) == {0: wire.Address("kafka-9", 9092), 1: None}

    def test_answers_are_read(self) -> None:
        one = struct.pack(">ihqqqih", 4, 0, 1000, -1, 0, 0, -1)
        other = struct.pack(">ihqqqih", 5, 6, -1, -1, -1, 0, -1)
        content = struct.pack(">ih", 1, 6) + b"events" + struct.pack(">i", 2) + one + other
        assert list(wire.answers(content)) == [wire.Answer(4, 0, 1000), wire.Answer(5, 6, -1)]

    def test_a_producer_id_is_read(self) -> None:
        assert wire.producer_id(struct.pack(">ihqh", 0, 0, 77, 2)) == (0, 77, 2)
