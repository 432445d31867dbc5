"""Events by number: web traffic as the jobs expect it, made in bulk. Pure.

Each property of event ``i`` is drawn by a hash of (seed, property, i), so any subset of a run's
events can be made in any order, and always comes out the same.
"""

import json
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.ledger.spec import Spec

VISITORS = 20_000
OUT_OF_ORDER_MS = 5000  # how far behind such an event is at most
LATE_AFTER_SECONDS = 5.0  # before that the jobs may not know how late is too late
NUMBER_DIGITS = 10

SECTIONS = ("blog", "docs", "shop", "help")
ASSETS = ("css", "js", "png", "woff2")
ASSET_EVERY = 5  # each so many-th URL is an asset
AGENTS = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/126.0",
    "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Version/17.5",
    "curl/8.5.0",
)
# Values with their shares in percent.
METHODS = {"GET": 94, "POST": 4, "HEAD": 2}
STATUSES = {200: 86, 304: 5, 301: 2, 404: 4, 206: 1, 500: 1, 101: 1}
KINDS = {"page_view": 90, "impression": 8, "click": 2}
CAMPAIGNS = ("spring", "summer", "autumn", "winter")
LARGEST = 60_000  # bytes of an answer

EVENT_TIME = pa.timestamp("us", "UTC")
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def events(spec: Spec, numbers: np.ndarray) -> pa.Table:
    """The events with these numbers, in that order: one column for each field of an event."""
    draw = _Draw(spec.seed, numbers % spec.pool if spec.pool else numbers)
    kinds = _choose(list(KINDS), list(KINDS.values()), draw("kind"))
    return pa.table(
        {
            "event_id": _ids(spec, numbers),
            "event_time": pa.array(1000 * times_ms(spec, numbers), pa.int64()).cast(EVENT_TIME),
            "visitor_id": _zipf(_visitors(), draw("visitor")),
            "method": _choose(list(METHODS), list(METHODS.values()), draw("method")),
            "url": _zipf(_urls(spec.pages), draw("url")),
            "status": _choose(list(STATUSES), list(STATUSES.values()), draw("status")).cast(
                pa.int32()
            ),
            "bytes": pa.array((draw("bytes") % np.uint64(LARGEST)).astype(np.int64)),
            "user_agent": _even(AGENTS, draw("agent")),
            "kind": kinds,
            "campaign": pc.if_else(
                pc.equal(kinds, "page_view"), None, _even(CAMPAIGNS, draw("campaign"))
            ),
        }
    )


def times_ms(spec: Spec, numbers: np.ndarray) -> np.ndarray:
    """Since 1970: when each event is due, less what it is behind."""
    draw = _Draw(spec.seed, numbers)
    due = spec.started_ms + (1000 * spec.schedule.times(numbers)).astype(np.int64)
    behind = (draw("behind") % np.uint64(OUT_OF_ORDER_MS)).astype(np.int64)
    swapped = draw.share("swapped") < spec.out_of_order
    late = 1000 * spec.lateness * is_late(spec, numbers)
    return due - swapped * behind - late


def is_late(spec: Spec, numbers: np.ndarray) -> np.ndarray:
    """Which events are sent too late to be counted."""
    chosen = _Draw(spec.seed, numbers).share("late") < spec.late
    return chosen & (spec.schedule.times(numbers) > LATE_AFTER_SECONDS)


def numbers_of(spec: Spec, event_ids: pa.ChunkedArray) -> np.ndarray:
    """The numbers in the ids of a run's events."""
    digits = pc.utf8_slice_codeunits(event_ids, len(spec.prefix))
    return digits.cast(pa.int64()).to_numpy()


def encode(table: pa.Table) -> list[tuple[bytes, bytes]]:
    """Returns keys and values of Kafka records."""
    times = pc.strftime(table["event_time"].cast(pa.timestamp("ms", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    column = table.schema.get_field_index("event_time")
    rows = table.set_column(column, "event_time", times).to_pylist()
    return [(row["visitor_id"].encode(), _to_json(row).encode()) for row in rows]


class _Draw:
    """Uniform 64-bit numbers: splitmix64 over a counter, one stream for each property."""

    def __init__(self, seed: int, numbers: np.ndarray) -> None:
        self._seed = seed
        self._numbers = numbers.astype(np.uint64)

    def __call__(self, name: str) -> np.ndarray:
        stream = int.from_bytes(name.encode().ljust(8, b"\0")[:8], "big") ^ self._seed
        start = _mix(np.array([stream % 2**64], np.uint64))
        return _mix(start + self._numbers * np.uint64(0x9E3779B97F4A7C15))

    def share(self, name: str) -> np.ndarray:
        return _share(self(name))


def _mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _share(drawn: np.ndarray) -> np.ndarray:
    """Returns the numbers as floats in [0, 1)."""
    return (drawn >> np.uint64(11)) * 2.0**-53


def _ids(spec: Spec, numbers: np.ndarray) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), NUMBER_DIGITS, "0")
    return pc.binary_join_element_wise(spec.prefix, digits, "")


def _choose(values: list, percents: list[int], drawn: np.ndarray) -> pa.Array:
    """Chooses values by their shares."""
    bounds = np.cumsum(percents)
    return pa.array(values).take(pa.array(np.searchsorted(bounds, drawn % np.uint64(100), "right")))


def _even(values: tuple[str, ...], drawn: np.ndarray) -> pa.Array:
    return pa.array(values).take(pa.array(drawn % np.uint64(len(values))))


def _zipf(values: pa.Array, drawn: np.ndarray) -> pa.Array:
    """The first value twice as often as the second, three times as often as the third…"""
    return values.take(pa.array(np.searchsorted(_zipf_bounds(len(values)), _share(drawn), "right")))


@lru_cache
def _zipf_bounds(count: int) -> np.ndarray:
    weights = np.cumsum(1 / np.arange(1, count + 1))
    # The last bound is left out: nothing drawn may fall beyond the last value.
    return weights[:-1] / weights[-1]


@lru_cache
def _visitors() -> pa.Array:
    return pa.array([f"visitor-{rank:05d}" for rank in range(VISITORS)])


@lru_cache
def _urls(pages: int) -> pa.Array:
    return pa.array([_url(rank) for rank in range(pages)])


def _url(rank: int) -> str:
    if rank % ASSET_EVERY == ASSET_EVERY - 1:
        return f"/static/{rank}.{ASSETS[rank % len(ASSETS)]}"
    query = "?from=feed" if rank % 3 == 0 else ""
    return f"/{SECTIONS[rank % len(SECTIONS)]}/{rank}/{query}"
