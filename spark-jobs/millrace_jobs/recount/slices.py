"""Parts of a job's rows that fit into a driver's memory, however many rows there are."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from millrace_jobs.output import WINDOW_START, Output

# A row of several columns takes 2 KiB of Python, beside what the JVM has of it, and a comparison
# holds two sides.
ROWS = 20_000
MOST_SHARES = 4096
# Kinds of columns that Spark and Python write as the same text.
SHARED_BY = ("string", "int", "bigint")

T = TypeVar("T")
R = TypeVar("R")


class TooManyRows(Exception):
    """A slice has more rows than are held at once; says of which windows."""


@dataclass(frozen=True)
class Slice:
    """The windows that start in a range of naive UTC time, ``end`` not included; of their keys each
    ``shares``-th, counted from ``share``."""

    start: datetime
    end: datetime
    share: int = 0
    shares: int = 1

    def bounded(self, rows: Iterable[T]) -> list[T]:
        """The rows of this slice. Raises TooManyRows as soon as there are too many."""
        found = list(islice(rows, ROWS + 1))
        if len(found) > ROWS:
            raise TooManyRows(
                f"the windows from {self.start} to {self.end} UTC have more than {ROWS:,} rows"
            )
        return found

    def condition(self, output: Output) -> Column:
        """Which rows are in the slice, for Spark."""
        start = F.col(WINDOW_START)
        inside = (start >= F.lit(self.start)) & (start < F.lit(self.end))
        if self.shares == 1:
            return inside
        text = F.concat_ws("\n", *(F.col(name).cast("string") for name in _shared_by(output)))
        return inside & (F.crc32(text.cast("binary")) % self.shares == self.share)

    def has(self, output: Output, row: dict[str, Any]) -> bool:
        """The same in Python."""
        if not self.start <= row[WINDOW_START] < self.end:
            return False
        text = "\n".join(str(row[name]) for name in _shared_by(output))
        return zlib.crc32(text.encode()) % self.shares == self.share

    def halves(self, output: Output) -> "Iterator[Slice]":
        """Two slices that have what this one has; none if it can't be cut any more."""
        if self.end - self.start > timedelta(seconds=output.slide_seconds):
            middle = self.start + (self.end - self.start) / 2
            yield replace(self, end=middle)
            yield replace(self, start=middle)
        elif _shared_by(output) and self.shares < MOST_SHARES:
            yield replace(self, shares=2 * self.shares)
            yield replace(self, share=self.share + self.shares, shares=2 * self.shares)


def in_slices(whole: Slice, output: Output, do: Callable[[Slice], R]) -> Iterator[R]:
    """What ``do`` gives for each of the slices, no larger than necessary, that make up the whole.

    Raises TooManyRows where even the smallest is too large.
    """
    try:
        yield do(whole)
    except TooManyRows:
        halves = list(whole.halves(output))
        if not halves:
            raise
        for half in halves:
            yield from in_slices(half, output, do)


def _shared_by(output: Output) -> list[str]:
    return [name for name, kind in output.key.items() if kind in SHARED_BY]
