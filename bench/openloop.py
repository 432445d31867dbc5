"""An open loop: each event is sent when it is due, whatever became of those before it.

A latency counts from the moment an event was due, so a load that is held up makes no figure better
(Tene, "How NOT to measure latency": no coordinated omission). Sender and reader share one clock.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.pool import Batch
from bench.sender import Sender
from millrace.cluster import kafka

MOST_WAITING = 2000  # batches; beyond, the load waits, and what is due then is late


@dataclass(frozen=True)
class Stairs:
    """Rates (events/s), each held for some seconds. Events have numbers from 0 on."""

    rates: Sequence[float]
    seconds: Sequence[float]

    @property
    def firsts(self) -> np.ndarray:
        """The first event of each stair, and the number of all events."""
        return np.rint(np.concatenate([[0], np.cumsum(np.multiply(self.rates, self.seconds))]))

    @property
    def starts(self) -> np.ndarray:
        """When each stair begins, and when the last one ends, in seconds."""
        return np.concatenate([[0.0], np.cumsum(self.seconds)])

    @property
    def events(self) -> int:
        return int(self.firsts[-1])

    def times(self, numbers: np.ndarray) -> np.ndarray:
        """When events are due, in seconds since the start."""
        return np.interp(numbers, self.firsts, self.starts)

    def due(self, elapsed: float) -> int:
        """How many events are due by then."""
        return int(np.interp(elapsed, self.starts, self.firsts))


@dataclass
class Offered:
    """What was sent, from when on (s since 1970), and how late at worst (s)."""

    started: float
    sent: int = 0
    behind: float = 0.0


def offer(
    sender: Sender,
    stairs: Stairs,
    batches: Callable[[int, int], Iterable[Batch]],
    tick: float,
    stopping: Callable[[Offered], bool] = lambda _: False,
) -> Offered:
    """All events as they fall due, a tick's together; until all are acknowledged."""
    sender.poll(0)  # it may have been idle for long, which is no silence of the brokers'
    offered = Offered(time.time())
    times, events = stairs.times, stairs.events
    while offered.sent < events and not stopping(offered):
        began = time.time()
        due = stairs.due(began - offered.started)
        if due > offered.sent and sender.unacknowledged < MOST_WAITING:
            first = float(times(np.array([offered.sent]))[0])
            offered.behind = max(offered.behind, began - offered.started - first)
            for batch in batches(offered.sent, due):
                sender.put(batch)
            offered.sent = due
        sender.poll(0)  # however late it is
        while (rest := began + tick - time.time()) > 0:
            sender.poll(rest)
    while sender.unacknowledged:
        sender.poll(tick)
    return offered


class Reader(threading.Thread):
    """A context manager: what a ``read_committed`` reader of a topic sees, and when."""

    def __init__(self, brokers: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._consumer = kafka.consumer({"bootstrap.servers": brokers, "group.id": f"see-{topic}"})
        self._consumer.assign(
            [
                kafka.TopicPartition(topic, number, kafka.OFFSET_BEGINNING)
                for number in range(partitions)
            ]
        )
        self._stopping = threading.Event()
        self.seen: list[tuple[float, bytes]] = []

    def __enter__(self) -> "Reader":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join()
        self._consumer.close()

    def run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and not message.error():
                self.seen.append((time.time(), message.value()))


def settle(count: Callable[[], int], expected: int, stalled_seconds: float) -> None:
    """Waits until there are as many as expected, or for so long nothing new came."""
    newest, heard = count(), time.monotonic()
    while newest < expected and time.monotonic() - heard < stalled_seconds:
        time.sleep(0.1)
        if (now := count()) != newest:
            newest, heard = now, time.monotonic()
