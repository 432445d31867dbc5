"""The Yahoo streaming benchmark's events, and what has to come of them. Pure.

100 campaigns of 10 ads; views alone count, by campaign and window of 10 s. Event ``i`` is the
``i``-th of a pool, again and again, and happens at a moment of its own, so that a set number of
windows is filled evenly. One more event for each partition, a click an hour later, lets engines
close the last window that wait for it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from bench.pool import BATCH_BYTES, Batch, places, record

CAMPAIGNS, ADS = 100, 10
PARTITIONS = 2
POOL = 20_000
SEED = 7
WINDOW_MS = 10_000
WINDOWS = 40
START_MS = 1_700_000_000_000  # Kafka refuses times to come
LATER_MS = 3_600_000
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENT_TYPES = ("view", "click", "purchase")
CHUNK = 200_000
DIGITS = 13

Key = tuple[str, int]  # campaign, start of the window in ms
Counts = dict[Key, int]


@dataclass(frozen=True)
class Drawn:
    """Of each event of the pool: numbers of the ad, its type and the event's."""

    ad: np.ndarray
    ad_type: np.ndarray
    event_type: np.ndarray


def drawn() -> Drawn:
    draw = np.random.default_rng(SEED)
    return Drawn(
        draw.integers(0, CAMPAIGNS * ADS, POOL),
        draw.integers(0, len(AD_TYPES), POOL),
        draw.integers(0, len(EVENT_TYPES), POOL),
    )


def ads() -> dict[str, str]:
    """Ad → campaign."""
    return {_name("ad", ad): _name("campaign", ad // ADS) for ad in range(CAMPAIGNS * ADS)}


def times_ms(numbers: np.ndarray, events: int) -> np.ndarray:
    return START_MS + numbers * (WINDOWS * WINDOW_MS) // events


def truth(events: int) -> Counts:
    """Views by campaign and window."""
    pool = drawn()
    sums = np.zeros(CAMPAIGNS * WINDOWS, np.int64)
    for first in range(0, events, CHUNK):
        numbers = np.arange(first, min(first + CHUNK, events))
        views = numbers[pool.event_type[numbers % POOL] == 0]
        window = (times_ms(views, events) - START_MS) // WINDOW_MS
        sums += np.bincount(pool.ad[views % POOL] // ADS * WINDOWS + window, minlength=len(sums))
    return {
        (_name("campaign", place // WINDOWS), START_MS + place % WINDOWS * WINDOW_MS): int(count)
        for place, count in enumerate(sums.tolist())
        if count
    }


def batches(events: int) -> Iterator[Batch]:
    """All of them for Kafka, partition by partition in turns; the later clicks last."""
    content = [_Partition(partition) for partition in range(PARTITIONS)]
    for first in range(0, events, POOL):
        count = min(POOL, events - first)
        for own in content:
            yield from own.batches(first, count, events)
    end = START_MS + WINDOWS * WINDOW_MS + LATER_MS
    for partition in range(PARTITIONS):
        later = record(b"", _event(0, 0, 1, end))
        yield Batch(partition, np.array([events]), np.frombuffer(later, np.uint8))


class _Partition:
    """The pool's events of one partition: every so many-th."""

    def __init__(self, partition: int) -> None:
        pool = drawn()
        self._partition = partition
        self._members = np.arange(partition, POOL, PARTITIONS)
        made = [
            record(b"", _event(number, pool.ad[number], pool.event_type[number], START_MS))
            for number in self._members.tolist()
        ]
        mark = b'"event_time":"'
        self._time_at = np.array([one.index(mark) + len(mark) for one in made])
        self._starts = np.concatenate([[0], np.cumsum([len(one) for one in made])])
        self._content = np.frombuffer(b"".join(made), np.uint8)
        self._most = BATCH_BYTES // max(map(len, made))

    def batches(self, first: int, count: int, events: int) -> Iterator[Batch]:
        """Of ``count`` events from ``first`` on, which is a multiple of the pool."""
        size = int(np.searchsorted(self._members, count))
        numbers = first + self._members[:size]
        starts = self._starts[: size + 1]
        content = self._content[: starts[-1]].copy()
        digits = times_ms(numbers, events)[:, None] // 10 ** np.arange(DIGITS - 1, -1, -1) % 10
        at = starts[:-1, None]
        content[at + self._time_at[:size, None] + np.arange(DIGITS)] = digits + ord("0")
        content[at + 4 + np.arange(2)] = places(np.arange(size) % self._most)
        for low in range(0, size, self._most):
            high = min(low + self._most, size)
            yield Batch(self._partition, numbers[low:high], content[starts[low] : starts[high]])


def _event(number: int, ad: int, event_type: int, time_ms: int) -> bytes:
    event = {
        "user_id": _name("user", number),
        "page_id": _name("page", number % 1000),
        "ad_id": _name("ad", int(ad)),
        "ad_type": AD_TYPES[number % len(AD_TYPES)],
        "event_type": EVENT_TYPES[event_type],
        "event_time": str(time_ms),
        "ip_address": f"198.18.{number >> 8 & 255}.{number & 255}",
    }
    return json.dumps(event, separators=(",", ":")).encode()


def _name(kind: str, number: int) -> str:
    """As long as the original's, which are UUIDs."""
    return str(UUID(int=(sum(kind.encode()) << 96) + 0x4000_8000_0000_0000_0000 + number))
