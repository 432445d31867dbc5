"""Interruptions: the longest time between two successes. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]


class Gap(NamedTuple):
    """``seconds`` without a success, from ``start`` (Unix time) on."""

    start: float
    seconds: float


def longest(successes: Sequence[float] | Times, since: float, until: float) -> Gap:
    """The longest interruption between ``since`` and ``until``, in which both ends count as seen.

    Successes are times in ascending order; without one the whole range is the gap.
    """
    edges = _edges(successes, since, until)
    spans = np.diff(edges)
    widest = int(np.argmax(spans))
    return Gap(float(edges[widest]), float(spans[widest]))


def over(
    successes: Sequence[float] | Times, since: float, until: float, seconds: float
) -> list[Gap]:
    """Returns every interruption of the range that is longer than ``seconds``."""
    edges = _edges(successes, since, until)
    spans = np.diff(edges)
    return [Gap(float(edges[i]), float(spans[i])) for i in np.flatnonzero(spans > seconds)]


def growths(times: Times, values: Times) -> Times:
    """The times at which a value was higher than ever before; the first one seen is the start."""
    if not len(values):
        return times
    highest = np.maximum.accumulate(values)
    return times[1:][highest[1:] > highest[:-1]]


def _edges(successes: Sequence[float] | Times, since: float, until: float) -> Times:
    seen = np.asarray(successes, dtype=float)
    inside = seen[(seen > since) & (seen < until)]
    return np.concatenate(([since], inside, [until]))
