"""The Yahoo streaming benchmark's events, and what has to come of them. Pure.

100 campaigns of 10 ads; views alone count, by campaign and window of 10 s. One more event for each
partition, a click an hour later, closes the last window.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np

from bench.engines.stream import (
    LATER_MS,
    PARTITIONS,
    POOL,
    START_MS,
    TIME_DIGITS,
    WINDOW_MS,
    WINDOWS,
    Field,
    Stream,
    times_ms,
)
from bench.engines.workload import Workload, text_number

CAMPAIGNS, ADS = 100, 10
SEED = 7
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENT_TYPES = ("view", "click", "purchase")
CHUNK = 200_000

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


def _expected(events: int) -> np.ndarray:
    rows = [
        (text_number(campaign), start, views) for (campaign, start), views in truth(events).items()
    ]
    return np.array(rows, np.int64)


def _row(result: Mapping[str, Any]) -> tuple[int, ...]:
    return text_number(result["campaign"]), result["start"], result["views"]


def _pool() -> Sequence[bytes]:
    pool = drawn()
    return [
        _event(number, pool.ad[number], pool.event_type[number], START_MS) for number in range(POOL)
    ]


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


STREAM = Stream(
    "ysb",
    _pool,
    lambda numbers: numbers % PARTITIONS,
    {"time": Field((b'"event_time":"',), TIME_DIGITS)},
    lambda numbers, events: {"time": times_ms(numbers, events)},
    [_event(0, 0, 1, START_MS + WINDOWS * WINDOW_MS + LATER_MS)],
)
YSB = Workload(
    "ysb", STREAM, ("campaign", "start", "views"), _expected, _row, upserts=True, table=ads()
)
IN_REDIS = replace(YSB, name="ysb-redis", in_redis=True, query="ysb")
