"""Windows one by one, as they are answered. Hours of final days are read once, and kept."""

import asyncio
from collections.abc import Iterable
from contextlib import nullcontext
from datetime import datetime

from millrace_api import generations
from millrace_api.history import Kept
from millrace_api.models import Traffic, TrafficWindow
from millrace_api.progress import Known, TrafficJob, is_final
from millrace_api.ranges import DAY, Span, Window, steps
from millrace_api.settings import Settings
from millrace_api.store import Store, TrafficRow

# Two hours of minutes, a millisecond of shaping: not worth the two turns that a thread waits for.
FEW = 120


class Windows:
    """Answers from what is kept and from the store; what is still open is as new as it is there."""

    def __init__(self, store: Store, traffic_job: TrafficJob, settings: Settings) -> None:
        self._store = store
        self._traffic_job = traffic_job
        self._days = Kept(self._final_day, settings.kept_days_of_hours, settings.kept_seconds)

    async def of(self, window: Window, span: Span) -> Traffic:
        """The windows that start in the span, oldest first."""
        known, watermark = await self._traffic_job.closed()
        days, rest = sort_out(window, span, watermark)
        kept = await self._days.get(known, days, lambda _: nullcontext())
        windows = [one for day in kept for one in day if span.start <= one.start < span.end]
        if rest.length:
            windows += await self._read(known, window, rest, watermark)
        return Traffic(
            start=span.start,
            end=span.end,
            window=window,
            windows=windows,
            revision=known.overlay.revision,
        )

    async def _final_day(self, known: Known, day: Span) -> list[TrafficWindow]:
        return await self._read(known, Window.HOUR, day, day.end)

    async def _read(
        self, known: Known, window: Window, span: Span, watermark: datetime | None
    ) -> list[TrafficWindow]:
        rows = await generations.traffic(self._store, known.overlay, window, span)
        if len(rows) <= FEW:
            return shaped(rows, watermark)
        return await asyncio.to_thread(shaped, rows, watermark)


def shaped(rows: Iterable[TrafficRow], watermark: datetime | None) -> list[TrafficWindow]:
    return [TrafficWindow.of(row, watermark) for row in rows]


def sort_out(window: Window, span: Span, watermark: datetime | None) -> tuple[list[Span], Span]:
    """The days of a span of hours that are final, whole; and what of the span is left after them.

    A day of minutes is sixty times as much, and seldom asked for twice.
    """
    if window is Window.MINUTE:
        return [], span
    days = [Span(day, day + DAY) for day in steps(span, DAY)]
    final = [day for day in days if is_final(day.end, watermark)]
    start = min(final[-1].end, span.end) if final else span.start
    return final, Span(start, span.end)
