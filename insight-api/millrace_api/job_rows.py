"""Reads the rows of a declared job, the newest first, so many at a time.

Rows have an order that is the table's own: by their windows, the newest first; within a window by
the partition that they are in, and there by key, backwards. So the next page begins after the last
row of this one, whatever was written meanwhile: each row that was there all the time comes once.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from millrace_api.kinds import native
from millrace_api.outputs import Output
from millrace_api.ranges import DAY, Span, cut
from millrace_api.shared import each
from millrace_api.store import Budget, Part, Store, Stretch
from millrace_shared.generations import NONE, Layer, Overlay, bucket_of

WINDOW_START = "window_start"
MILLISECOND = timedelta(milliseconds=1)  # Cassandra knows no finer time


class Place(NamedTuple):
    """Where a row is in that order."""

    start: datetime
    bucket: int
    key: tuple[Any, ...]


class Row(NamedTuple):
    place: Place
    values: Mapping[str, Any]


class Page(NamedTuple):
    """``more`` is the place after which the next page begins; None if this is the last one.

    Where a part of a key was asked for, there may be no row with it after that place.
    """

    rows: Sequence[Row]
    more: Place | None


class Look(NamedTuple):
    """The next rows of a day in their order, and how many were read to know that they are."""

    rows: Sequence[Row]
    read: int
    is_last: bool


class RowReader:
    """Reads one page for one request."""

    def __init__(self, store: Store, output: Output, rows: int, overlay: Overlay = NONE) -> None:
        """
        Args:
            rows: how many may be looked at to find those with a part of a key.
            overlay: which generation's rows readers see.
        """
        self._store = store
        self._output = output
        self._rows = rows
        self._overlay = overlay
        self._names = [WINDOW_START, *output.columns, "version"]

    async def page(
        self, span: Span, wanted: Mapping[str, Any], after: Place | None, limit: int
    ) -> Page:
        """Rows of windows that start in the span, whose columns have the values that are wanted."""
        if self._output.is_whole(wanted):
            return await self._of_key(span, wanted, after, limit)
        if wanted:
            return await self._with(span, wanted, after, limit)
        found: list[Row] = []
        async for look in self._looks(span, after, limit + 1):
            found += look.rows
            if len(found) > limit:
                break
        return _page(found, limit)

    async def _of_key(
        self, span: Span, wanted: Mapping[str, Any], after: Place | None, limit: int
    ) -> Page:
        """One row for each window at most, in a partition of each day that is known."""
        key = {name: wanted[name] for name in self._output.key}
        bucket = self._output.bucket([*key.values()])
        end = min(span.end, after.start) if after else span.end
        found: list[Row] = []
        for seen in self._parts(Span(span.start, end)):
            if not (starts := self._output.starts(Span(seen.start, seen.end))):
                continue
            part = Part(seen.start.date(), bucket, starts, key, seen.generation)
            budget = Budget(len(starts))
            read = await self._store.windows(self._output.table, self._names, part, budget)
            found += _newest_first(self._row(bucket, values, seen.version) for values in read)
            if len(found) > limit:
                break
        return _page(found, limit)

    async def _with(
        self, span: Span, wanted: Mapping[str, Any], after: Place | None, limit: int
    ) -> Page:
        """Cassandra finds no part of a key by itself: so many rows are looked at, and no more."""
        found: list[Row] = []
        left = self._rows
        async for look in self._looks(span, after, max(1, left // self._output.buckets)):
            found += [row for row in look.rows if wanted.items() <= row.values.items()]
            left -= look.read
            if len(found) > limit:
                break
            if left <= 0 and look.rows:
                return Page(found, look.rows[-1].place)
        return _page(found, limit)

    async def _looks(self, span: Span, after: Place | None, most: int) -> AsyncIterator[Look]:
        """All rows after that place, so many of each partition at a time."""
        end = min(span.end, after.start + MILLISECOND) if after else span.end
        for seen in self._parts(Span(span.start, end)):
            while True:
                look = await self._look(seen, after, most)
                yield look
                if look.is_last:
                    break
                after = look.rows[-1].place
            after = None  # the parts before have it behind them

    async def _look(self, seen: Layer, after: Place | None, most: int) -> Look:
        """Beyond the last row of a partition that may have more, nobody knows what comes next."""

        async def read(bucket: int) -> list[Row]:
            below = self._below(seen, bucket, after)
            partition = seen.start.date(), bucket_of(bucket, seen.generation)
            stretch = Stretch(partition, seen.start, below)
            rows = await self._store.newest(self._output.table, self._names, stretch, most)
            return [self._row(bucket, values, seen.version) for values in rows]

        of_each = await each(read, range(self._output.buckets))
        rows = _newest_first(row for found in of_each for row in found)
        ends = {found[-1].place for found in of_each if len(found) == most}
        known = next((n for n, row in enumerate(rows, 1) if row.place in ends), len(rows))
        return Look(rows[:known], len(rows), is_last=not ends)

    def _below(self, seen: Layer, bucket: int, after: Place | None) -> dict[str, Any]:
        """Where the rows of a partition end that come after the place."""
        if after is None:
            return {WINDOW_START: seen.end}
        if bucket < after.bucket:
            return {WINDOW_START: after.start}
        if bucket > after.bucket:
            return {WINDOW_START: after.start + MILLISECOND}
        return {WINDOW_START: after.start, **dict(zip(self._output.key, after.key, strict=True))}

    def _parts(self, span: Span) -> Iterator[Layer]:
        """Of a day each, and of one generation; the newest first."""
        for day in _days(span):
            yield from reversed([*self._overlay.pieces(day.start, day.end)])

    def _row(self, bucket: int, values: Sequence[Any], version: int) -> Row:
        """Args: ``version`` is the least that a row has which readers were switched to."""
        row = dict(zip(self._names, map(native, values), strict=True))
        row["version"] = max(row["version"], version)
        start = row[WINDOW_START].replace(tzinfo=UTC)
        return Row(Place(start, bucket, tuple(row[name] for name in self._output.key)), row)


def _page(found: Sequence[Row], limit: int) -> Page:
    return Page(found[:limit], found[limit - 1].place if len(found) > limit else None)


def _newest_first(rows: Iterable[Row]) -> list[Row]:
    """By windows; what is of one stays in its order."""
    return sorted(rows, key=lambda row: row.place.start, reverse=True)


def _days(span: Span) -> list[Span]:
    """The newest first; none of a span that is empty."""
    return cut(span, DAY)[::-1] if span.start < span.end else []
