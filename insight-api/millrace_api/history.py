"""Figures over ranges. What is final is read once, and kept.

A closed window doesn't change while its job goes on from its checkpoint and readers aren't switched
to another count of it, so values are kept by both; and not for ever, because an operator may
correct a row by hand. What is still open, a
day of it and more, is read once a second for all who ask.
"""

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

from cachetools import TTLCache

from millrace_api import generations
from millrace_api.admission import Client
from millrace_api.progress import Closed, Known, TrafficJob, is_final
from millrace_api.ranges import DAY, HOUR, Piece, Span, Window, cut, decompose
from millrace_api.settings import Settings
from millrace_api.shared import Shared, each
from millrace_api.store import Measures, Pages, Store, TrafficRow, add_up

# What a request costs is told in windows: an hour's pages are a partition, and may be many.
WINDOWS_PER_HOUR_OF_PAGES = 60
# Of final days as one: a year is some forty parts to add up, not 365.
BLOCK = 16 * DAY
OPEN_SECONDS = 1.0

Key = TypeVar("Key")
Value = TypeVar("Value")
Place = Callable[[Sequence[Key]], AbstractAsyncContextManager[None]]


@dataclass(frozen=True)
class Total:
    measures: Measures
    final: bool
    revision: int = 0


@dataclass(frozen=True)
class TopViews:
    """``pages`` are URLs with their views, most viewed first; ``distinct`` says of how many.

    No page's views are off by more than ``error``; ``other`` are those of pages without a count.
    """

    pages: list[tuple[str, int]]
    distinct: int
    error: int
    other: int
    revision: int = 0


