"""How fast an engine is, by what it commits: the same for all of them. Pure.

What a ``read_committed`` reader of its results has seen tells how many events an engine has done.
The first part, its start and its compilers' work, is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.engines.ysb import Counts, Key

WARM = 0.25  # of all views


@dataclass
class Progress:
    """The newest value of each key; ``seen`` are times (s) with the sum of the values then."""

    counts: Counts = field(default_factory=dict)
    total: int = 0
    seen: list[tuple[float, int]] = field(default_factory=list)

    def result(self, key: Key, views: int) -> None:
        self.total += views - self.counts.get(key, 0)
        self.counts[key] = views

    def look(self, time: float) -> None:
        if not self.seen or self.seen[-1][1] != self.total:
            self.seen.append((time, self.total))


def steady(seen: Sequence[tuple[float, int]], views: int) -> tuple[float, float, float]:
    """From when to when (s), and the share of all views that was done in between.

    The first look may have seen all there is, if there is little: then from the very first.
    """
    totals = np.array([total for _, total in seen])
    end = int(np.searchsorted(totals, totals.max()))
    begin = min(int(np.searchsorted(totals, WARM * views)), end - 1)
    if begin < 0:
        return seen[end][0], seen[end][0], 0.0
    share = (seen[end][1] - seen[begin][1]) / views
    return seen[begin][0], seen[end][0], share


def wrong(found: Counts, expected: Counts) -> list[str]:
    """Of each (campaign, window) whose count isn't what it must be."""
    return [
        f"{campaign} at {start}: {found.get((campaign, start), 0)},"
        f" expected {expected.get((campaign, start), 0)}"
        for campaign, start in sorted(found.keys() | expected.keys())
        if found.get((campaign, start), 0) != expected.get((campaign, start), 0)
    ]
