"""How fast an engine is and whether it is right, by what it commits: the same for all. Pure.

What a ``read_committed`` reader of its results may see tells how many events an engine has done.
The first part, its start and its compilers' work, is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

WARM = 0.25  # of all results


@dataclass
class Progress:
    """``ends`` are times (s) with the first offset then that wasn't committed; the rows in between
    are read whenever it suits, each with its offset."""

    ends: list[tuple[float, int]] = field(default_factory=list)
    offsets: list[np.ndarray] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)

    def look(self, time: float, end: int) -> bool:
        """Whether there is something new."""
        if self.ends and self.ends[-1][1] == end:
            return False
        self.ends.append((time, end))
        return True

    def read(self, offsets: Sequence[int], rows: Sequence[tuple[int, ...]]) -> None:
        self.offsets.append(np.array(offsets, np.int64))
        self.rows.append(np.array(rows, np.int64))

    def total(self, upserts: bool) -> int:
        """The sum of all results that were read."""
        return int(gains(self.found, upserts).sum())

    @property
    def found(self) -> np.ndarray:
        return np.concatenate(self.rows) if self.rows else np.empty((0, 0), np.int64)

    def seen(self, upserts: bool) -> list[tuple[float, int]]:
        """Times with the sum of results then."""
        offsets = np.concatenate(self.offsets) if self.offsets else np.empty(0, np.int64)
        sums = np.concatenate([[0], np.cumsum(gains(self.found, upserts))])
        seen: list[tuple[float, int]] = []
        for time, end in self.ends:
            total = int(sums[np.searchsorted(offsets, end)])
            if not seen or seen[-1][1] != total:
                seen.append((time, total))
        return seen


def gains(rows: np.ndarray, upserts: bool) -> np.ndarray:
    """By how much each row makes the sum of results larger: a row is one, an upsert its value."""
    if not upserts:
        return np.ones(len(rows), np.int64)
    values: dict[tuple[int, ...], int] = {}
    more = np.zeros(len(rows), np.int64)
    for number, (*key, value) in enumerate(rows.tolist()):
        more[number] = value - values.get(tuple(key), 0)
        values[tuple(key)] = value
    return more


def newest(rows: np.ndarray) -> np.ndarray:
    """Of each key the last row."""
    last = {tuple(key): number for number, (*key, _) in enumerate(rows.tolist())}
    return rows[list(last.values())]


def steady(seen: Sequence[tuple[float, int]], results: int) -> tuple[float, float, float]:
    """From when to when (s), and the share of all results that was done in between.

    The first look may have seen all there is, if there is little: then from the very first.
    """
    totals = np.array([total for _, total in seen])
    end = int(np.searchsorted(totals, totals.max()))
    begin = min(int(np.searchsorted(totals, WARM * results)), end - 1)
    if begin < 0:
        return seen[end][0], seen[end][0], 0.0
    share = (seen[end][1] - seen[begin][1]) / results
    return seen[begin][0], seen[end][0], share


def wrong(found: np.ndarray, expected: np.ndarray) -> list[tuple[tuple[int, ...], int]]:
    """Rows that aren't there as often as they must be, and how many there are too many."""
    if not len(found):
        found = expected[:0]
    both = np.concatenate([found, expected])
    order = np.lexsort(both.T)
    both = both[order]
    surplus = np.where(order < len(found), 1, -1)
    new = np.concatenate([[True], (both[1:] != both[:-1]).any(axis=1)])[: len(both)]
    first = np.flatnonzero(new)
    sums = np.add.reduceat(surplus, first) if len(first) else surplus
    bad = np.flatnonzero(sums)
    return [
        (tuple(row), many)
        for row, many in zip(both[first[bad]].tolist(), sums[bad].tolist(), strict=True)
    ]
