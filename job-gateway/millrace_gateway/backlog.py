"""Which jobs are behind: since when, how fast that changes, and when it will be over. Pure.

Kafka tells how many records wait now. What they will be in a minute shows in the looks of the last
minutes: a line through them, since what waits for an archive goes up and down with each batch.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from statistics import linear_regression

from millrace_gateway.lag import Lag

REMEMBERED_SECONDS = 120.0  # several batches of any job
LEAST_SECONDS = 30.0  # of looks that tell a rate


@dataclass(frozen=True)
class Backlog:
    """A job with records that wait for longer than its lag_seconds.

    Attributes:
        since: the first look that found it so, in seconds since 1970.
        records: that wait, at the last look.
        seconds: until none is left at the rate of the last minutes; None while they don't grow
            fewer, or nobody knows yet.
    """

    since: float
    records: int
    seconds: float | None


@dataclass(frozen=True)
class _Job:
    since: float | None = None
    looks: tuple[tuple[float, int], ...] = ()

    def after(self, lag: Lag, now: float) -> "_Job":
        recent = [look for look in self.looks if now - look[0] <= REMEMBERED_SECONDS]
        since = (now if self.since is None else self.since) if lag.overdue else None
        return _Job(since, (*recent, (now, lag.records)))

    @property
    def backlog(self) -> Backlog | None:
        if self.since is None:
            return None
        return Backlog(self.since, self.looks[-1][1], seconds_left(self.looks))


def seconds_left(looks: tuple[tuple[float, int], ...]) -> float | None:
    """Until nothing waits, by the line through these looks: (when, how many records)."""
    (first, _), (last, records) = looks[0], looks[-1]
    if last - first < LEAST_SECONDS:
        return None
    grows = linear_regression([at - first for at, _ in looks], [n for _, n in looks]).slope
    return records / -grows if grows < 0 else None


@dataclass(frozen=True)
class Backlogs:
    """What the looks so far have found, by job."""

    jobs: Mapping[str, _Job]

    @classmethod
    def none(cls) -> "Backlogs":
        return cls({})

    def after(self, lags: Mapping[str, Lag], wanted: Collection[str], now: float) -> "Backlogs":
        """With one more look.

        Args:
            lags: of jobs of which Kafka told; of another one everything stays as it was.
            wanted: the jobs that there are.
        """
        known = {job: one for job, one in self.jobs.items() if job in wanted}
        looked = {job: known.get(job, _Job()).after(lag, now) for job, lag in lags.items()}
        return replace(self, jobs=known | looked)

    def behind(self) -> dict[str, Backlog]:
        return {job: found for job, one in self.jobs.items() if (found := one.backlog)}