class History:
    """Answers over any range, from what is kept and from the store."""

    def __init__(
        self,
        store: Store,
        traffic_job: TrafficJob,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._traffic_job = traffic_job
        self._open = Shared(keep_seconds=OPEN_SECONDS)
        self._days = Kept(self._whole_days, settings.kept_days, settings.kept_seconds, clock=clock)
        self._pages: Kept[datetime, Pages] = Kept(
            self._hour_s_pages,
            settings.kept_pages,
            settings.kept_seconds,
            lambda pages: 1 + len(pages.views),
            clock,
        )

    async def total(self, span: Span, client: Client) -> Total:
        """All of the span as one: whole hours are read as hours, and only the edges as minutes."""
        known, watermark = await self._traffic_job.closed()
        closed, changing = sort_out(span, watermark)
        days = await self._days.get(
            known,
            closed,
            lambda missing: client.lane(sum(part.length // HOUR for part in missing)),
        )
        async with client.lane(len(days) + sum(piece.windows for piece in changing)):
            rows = await each(partial(self._open_rows, Closed(known, watermark)), changing)
            parts: list[Measures] = [*days, *(row for part in rows for row in part)]
            measures = await asyncio.to_thread(add_up, parts)
        return Total(measures, is_final(span.end, watermark), known.overlay.revision)

    async def top_pages(self, span: Span, k: int, client: Client) -> TopViews:
        """The ``k`` most viewed pages of the hours that the span touches; equal ones by URL."""

        known, watermark = await self._traffic_job.closed()
        hours = list(span.hours())
        closed = [hour for hour in hours if is_final(hour + HOUR, watermark)]
        pages = await self._pages.get(
            known,
            closed,
            lambda missing: client.lane(len(missing) * WINDOWS_PER_HOUR_OF_PAGES),
        )
        changing = hours[len(closed) :]
        async with client.lane(len(closed) + len(changing) * WINDOWS_PER_HOUR_OF_PAGES):
            now = Closed(known, watermark)
            pages = pages + await each(partial(self._open_pages, now), changing)
            return await asyncio.to_thread(rank, pages, k, known.overlay.revision)

    async def _open_rows(self, now: Closed, piece: Piece) -> list[TrafficRow]:
        """Shared by those who know the same: rows are never older than a watermark that judges."""
        overlay = now.known.overlay
        read = partial(generations.traffic, self._store, overlay, piece.window, piece.span)
        return await self._open.ask((now, piece), read)

    async def _open_pages(self, now: Closed, hour: datetime) -> Pages:
        read = partial(generations.pages_of, self._store, now.known.overlay, hour)
        return await self._open.ask((now, hour), read)

    async def _hour_s_pages(self, known: Known, hour: datetime) -> Pages:
        return await generations.pages_of(self._store, known.overlay, hour)

    async def _whole_days(self, known: Known, span: Span) -> Measures:
        """A day, or a block of them, one after the other; of a block that fails, days are kept."""
        if span.length == DAY:
            parts: Sequence[Measures] = await generations.traffic(
                self._store, known.overlay, Window.HOUR, span
            )
        else:
            parts = [await self._whole_day(known, day) for day in cut(span, DAY)]
        return await asyncio.to_thread(add_up, parts)

    async def _whole_day(self, known: Known, day: Span) -> Measures:
        """In the place that whoever asks for its block has."""
        (measures,) = await self._days.get(known, [day], lambda _: nullcontext())
        return measures


def sort_out(span: Span, watermark: datetime | None) -> tuple[list[Span], list[Piece]]:
    """What of the span is final, in blocks and whole days; and the rest, in pieces of a day."""
    closed, rest = [], []
    for piece in decompose(span):
        for part in _parts(piece.span, watermark):
            if part.length >= DAY and is_final(part.end, watermark):
                closed.append(part)
            else:
                rest.append(Piece(piece.window, part))
    return closed, rest


def _parts(span: Span, watermark: datetime | None) -> Iterator[Span]:
    """Blocks that are whole and final; days, or what is left of one, around them."""
    for block in cut(span, BLOCK):
        whole = block.length == BLOCK and is_final(block.end, watermark)
        yield from [block] if whole else cut(block, DAY)


class Kept(Generic[Key, Value]):
    """Values that are final: as many as fit ``size``, the latest used ones, for ``seconds``."""

    def __init__(
        self,
        read: Callable[[Known, Key], Awaitable[Value]],
        size: int,
        seconds: float,
        size_of: Callable[[Value], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._values: TTLCache[tuple[Known, Key], Value] = TTLCache(
            size, seconds, timer=clock, getsizeof=size_of
        )
        self._fills = Shared()

    async def get(self, known: Known, keys: Sequence[Key], place: Place[Key]) -> list[Value]:
        """The keys' values in their order. Missing ones are read in a ``place`` for so many.

        Who asks for what is being read waits for that instead: what is final is so for everybody.
        """
        kept = {key: self._values.get((known, key)) for key in keys}
        held = {key: value for key, value in kept.items() if value is not None}
        missing = tuple(key for key in kept if key not in held)
        if missing:
            held |= await self._fills.ask(
                (known, missing), lambda: self._fill(known, missing, place)
            )
        return [held[key] for key in keys]

    async def _fill(
        self, known: Known, keys: tuple[Key, ...], place: Place[Key]
    ) -> dict[Key, Value]:
        async with place(keys):
            values = await each(partial(self._read_and_keep, known), keys)
        return dict(zip(keys, values, strict=True))

    async def _read_and_keep(self, known: Known, key: Key) -> Value:
        value = await self._read(known, key)
        with suppress(ValueError):  # larger than all that may be kept
            self._values[known, key] = value
        return value


def rank(hours: Sequence[Pages], k: int, revision: int = 0) -> TopViews:
    views: Counter[str] = Counter()
    for hour in hours:
        views.update(hour.views)
    best = heapq.nsmallest(k, views.items(), key=lambda page: (-page[1], page[0]))
    error = sum(hour.most_unlisted for hour in hours)
    other = sum(hour.other for hour in hours)
    return TopViews(best, len(views), error, other, revision)
