"""Sustainable throughput: the highest rate at which the lag has no trend upwards. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

TREND = 0.02  # of the rate: growth that is more than noise
LAG_SECONDS = 10.0  # of the rate: the most that may wait at the end
BEHIND_SECONDS = 2.0  # a load that doesn't keep up isn't the load that was asked for
NEAR = 0.1  # of the rate: how close the search goes


@dataclass(frozen=True)
class Trial:
    """Records waiting at moments (s), by job, and how far the load fell behind (s)."""

    rate: float
    moments: Sequence[float]
    lags: dict[str, Sequence[int]]
    behind: float


def verdict(trial: Trial) -> str:
    """Why the rate isn't sustained; empty when it is."""
    if trial.behind > BEHIND_SECONDS:
        return f"the load fell {trial.behind:.1f} s behind"
    for job, lags in trial.lags.items():
        half = len(lags) // 2
        slope = _slope(trial.moments[half:], lags[half:])
        if slope > TREND * trial.rate:
            return f"{job} falls behind by {slope:,.0f} records a second"
        waiting = float(np.median(lags[half:])) / trial.rate
        if waiting > LAG_SECONDS:
            return f"{job} is {waiting:.0f} s behind"
    return ""


def _slope(moments: Sequence[float], lags: Sequence[int]) -> float:
    """Records a second, by least squares."""
    if len(moments) < 2:
        return 0.0
    return float(np.polyfit(np.array(moments) - moments[0], lags, 1)[0])


def highest(low: float, high: float, sustained: Callable[[float], bool]) -> float:
    """The highest rate found to be sustained; 0 when not even ``low`` is.

    Doubles from ``low`` up to ``high`` first, then halves the difference.
    """
    best, worst = 0.0, 0.0
    rate = low
    while not worst and rate <= high:
        if sustained(rate):
            best = rate
            rate = high if rate < high < 2 * rate else 2 * rate
        else:
            worst = rate
    while best and worst and worst - best > NEAR * best:
        middle = (best + worst) / 2
        if sustained(middle):
            best = middle
        else:
            worst = middle
    return best
