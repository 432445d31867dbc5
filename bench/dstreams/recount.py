"""Intervals counted again without an engine, and the highest rate that kept a bound. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from bench.dstreams.text import PARTITIONS, K, parts, vocabulary
from bench.dstreams.window import WINDOW_MS
from bench.fresh import Seen, summary, visible_in_topic
from bench.openloop import Offered, Stairs

SETTLE_SECONDS = 1.0  # of a stair: the interval that begins before it isn't its own


@dataclass(frozen=True)
class Interval:
    """A batch's result: when it was seen (s), its own time, how far it read each partition."""

    seen: float
    time_ms: int
    until: tuple[int, ...]
    result: Any


def wrong(program: str, intervals: Sequence[Interval]) -> list[str]:
    """Of each interval whose result isn't what its lines, and those of its window, make."""
    return [
        f"interval {number} of {program}: {str(interval.result)[:200]}"
        for number, (interval, expected) in enumerate(
            zip(intervals, EXPECTED[program](intervals), strict=True)
        )
        if interval.result != expected
    ]


def _grep(intervals: Sequence[Interval]) -> Iterator[int]:
    before = 0
    for interval in intervals:
        total = sum(
            part.matching(count) for part, count in zip(parts(), interval.until, strict=True)
        )
        yield total - before
        before = total


def _word_count(intervals: Sequence[Interval]) -> Iterator[dict[str, int]]:
    words = vocabulary()
    for counts in _windows(intervals):
        yield {words[rank]: int(counts[rank]) for rank in np.flatnonzero(counts)}


def _top_k(intervals: Sequence[Interval]) -> Iterator[list[list[Any]]]:
    words = np.array(vocabulary())
    for counts in _windows(intervals):
        order = np.lexsort((words, -counts))[:K]
        yield [[str(words[rank]), int(counts[rank])] for rank in order if counts[rank]]


def _windows(intervals: Sequence[Interval]) -> Iterator[np.ndarray]:
    """Each interval's window by rank: what was read until then, less what was before it."""
    totals = [np.zeros(len(vocabulary()), np.int64)]
    begin = 0
    for interval in intervals:
        totals.append(
            sum(
                (part.words(count) for part, count in zip(parts(), interval.until, strict=True)),
                np.zeros(len(vocabulary()), np.int64),
            )
        )
        while intervals[begin].time_ms <= interval.time_ms - WINDOW_MS:
            begin += 1
        yield totals[-1] - totals[begin]


EXPECTED: dict[str, Callable[[Sequence[Interval]], Iterator[Any]]] = {
    "grep": _grep,
    "wordcount": _word_count,
    "topk": _top_k,
}


def stairs_seen(
    intervals: Sequence[Interval], stairs: Stairs, offered: Offered, first: int
) -> list[dict[str, Any]]:
    """Of each stair: its rate, and how long lines took from when they were due until a reader saw
    a result with them. ``first`` is the number of the load's first line.
    """
    looks = [Seen(0.0, (0,) * PARTITIONS)]
    looks += [Seen(interval.seen, interval.until) for interval in intervals]
    found = []
    for rate, seconds, (low, high) in zip(
        stairs.rates, stairs.seconds, pairwise(stairs.firsts.astype(int)), strict=True
    ):
        if high > offered.sent:  # the load ended within it
            break
        numbers = np.arange(low + int(rate * min(SETTLE_SECONDS, seconds / 2)), high)
        lines = first + numbers
        visible = visible_in_topic(looks, lines % PARTITIONS, lines // PARTITIONS)
        latencies = 1000 * (visible - offered.started - stairs.times(numbers))
        found.append({"rate": rate} | summary(latencies))
    return found


def highest(stairs: Sequence[dict[str, Any]], bound_ms: float) -> float:
    """The rate of the highest stair whose p99 is below the bound; 0 if there is none.

    A pause on a lower one is no limit of the rate, since a higher one was kept afterwards.
    """
    kept = [
        stair["rate"]
        for stair in stairs
        if not stair["never_seen"] and stair["ms"]["p99"] < bound_ms
    ]
    return max(kept, default=0.0)
