"""Events of a workload, encoded fast: records of a pool in which digits are overwritten. Pure.

Event ``i`` is the ``i``-th of the pool, again and again, with numbers of its own: when it happens,
and whatever else must not repeat. Such a number always has as many digits, so that it fits where
that of the event before it stood.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.pool import BATCH_BYTES, Batch, places, record

PARTITIONS = 2
POOL = 20_000
WINDOW_MS = 10_000
WINDOWS = 40
START_MS = 1_700_000_000_000  # Kafka refuses times to come
LATER_MS = 3_600_000
TIME_DIGITS = 13


@dataclass(frozen=True)
class Field:
    """A number that is overwritten: what stands before it, one or the other, and its length."""

    marks: tuple[bytes, ...]
    digits: int


@dataclass(frozen=True)
class Stream:
    """A topic's events.

    Attributes:
        pool: values of the events 0 to ``POOL``.
        partition: of each of these numbers of events.
        fields: by name.
        numbers: of these events, of so many in all, by the name of their field.
        last: for each partition, which lets engines close the last window that wait for it.
    """

    topic: str
    pool: Callable[[], Sequence[bytes]]
    partition: Callable[[np.ndarray], np.ndarray]
    fields: Mapping[str, Field]
    numbers: Callable[[np.ndarray, int], Mapping[str, np.ndarray]]
    last: Sequence[bytes]


def times_ms(numbers: np.ndarray, events: int) -> np.ndarray:
    """A moment for each of so many events: a set number of windows is filled evenly."""
    return START_MS + numbers * (WINDOWS * WINDOW_MS) // events


def batches(stream: Stream, events: int) -> Iterator[Batch]:
    """All of them for Kafka, partition by partition in turns; those that close windows last."""
    values = stream.pool()
    partitions = stream.partition(np.arange(POOL))
    content = [_Partition(each, partitions, values, stream) for each in range(PARTITIONS)]
    for first in range(0, events, POOL):
        for own in content:
            yield from own.batches(first, min(POOL, events - first), events)
    for partition in range(PARTITIONS):
        for place, value in enumerate(stream.last):
            closing = record(b"", value)
            yield Batch(partition, np.array([events + place]), np.frombuffer(closing, np.uint8))


class _Partition:
    """The pool's records of one partition, one after the other."""

    def __init__(
        self, partition: int, partitions: np.ndarray, values: Sequence[bytes], stream: Stream
    ) -> None:
        self._partition, self._stream = partition, stream
        self._members = np.flatnonzero(partitions == partition)
        made = [record(b"", values[member]) for member in self._members.tolist()]
        self._starts = np.concatenate([[0], np.cumsum([len(one) for one in made])])
        self._content = np.frombuffer(b"".join(made), np.uint8)
        self._at = {name: _places_of(field, made) for name, field in stream.fields.items()}
        self._most = BATCH_BYTES // max(map(len, made))

    def batches(self, first: int, count: int, events: int) -> Iterator[Batch]:
        """Of ``count`` events from ``first`` on, which is a multiple of the pool."""
        size = int(np.searchsorted(self._members, count))
        numbers = first + self._members[:size]
        starts = self._starts[: size + 1]
        content = self._content[: starts[-1]].copy()
        for name, values in self._stream.numbers(numbers, events).items():
            having = np.flatnonzero(self._at[name][:size] >= 0)
            at = starts[having] + self._at[name][having]
            _write(content, at, _digits(values[having], self._stream.fields[name].digits))
        _write(content, starts[:-1] + 4, places(np.arange(size) % self._most))
        for low in range(0, size, self._most):
            high = min(low + self._most, size)
            yield Batch(self._partition, numbers[low:high], content[starts[low] : starts[high]])


def _places_of(field: Field, records: Sequence[bytes]) -> np.ndarray:
    """Where it begins in each record; -1 in those that don't have it."""
    found = np.full(len(records), -1)
    for number, one in enumerate(records):
        for mark in field.marks:
            if (at := one.find(mark)) >= 0:
                found[number] = at + len(mark)
    return found


def _digits(values: np.ndarray, count: int) -> np.ndarray:
    """As ASCII."""
    return values[:, None] // 10 ** np.arange(count - 1, -1, -1) % 10 + ord("0")


def _write(content: np.ndarray, at: np.ndarray, texts: np.ndarray) -> None:
    content[at[:, None] + np.arange(texts.shape[1])] = texts
