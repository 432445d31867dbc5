"""What the books count, on a real broker: neither ends of transactions nor what was aborted."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from millrace_gateway.books.account import EARLIEST, Piece
from millrace_gateway.books.witness import Witness

from bench.engines.broker import Broker, broker
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.extended

TOPIC = "events"
EACH = 50  # records of a transaction, or without one


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    """A topic whose partition 0 has records, then a transaction, one that was aborted, and another;
    each ends with an offset of its own. Partitions 1 and 2 have nothing."""
    with broker() as one:
        one.create(TOPIC, 3)
        plain = Producer({"bootstrap.servers": one.address})
        _produce(plain)
        plain.flush()
        transactional = Producer({"bootstrap.servers": one.address, "transactional.id": "test"})
        transactional.init_transactions(PATIENCE_SECONDS)
        for commits in (True, False, True):
            transactional.begin_transaction()
            _produce(transactional)
            transactional.flush()
            if commits:
                transactional.commit_transaction(PATIENCE_SECONDS)
            else:
                transactional.abort_transaction(PATIENCE_SECONDS)
        yield one


def test_what_no_client_can_hold_ends_what_is_before_it(kafka: Broker) -> None:
    """In a partition of its own: 120 MB between other records, as the archive has skipped it."""
    largest = {"message.max.bytes": 1_000_000_000, "compression.type": "zstd", "linger.ms": 0}
    producer = Producer({"bootstrap.servers": kafka.address} | largest)
    for value in (b"{}", b"a" * 120_000_000, b"{}"):
        producer.produce(TOPIC, value, partition=2)
        assert producer.flush(PATIENCE_SECONDS) == 0
    witness = Witness(kafka.address)
    assert witness.count(TOPIC, [Piece(2, 0, 1), Piece(2, 2, 3)]) == 2
    assert witness.count(TOPIC, [Piece(2, 0, 3)]) is None
    assert witness.count(TOPIC, [Piece(0, FIRST, SECOND)]) == EACH  # it reads on elsewhere


def _produce(producer: Producer) -> None:
    for _ in range(EACH):
        producer.produce(TOPIC, b"{}", partition=0)


FIRST, SECOND, ABORTED, LAST = 0, EACH, 2 * EACH + 1, 3 * EACH + 2  # where each begins
END = 4 * EACH + 3


@pytest.mark.parametrize(
    ("start", "end", "records"),
    [
        (FIRST, SECOND, EACH),
        (SECOND, ABORTED, EACH),
        (ABORTED - 1, ABORTED, 0),  # the end of a transaction
        (ABORTED, LAST, 0),
        (ABORTED + 3, LAST + 1, 1),
        (LAST, END, EACH),
        (END - 1, END, 0),  # nothing comes after it
        (FIRST, END, 3 * EACH),
        (EARLIEST, END, 3 * EACH),
    ],
)
def test_committed_records_are_counted(kafka: Broker, start: int, end: int, records: int) -> None:
    assert Witness(kafka.address).count(TOPIC, [Piece(0, start, end)]) == records


def test_several_pieces_are_counted_by_one_reader(kafka: Broker) -> None:
    witness = Witness(kafka.address)
    pieces = [Piece(0, LAST, END), Piece(0, 3, 5), Piece(0, SECOND - 1, SECOND + 1)]
    assert [witness.count(TOPIC, pieces) for _ in range(2)] == [EACH + 4] * 2


def test_of_what_retention_took_nobody_knows_how_much_it_was(kafka: Broker) -> None:
    """The last one: what is deleted here is gone."""
    admin = AdminClient({"bootstrap.servers": kafka.address})
    [deleted] = admin.delete_records([TopicPartition(TOPIC, 0, 10)]).values()
    deleted.result(PATIENCE_SECONDS)
    witness = Witness(kafka.address)
    assert witness.count(TOPIC, [Piece(0, 9, END)]) is None
    assert witness.count(TOPIC, [Piece(0, 10, SECOND)]) == EACH - 10
    assert witness.count(TOPIC, [Piece(0, EARLIEST, SECOND)]) == EACH - 10
