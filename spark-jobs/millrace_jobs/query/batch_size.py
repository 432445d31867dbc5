"""How many records a batch may have: as many as the cores are good for here and now.

A batch after a start or a take-over is small, whatever waits for it, because nobody knows yet what
it will take. Batches grow while they stay below their target, and shrink when they don't.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

GROWTH = 4  # from one batch to the next, at most
TRIAL = 2  # the same where a batch took too long, and a larger one may well take no longer
REMEMBERED = 8  # batches: what others took long ago was taken by other cores
APART = 1.5  # times as many records, to tell what the records take from what a batch takes


@dataclass(frozen=True)
class Taken:
    """A batch that ended: its records, of the source that gave most, and how long it took."""

    records: int
    seconds: float


@dataclass(frozen=True)
class BatchSize:
    """The most records that the next batch may have.

    Attributes:
        least, most: between which ``records`` stays.
        target_seconds: how long a batch may take.
        recent: batches, the newest last.
    """

    least: int
    most: int
    target_seconds: float
    records: int
    recent: tuple[Taken, ...] = ()

    @classmethod
    def at_start(cls, least: int, most: int, target_seconds: float) -> "BatchSize":
        return cls(least, most, target_seconds, records=least)

    def times(self, factor: float) -> int:
        """Records of a batch that may take so many times the target's time."""
        return min(int(factor * self.records), self.most)

    def is_filled_by(self, batch: Taken) -> bool:
        """Whether the batch tells something of batches of this size. Others were small because
        there was no more to read, or were begun before the size was changed."""
        return 2 * batch.records >= self.records

    def after(self, batch: Taken) -> "BatchSize":
        """The size once another batch has ended."""
        known = replace(self, recent=(*self.recent, batch)[-REMEMBERED:])
        if not self.is_filled_by(batch):
            return known
        return replace(known, records=min(max(self._fitting(batch), self.least), self.most))

    def _fitting(self, batch: Taken) -> int:
        """So many records as take the target's time, by this batch and those before it.

        What a batch takes without any record can't be saved by smaller ones. Where that is most of
        it, a batch may take twice as long: with ever smaller ones a job would fall behind for good.
        """
        target, records = self.target_seconds, batch.records
        if batch.seconds <= target:  # as if the records took all of it: errs on the short side
            return int(records * min(GROWTH, target / max(batch.seconds, 0.001)))
        fixed, each = _cost(batch, self.recent)
        if not fixed and records <= self.least:  # it can't be smaller: what does a larger one take?
            return TRIAL * records
        return int(
            min(TRIAL * records, max(target - fixed, fixed) / each if each else float("inf"))
        )


def _cost(batch: Taken, others: Sequence[Taken]) -> tuple[float, float]:
    """Seconds of a batch as such, and of each record; the latter takes all where nothing else is
    known."""
    smaller = [one for one in others if one.records * APART <= batch.records]
    larger = [one for one in others if one.records >= batch.records * APART]
    if not (unlike := smaller or larger):
        return 0.0, batch.seconds / batch.records
    records = median(one.records for one in unlike)
    seconds = median(one.seconds for one in unlike)
    each = max(0.0, (batch.seconds - seconds) / (batch.records - records))
    return max(0.0, batch.seconds - each * batch.records), each
