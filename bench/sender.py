"""An idempotent producer of batches that are encoded already: a call per batch, not per event.

Whatever goes wrong, a lost connection or a leader that moved, it goes back to the first batch that
isn't acknowledged, of each partition, and asks anew who leads. The brokers know batches by producer
and sequence, so none is written twice.
"""

import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from bench import wire
from bench.pool import Batch, batch, header
from millrace.common.errors import OperatorError, UnreachableError

IN_FLIGHT = 5  # batches of a partition by which a broker knows one that comes again
DUPLICATE = 46
TIMEOUT_MS = 30_000
PAUSE_SECONDS = 0.2
PATIENCE_SECONDS = 60.0
CHUNK = 1 << 16
QUEUED = 50  # batches

# Partition, offset of the first, numbers.
Acknowledged = Callable[[int, int, np.ndarray], None]


@dataclass
class _Sealed:
    """A batch with the place in its partition's history that it keeps, however often it is sent."""

    numbers: np.ndarray
    content: bytes


class _Connection:
    """To one broker; answers come in the order of the requests."""

    def __init__(self, address: wire.Address) -> None:
        self.socket = socket.create_connection(address, timeout=5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.waiting: deque[set[int]] = deque()  # the partitions of each request
        self._correlation = 0
        self._unread = bytearray()

    def ask(self, api: int, body: bytes) -> bytes:
        """The answer's body, waited for."""
        self.send(api, body)
        while not (found := self.answers()):
            self._read()
        return found[0]

    def send(self, api: int, body: bytes) -> None:
        self._correlation += 1
        self.socket.sendall(wire.request(api, self._correlation, body))

    def read(self) -> list[bytes]:
        """Bodies of the answers that are complete, once there is something to read."""
        self._read()
        return self.answers()

    def answers(self) -> list[bytes]:
        found = []
        while len(self._unread) >= 4:
            (length,) = struct.unpack_from(">i", self._unread)
            if len(self._unread) < 4 + length:
                break
            found.append(bytes(self._unread[8 : 4 + length]))
            del self._unread[: 4 + length]
        return found

    def _read(self) -> None:
        content = self.socket.recv(CHUNK)
        if not content:
            raise ConnectionError("the broker closed the connection")
        self._unread += content


def ask(brokers: list[wire.Address], api: int, body: bytes) -> bytes:
    """The first answer of a broker. Raises UnreachableError when none gives one for a minute."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for address in brokers:
            try:
                connection = _Connection(address)
                with connection.socket:
                    return connection.ask(api, body)
            except OSError:
                continue
        time.sleep(PAUSE_SECONDS)
    raise UnreachableError("no Kafka broker answers", "`millrace status` shows what is down")


def send_all(
    brokers: list[wire.Address], topic: str, partitions: int, batches: Iterable[Batch]
) -> None:
    """As fast as it is taken; returns when all is acknowledged."""
    sender = Sender(brokers, topic, partitions, lambda *_: None)
    for each in batches:
        sender.put(each)
        while sender.unacknowledged > QUEUED:
            sender.poll(PAUSE_SECONDS)
    while sender.unacknowledged:
        sender.poll(PAUSE_SECONDS)
    sender.close()


def _producer_id(brokers: list[wire.Address]) -> tuple[int, int]:
    """With its epoch. A broker that has just started has none to give for a moment."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = ask(brokers, wire.INIT_PRODUCER_ID, wire.init_producer_id_request())
        error, producer, epoch = wire.producer_id(answer)
        if not error:
            return producer, epoch
        if time.monotonic() > deadline:
            raise OperatorError(f"Kafka gives no producer id: error {error}")
        time.sleep(PAUSE_SECONDS)


class Sender:
    """Keeps order and sends nothing twice. ``told`` hears of each batch that is acknowledged."""

    def __init__(
        self, brokers: list[wire.Address], topic: str, partitions: int, told: Acknowledged
    ) -> None:
        self._brokers = brokers
        self._topic = topic
        self._told = told
        self._selector = selectors.DefaultSelector()
        self._connections: dict[wire.Address, _Connection] = {}
        self._leaders: dict[int, wire.Address] = {}
        self._sequences = [0] * partitions
        self._queued: list[deque[_Sealed]] = [deque() for _ in range(partitions)]
        self._on_way: list[deque[_Sealed]] = [deque() for _ in range(partitions)]
        self._heard = time.monotonic()
        self.recoveries = 0
        self._producer, self._epoch = _producer_id(brokers)
        self._find_leaders()

    def put(self, made: Batch) -> None:
        """Queues a batch; it is sent by `poll`."""
        sequence = self._sequences[made.partition]
        count = len(made.numbers)
        self._sequences[made.partition] = (sequence + count) % 2**31
        packed = pa.compress(made.records, codec="lz4", asbytes=True)
        now = int(1000 * time.time())
        body = header(count, now, self._producer, self._epoch, sequence) + packed
        self._queued[made.partition].append(_Sealed(made.numbers, batch(body, crc32c(body))))

    @property
    def unacknowledged(self) -> int:
        """Batches."""
        return sum(map(len, self._queued)) + sum(map(len, self._on_way))

    def poll(self, seconds: float) -> None:
        """Sends what may be sent and takes answers, for that long or until there was one.

        Raises UnreachableError when nothing was acknowledged for a minute.
        """
        try:
            self._send()
            for key, _ in self._selector.select(seconds):
                self._take(key.data)
        except OSError:
            self._recover()
        if not self.unacknowledged:
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > PATIENCE_SECONDS:
            raise UnreachableError(f"Kafka acknowledged nothing for {PATIENCE_SECONDS:.0f} s")

    def close(self) -> None:
        for connection in self._connections.values():
            self._selector.unregister(connection.socket)
            connection.socket.close()
        self._connections.clear()

    def _send(self) -> None:
        for address in set(self._leaders.values()):
            connection = self._connection(address)
            while len(connection.waiting) < IN_FLIGHT and (ready := self._ready(address)):
                batches = {}
                for partition in ready:
                    sealed = self._queued[partition].popleft()
                    self._on_way[partition].append(sealed)
                    batches[partition] = sealed.content
                connection.waiting.append(set(ready))
                connection.send(
                    wire.PRODUCE, wire.produce_request(self._topic, batches, TIMEOUT_MS)
                )

    def _ready(self, address: wire.Address) -> list[int]:
        return [p for p, leader in self._leaders.items() if leader == address and self._queued[p]]

    def _take(self, connection: _Connection) -> None:
        for body in connection.read():
            connection.waiting.popleft()
            for answer in wire.answers(body):
                if answer.error not in (0, DUPLICATE):
                    raise ConnectionError(f"error {answer.error}")
                sealed = self._on_way[answer.partition].popleft()
                self._heard = time.monotonic()
                self._told(answer.partition, answer.offset, sealed.numbers)

    def _recover(self) -> None:
        """All that isn't acknowledged is to be sent again, in its order, to whoever leads then."""
        self.recoveries += 1
        self.close()
        for queued, on_way in zip(self._queued, self._on_way, strict=True):
            queued.extendleft(reversed(on_way))
            on_way.clear()
        time.sleep(PAUSE_SECONDS)
        self._find_leaders()

    def _find_leaders(self) -> None:
        """Waits until every partition has one."""
        while True:
            found = wire.leaders(
                ask(self._brokers, wire.METADATA, wire.metadata_request(self._topic))
            )
            if len(found) == len(self._sequences) and None not in found.values():
                self._leaders = {p: leader for p, leader in found.items() if leader}
                return
            if time.monotonic() - self._heard > PATIENCE_SECONDS:
                raise OperatorError(f"partitions of topic {self._topic} have no leader")
            time.sleep(PAUSE_SECONDS)

    def _connection(self, address: wire.Address) -> _Connection:
        if address not in self._connections:
            connection = self._connections[address] = _Connection(address)
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        return self._connections[address]
