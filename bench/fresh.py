"""How long after its scheduled moment an event's result can be read. Pure but for the samplers.

The job commits with each batch's results, in one transaction, how far it has read. So an event is
in the results topic once the group's position is beyond it. In the API it is once the answers count
as many requests as had been read by then; nobody else may be sending.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from millrace.common.errors import OperatorError

LOWEST_MS, HIGHEST_MS, DIGITS = 1, 3_600_000, 3
PERCENTILES = (50, 90, 99, 99.9, 100)


class Seen(NamedTuple):
    """At a time, in seconds since 1970: one position for each partition, or one count."""

    time: float
    values: tuple[int, ...]


class Sampler(threading.Thread):
    """Asks again and again; what fails is asked again, since an outage is a delay, too."""

    def __init__(self, ask: Callable[[], Seen], period: float) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self._period = period
        self._stopping = threading.Event()
        self.seen: list[Seen] = []
        self.failures = 0

    def run(self) -> None:
        while not self._stopping.wait(self._period):
            try:
                self.seen.append(self._ask())
            except Exception:
                self.failures += 1

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def visible_in_topic(
    positions: Sequence[Seen], partition: np.ndarray, offset: np.ndarray
) -> np.ndarray:
    """When each event was first seen to be read (s since 1970); NaN for one that wasn't."""
    times = np.array([each.time for each in positions])
    found = np.full(len(offset), np.nan)
    for number in np.unique(partition):
        ends = np.maximum.accumulate([each.values[number] for each in positions])
        own = partition == number
        first = np.searchsorted(ends, offset[own], "right")
        found[own] = np.append(times, np.nan)[first]
    return found


def visible_in_api(
    positions: Sequence[Seen], counts: Sequence[Seen], in_topic: np.ndarray
) -> np.ndarray:
    """When each event was first seen to be counted, which no event is before its whole batch is.

    Args:
        in_topic: of each event, as `visible_in_topic` has it.

    Raises OperatorError when the counts can't be this load's alone.
    """
    base, begin = counts[0].values[0], sum(positions[0].values)
    counted = np.maximum.accumulate([each.values[0] - base for each in counts])
    read = np.array([sum(each.values) - begin for each in positions])
    if counted[-1] > read.max():
        raise OperatorError(
            f"somebody else sends: the API counts {counted[-1]} requests, {read.max()} were read",
            "end their load, and try again",
        )
    times = np.append([each.time for each in counts], np.nan)
    at = times[np.searchsorted(counted, read, "left")]  # of each look at positions
    order = {each.time: moment for each, moment in zip(positions, at, strict=True)}
    distinct, which = np.unique(in_topic, return_inverse=True)
    moments = np.array([order.get(moment, np.nan) for moment in distinct])
    # A reader of the API may look sooner than one of the positions.
    return moments[which]


def histogram(latencies: np.ndarray) -> Any:
    """An HdrHistogram of milliseconds; every event counts, whenever its answer came."""
    from hdrh.histogram import HdrHistogram  # of the bench's own requirements

    made = HdrHistogram(LOWEST_MS, HIGHEST_MS, DIGITS)
    values, counts = np.unique(np.maximum(1, latencies.astype(np.int64)), return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        made.record_value(value, count)
    return made


def summary(latencies: np.ndarray) -> dict[str, Any]:
    """Percentiles in ms, and the histogram itself in its own compressed form."""
    missing = int(np.isnan(latencies).sum())
    made = histogram(latencies[~np.isnan(latencies)])
    return {
        "events": len(latencies),
        "never_seen": missing,
        "ms": {f"p{each:g}": int(made.get_value_at_percentile(each)) for each in PERCENTILES},
        "histogram": made.encode().decode(),
    }
