"""What can be counted again: the rows of one job, whatever they look like."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from millrace_jobs.quarantine.search import Skip
from millrace_jobs.query.context import StoredContext
from millrace_jobs.recount.comparison import Findings, Row
from millrace_jobs.recount.generations import Seen, Terms

Record = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """A row that two generations have otherwise; None is a row that isn't there.

    Attributes:
        columns: which values differ, as text.
        measures: the columns whose sums over such rows say something.
    """

    name: str
    before: Row | None
    after: Row | None
    columns: str = ""
    measures: Collection[str] = ()


class Counted(Protocol):
    """Rows of windows that start in ranges of naive UTC time, whose end isn't included."""

    context: StoredContext
    rows: str  # the name by which `Book` knows them
    step: timedelta  # a chunk that is counted at a time
    grid: timedelta  # ranges begin and end at multiples of it since 1970

    def closed_before(self, watermark: datetime) -> datetime:
        """Windows that start before it are written by no batch any more."""

    def count(
        self,
        start: datetime,
        end: datetime,
        terms: Terms,
        skips: Collection[Skip],
        generation: int,
        version: int,
    ) -> int:
        """Store what the archive gives, as rows of a generation. Returns how many there are."""

    def audit(self, part: Seen, terms: Terms, skips: Collection[Skip]) -> Findings:
        """Hold what is stored of a generation to what the archive gives."""

    def differences(
        self, start: datetime, end: datetime, before: int, after: int
    ) -> Iterator[Difference]:
        """What one generation has otherwise than another."""

    def records(
        self, start: datetime, end: datetime, before: int, after: int, version: int
    ) -> Iterator[Record]:
        """The same for the results topic: whole values, which name their generation."""


def floor(moment: datetime, step: timedelta) -> datetime:
    """The last multiple of ``step`` since 1970 that isn't after a moment of naive UTC time."""
    return moment - (moment - datetime(1970, 1, 1)) % step
