"""Which records a job fails by: found by trying ranges of a batch, halved until one record is left.

Free of Spark: who calls says how a range is tried. A record counts as found only when it fails
alone, so a sum that fails over many records, or over what came before, has no guilty ones.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from millrace_jobs.inputs.place import Place


class Quarantined(Exception):
    """The records that a batch failed by are put aside: without them it can run again."""


class NotIsolatable(Exception):
    """A batch fails, and leaving out records is no help; says why."""


@dataclass(frozen=True)
class Skip:
    """A record that a job's query leaves out; times in naive UTC.

    ``checkpoint`` and ``batch`` failed by it. One that was ``retried`` is in the rows of this
    checkpoint all the same.
    """

    place: Place
    since: datetime
    reason: str = ""
    checkpoint: str = ""
    batch: int = 0
    retried: datetime | None = None


@dataclass(frozen=True)
class Range:
    """Records of one partition, ``end`` not included."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def is_one(self) -> bool:
        return self.end == self.start + 1

    @property
    def first(self) -> Place:
        return Place(self.topic, self.partition, self.start)

    def halves(self) -> Iterator["Range"]:
        middle = (self.start + self.end) // 2
        yield Range(self.topic, self.partition, self.start, middle)
        yield Range(self.topic, self.partition, middle, self.end)


# Tries several ranges at once, each alone; the error of each, None where there is none.
Probe = Callable[[Sequence[Range]], Sequence[str | None]]


def find(ranges: Sequence[Range], probe: Probe, limit: int) -> dict[Place, str]:
    """All records that fail alone, each with its error.

    Takes at most ``2 * limit`` probes for each time that the longest range can be halved, beside
    one for each range. Raises NotIsolatable as soon as more than ``limit`` are bound to fail.
    """
    found: dict[Place, str] = {}
    suspects = list(ranges)
    while suspects:
        errors = zip(suspects, probe(suspects), strict=True)
        failing = [(suspect, error) for suspect, error in errors if error]
        if len(found) + len(failing) > limit:
            raise NotIsolatable(f"more than {limit} further records fail: {failing[0][1]}")
        found |= {one.first: error for one, error in failing if one.is_one}
        suspects = [half for one, _ in failing if not one.is_one for half in one.halves()]
    return found
