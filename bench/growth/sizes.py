"""What grows, and what must come of a run of each size. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench import sample
from millrace.ledger.events import events, times_ms
from millrace.ledger.spec import Spec

# The jobs' windows, in ms.
MINUTE, HOUR, SLOT = 60_000, 3_600_000, 1_800_000
WINDOWS = {"1m": MINUTE, "1h": HOUR}


@dataclass(frozen=True)
class Size:
    """``hours`` is how long a time the events fill, and so how much of it the state holds;
    ``jobs`` is how often the job runs at the same time, each for itself."""

    job: str = "traffic"
    urls: int = 10_000
    partitions: int = 6
    hours: int = 1
    jobs: int = 1

    @property
    def topic(self) -> str:
        return f"urls-{self.urls}-partitions-{self.partitions}-hours-{self.hours}"

    def spec(self, count: int, ended_ms: int) -> Spec:
        """Of the topic's events."""
        started_ms = ended_ms - self.hours * HOUR
        seconds = self.hours * HOUR / 1000
        return sample.spec(count, seconds, started_ms, self.topic, self.partitions, self.urls)


# The first of each is what the others are compared with.
DIMENSIONS: Mapping[str, Mapping[int, Size]] = {
    "URLs": {urls: Size(urls=urls) for urls in (10_000, 100_000, 1_000_000)},
    "partitions": {partitions: Size(partitions=partitions) for partitions in (6, 60)},
    "hours of windows": {hours: Size(hours=hours) for hours in (1, 24)},
    "hours of sessions": {hours: Size("sessions", hours=hours) for hours in (1, 24)},
    "jobs": {jobs: Size(jobs=jobs) for jobs in (1, 2, 4)},
}


@dataclass(frozen=True)
class Truth:
    """What events come to, counted without Spark.

    Attributes:
        windows: requests and bytes, by the window's length and its start in ms.
        slots: of sessions: of each visitor, those that have an event.
        urls: different ones.
    """

    windows: Mapping[str, tuple[int, int]]
    slots: int
    urls: int


def truth(spec: Spec, count: int) -> Truth:
    made, times = events(spec, np.arange(count)), times_ms(spec, np.arange(count))
    visitors = made["visitor_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    return Truth(
        windows=_windows(times, made["bytes"].to_numpy()),
        slots=len(np.unique(times // SLOT * 2**32 + visitors)),
        urls=len(made["url"].unique()),
    )


def _windows(times: np.ndarray, sizes: np.ndarray) -> dict[str, tuple[int, int]]:
    found = {}
    for window, length in WINDOWS.items():
        starts, places = np.unique(times // length * length, return_inverse=True)
        requests, totals = np.bincount(places), np.bincount(places, sizes)
        for start, number, total in zip(starts, requests, totals, strict=True):
            found[f"{window} {start}"] = int(number), int(total)
    return found


def right(size: Size, count: int, found: Mapping[str, Any], expected: Truth) -> bool:
    """Nothing was read twice or dropped, and windows count what was sent, or slots are as many."""
    if found["dropped"] or found["read"] != [count] * size.jobs:
        return False
    if size.job == "sessions":
        return bool(found["state_rows"] == size.jobs * expected.slots)
    return all(
        {window: tuple(counts) for window, counts in own.items()} == expected.windows
        for own in found["windows"]
    )
