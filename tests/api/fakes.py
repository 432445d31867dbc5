"""A store and a feed in memory, which a test can fill and switch off."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from millrace_api.live import BATCH, FeedUnavailable
from millrace_api.ranges import Span, Window
from millrace_api.store import (
    Budget,
    DeadLetter,
    DeadLetters,
    JobProgress,
    JobState,
    JobWork,
    LateEvents,
    Pages,
    Part,
    StoreHealth,
    StoreUnavailable,
    Stretch,
    TrafficRow,
)

from millrace_shared.generations import NONE, STREAM, Overlay


@dataclass
class FakeStore:
    rows: list[TrafficRow] = field(default_factory=list)
    pages: dict[datetime, Counter[str]] = field(default_factory=dict)
    lists: dict[datetime, tuple[int, int]] = field(default_factory=dict)
    letters: list[DeadLetter] = field(default_factory=list)
    letter_counts: dict[str, int] = field(default_factory=dict)
    late: list[LateEvents] = field(default_factory=list)
    jobs: list[JobProgress] = field(default_factory=list)
    doing: dict[str, JobState] = field(default_factory=dict)
    done: list[JobWork] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    described: list[str] = field(default_factory=list)
    descriptions_of: dict[str, str] = field(default_factory=dict)  # that name another job, or none
    job_table: list[dict[str, Any]] = field(default_factory=list)
    overlays: dict[str, Overlay] = field(default_factory=dict)
    rows_again: dict[int, list[TrafficRow]] = field(default_factory=dict)  # by generation
    pages_again: dict[int, dict[datetime, Counter[str]]] = field(default_factory=dict)
    away: bool = False
    takes_seconds: float = 0
    reads: list[tuple[object, ...]] = field(default_factory=list)
    rows_read: int = 0
    reading: int = 0
    most_reading: int = 0
    commits: list[Callable[["FakeStore"], None]] = field(default_factory=list)

    def _check(self) -> None:
        if self.away:
            raise StoreUnavailable("NoHostAvailable('Unable to connect', {'10.0.0.1': secret})")

    async def _read(self, *what: object) -> None:
        self.reads.append(what)
        self.reading += 1
        self.most_reading = max(self.most_reading, self.reading)
        try:
            await asyncio.sleep(self.takes_seconds)
        finally:
            self.reading -= 1

    def _commit(self) -> None:
        """What the job commits right after this read."""
        if self.commits:
            self.commits.pop(0)(self)

    async def overlay(self, rows: str) -> Overlay:
        self._check()
        return self.overlays.get(rows, NONE)

    async def traffic(
        self, window: Window, span: Span, generation: int = STREAM
    ) -> list[TrafficRow]:
        self._check()
        await self._read(window, span)
        rows = self.rows_again[generation] if generation else self.rows
        inside = [r for r in rows if r.window == window and span.start <= r.start < span.end]
        self._commit()
        return sorted(inside, key=lambda row: row.start)

    async def extent(self, window: Window) -> Span | None:
        self._check()
        rows = [row for row in self.rows if row.window == window]
        if not rows:
            return None
        return Span(min(row.start for row in rows), max(row.end for row in rows))

    async def pages_of(self, hour: datetime, generation: int = STREAM) -> Pages:
        self._check()
        await self._read(hour)
        if generation:
            return Pages(self.pages_again[generation].get(hour, Counter()))
        return Pages(self.pages.get(hour, Counter()), *self.lists.get(hour, (0, 0)))

    async def dead_letters(self, span: Span) -> DeadLetters:
        self._check()
        inside = [letter for letter in self.letters if span.start <= letter.received < span.end]
        newest_first = sorted(inside, key=lambda letter: letter.place, reverse=True)
        return DeadLetters(self.letter_counts, newest_first)

    async def page_error(self, hour: datetime) -> int:
        self._check()
        return self.lists.get(hour, (0, 0))[0]

    async def dead_letter_counts(self, span: Span) -> dict[str, int]:
        self._check()
        return self.letter_counts

    async def quarantined(self) -> dict[str, int]:
        self._check()
        return self.left_out

    async def states(self) -> dict[str, JobState]:
        self._check()
        return self.doing

    async def work(self) -> list[JobWork]:
        self._check()
        return self.done

    async def late_events(self, days: Iterable[date]) -> list[LateEvents]:
        self._check()
        wanted = set(days)
        return [late for late in self.late if late.day in wanted]

    async def progress(self) -> list[JobProgress]:
        self._check()
        jobs = self.jobs
        self._commit()
        return jobs

    async def progress_of(self, job: str) -> JobProgress | None:
        return next((one for one in await self.progress() if one.job == job), None)

    async def descriptions(self) -> dict[str, str]:
        self._check()
        return {json.loads(text)["job"]: text for text in self.described} | self.descriptions_of

    async def newest(
        self, table: str, columns: Sequence[str], stretch: Stretch, limit: int
    ) -> list[tuple[Any, ...]]:
        self._check()
        below = [*stretch.below]
        oldest, *end = (_naive(one) for one in (stretch.oldest, *stretch.below.values()))
        found = [
            row
            for row in self.job_table
            if {*columns} <= row.keys()  # of another table otherwise
            and (row["day"], row["bucket"]) == stretch.partition
            and oldest <= row["window_start"]
            and [row[name] for name in below] < end
        ]
        [key] = [
            about["key"] for about in map(json.loads, self.described) if about["table"] == table
        ]
        found.sort(key=lambda row: [row[name] for name in ("window_start", *key)], reverse=True)
        self._commit()
        await self._read(table, stretch, limit)
        self.rows_read += len(found[:limit])
        return [tuple(row[name] for name in columns) for row in found[:limit]]

    async def windows(
        self, table: str, columns: Sequence[str], part: Part, budget: Budget
    ) -> list[tuple[Any, ...]]:
        self._check()
        await self._read(table, part, columns)
        asked = {(*part.partition, start.replace(tzinfo=None)) for start in part.starts}
        found = [
            tuple(row[name] for name in columns)
            for row in self.job_table
            if {*columns} <= row.keys()
            and (row["day"], row["bucket"], row["window_start"]) in asked
            and part.key.items() <= row.items()
        ]
        budget.take(len(found))
        self.rows_read += len(found)
        return found

    async def health(self) -> StoreHealth:
        self._check()
        return StoreHealth(up=2, total=3)


@dataclass
class FakeFeed:
    entries: list[tuple[str, str]] = field(default_factory=list)
    away: bool = False
    readers: int = 0
    most_readers: int = 0

    def _check(self) -> None:
        if self.away:
            raise FeedUnavailable("no master")

    async def latest(self) -> str:
        self._check()
        return self.entries[-1][0] if self.entries else "0-0"

    async def read(self, after: str) -> list[tuple[str, str]]:
        self.readers += 1
        self.most_readers = max(self.most_readers, self.readers)
        try:
            await asyncio.sleep(0.001)
            return self._after(after)
        finally:
            self.readers -= 1

    async def since(self, after: str) -> list[tuple[str, str]]:
        return self._after(after)

    def _after(self, after: str) -> list[tuple[str, str]]:
        self._check()
        return [entry for entry in self.entries if _order(entry[0]) > _order(after)][:BATCH]

    async def replicas(self) -> int:
        self._check()
        return 2


def _naive(value: Any) -> Any:
    """As Cassandra has times."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _order(entry_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in entry_id.split("-"))
