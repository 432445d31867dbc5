"""Sustainable throughput: the highest rate at which the lag has no trend upwards. Pure.

As Karimov et al. (ICDE 2018) define it. A job takes records in by batches, so its lag is a saw's
teeth whatever the rate: it is looked at where it is lowest, right after a batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

TREND = 0.02  # of the rate: growth that is more than noise
ERRORS = 2.0  # standard errors of a trend that may be chance
SETTLED = 1 / 3  # of a trial: what comes before tells how it began, not how it goes on
LAG_SECONDS = 10.0  # of the rate: the most that may wait, beside what came during a batch
BEHIND_SECONDS = 2.0  # a load that doesn't keep up isn't the load that was asked for
NEAR = 0.1  # of the rate: how close the search goes


@dataclass(frozen=True)
class Trial:
    """Records waiting at moments (s), by job, and how far the load fell behind (s).

    ``triggers`` are seconds from a job's batch to its next.
    """

    rate: float
    moments: Sequence[float]
    lags: dict[str, Sequence[int]]
    triggers: dict[str, float]
    behind: float


def verdict(trial: Trial) -> str:
    """Why the rate isn't sustained; empty when it is."""
    if trial.behind > BEHIND_SECONDS:
        return f"the load fell {trial.behind:.1f} s behind"
    for job, lags in trial.lags.items():
        begin = int(SETTLED * len(lags))
        moments, waiting = after_batches(trial.moments[begin:], lags[begin:])
        slope, error = _trend(moments, waiting)
        if slope - ERRORS * error > TREND * trial.rate:
            return f"{job} falls behind by {slope:,.0f} records a second"
        seconds = float(np.median(waiting)) / trial.rate
        if seconds > trial.triggers[job] + LAG_SECONDS:
            return f"{job} is {seconds:.0f} s behind"
    return ""


def after_batches(
    moments: Sequence[float], lags: Sequence[int]
) -> tuple[Sequence[float], Sequence[int]]:
    """The looks that found less waiting than the one before; all of them when none did."""
    lower = [at for at in range(1, len(lags)) if lags[at] < lags[at - 1]]
    looks = lower or range(len(lags))
    return [moments[at] for at in looks], [lags[at] for at in looks]


def _trend(moments: Sequence[float], lags: Sequence[int]) -> tuple[float, float]:
    """Records a second by least squares, and that number's standard error."""
    if len(moments) < 3:
        return 0.0, 0.0
    times = np.array(moments) - moments[0]
    (slope, _), covariance = np.polyfit(times, lags, 1, cov=True)
    return float(slope), float(np.sqrt(covariance[0, 0]))


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
