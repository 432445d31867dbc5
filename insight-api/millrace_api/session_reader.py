"""Reads slots, and makes sessions of them.

A session is asked for by its last event. The slots that may hold that event are read, of all keys
or of some; then what its sessions have before these is, a day back at most.
"""

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import groupby
from typing import Any

from millrace_api.outputs import Output
from millrace_api.ranges import DAY, Span, floor, steps
from millrace_api.sessions import Merger, Session
from millrace_api.shared import each
from millrace_api.store import Budget, Part, Store
from millrace_shared.generations import NONE, Overlay

Key = tuple[Any, ...]

LONGEST_SESSION = DAY  # before the last event asked for; what was earlier isn't counted
# So many keys' past is read key by key: a look for each of them is cheaper than all of a window.
FEW_KEYS = 250


@dataclass(frozen=True)
class Clock:
    """The time as a job's events tell it: sessions of a log of 2015 are open in 2015."""

    now: datetime  # the newest event; never ahead of ours, as a producer's clock may be
    watermark: datetime | None

    @classmethod
    async def read(cls, store: Store, job: str) -> "Clock":
        """Read it before rows, so that none is called final that changed after it was read."""
        progress = await store.progress_of(job)
        ours = datetime.now(UTC)
        if progress is None:
            return cls(ours, None)
        return cls(min(progress.max_event_time or ours, ours), progress.watermark)

    def is_open(self, session: Session, merger: Merger) -> bool:
        return self.now < merger.closes(session)


@dataclass(frozen=True)
class Found:
    """Sessions, and the moment before which nothing of them was read."""

    sessions: list[Session]
    edge: datetime


class Reader:
    """Reads the sessions of one job for one request."""

    def __init__(
        self, store: Store, output: Output, merger: Merger, rows: int, overlay: Overlay = NONE
    ) -> None:
        """
        Args:
            rows: how many may be read in all.
            overlay: which generation's rows readers see.
        """
        self._overlay = overlay
        self._store = store
        self._output = output
        self._merger = merger
        self._budget = Budget(rows)
        self._step = output.window

    async def ending(self, span: Span, keys: Collection[Key] | None) -> Found:
        """Sessions whose last event is in the span, of the keys or of all; see `reach_back`."""
        edge = floor(span.start, self._step)
        # An event after the span may still belong to a session whose others are in it.
        parts = await self._slots(Span(edge, span.end + self._merger.gap), keys)
        return Found(await self._merged(parts, span), edge)

    async def reach_back(self, found: Found, span: Span) -> Found:
        """The sessions with their parts before the edge: few keys' at once, many keys' by window.

        ``span`` is that of their last events.
        """
        whole: list[Session] = []
        sessions, edge = found.sessions, found.edge
        oldest = floor(edge - LONGEST_SESSION, self._step)
        while edge > oldest and (begun := self._begun(sessions, edge)):
            whole += [one for one in sessions if one.key not in begun]
            if len(begun) <= FEW_KEYS:
                past = Span(oldest, edge)
                earlier = await self._slots(past, begun)
            else:
                past = Span(floor(edge - self._merger.gap, self._step), edge)
                earlier = [slot for slot in await self._slots(past, None) if slot.key in begun]
            late = [one for one in sessions if one.key in begun]
            sessions, edge = await self._merged(late + earlier, span), past.start
        return Found(whole + sessions, edge)

    def _begun(self, sessions: list[Session], edge: datetime) -> set[Key]:
        """Keys of sessions that may have begun before the edge."""
        return {one.key for one in sessions if self._merger.may_begin_before(one, edge)}

    async def _merged(self, parts: list[Session], span: Span) -> list[Session]:
        merged = await asyncio.to_thread(self._merger.merge, parts)
        return [one for one in merged if span.start <= one.end < span.end]

    async def _slots(self, span: Span, keys: Collection[Key] | None) -> list[Session]:
        """The slots of all windows that the span touches, of the keys or of all."""
        starts = list(steps(span, self._step))
        reads = self._of_all(starts) if keys is None else self._of_keys(starts, keys)
        read = await each(self._part, reads)
        return [slot for slots in read for slot in slots]

    def _of_all(self, starts: list[datetime]) -> Iterator[Part]:
        """Window by window: pages of one come one after the other, windows side by side."""
        for start in starts:
            generation = self._overlay.at(start).generation
            for bucket in range(self._output.buckets):
                yield Part(start.date(), bucket, [start], generation=generation)

    def _of_keys(self, starts: list[datetime], keys: Collection[Key]) -> Iterator[Part]:
        """Key by key: a few rows of all windows of a day."""
        stretches = [(*where, list(inside)) for where, inside in groupby(starts, self._where)]
        for key in keys:
            named = dict(zip(self._output.key, key, strict=True))
            for day, generation, inside in stretches:
                yield Part(day, self._output.bucket(key), inside, named, generation)

    def _where(self, start: datetime) -> tuple[date, int]:
        return start.date(), self._overlay.at(start).generation

    async def _part(self, part: Part) -> list[Session]:
        """Slots at once: rows have twice their size, and all parts' need not be held together."""
        columns = self._merger.columns
        rows = await self._store.windows(self._output.table, columns, part, self._budget)
        return await asyncio.to_thread(self._merger.slots, rows)
