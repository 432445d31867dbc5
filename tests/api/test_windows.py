"""Windows one by one: final days are read once, what is open as often as somebody asks."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from millrace_api.progress import TrafficJob
from millrace_api.ranges import DAY, HOUR, Span, Window
from millrace_api.store import JobProgress
from millrace_api.windows import Windows

from tests.api.conftest import api_settings
from tests.api.fakes import FakeStore
from tests.api.test_history import FIRST, counted
from tests.clock import play

NOW = datetime.now(UTC)
hours = st.integers(min_value=0, max_value=24 * 9).map(lambda n: FIRST + n * HOUR)


def windows_of(store: FakeStore) -> Windows:
    return Windows(store, TrafficJob(store), api_settings())


def test_of_a_week_only_what_is_open_is_read_again(
    store: FakeStore, progress: Callable[..., JobProgress]
) -> None:
    store.jobs = [progress((FIRST + 6 * DAY).isoformat(), NOW)]
    store.rows = [counted(Window.HOUR, FIRST + n * HOUR) for n in range(7 * 24)]
    week = Span(FIRST, FIRST + 7 * DAY)

    async def scenario() -> None:
        windows = windows_of(store)
        first = await windows.of(Window.HOUR, week)
        assert [one.final for one in first.windows] == [True] * 6 * 24 + [False] * 24
        store.reads.clear()
        assert await windows.of(Window.HOUR, week) == first
        assert store.reads == [(Window.HOUR, Span(FIRST + 6 * DAY, week.end))]

    play(scenario)


def test_a_checkpoint_that_began_anew_has_days_of_its_own(
    store: FakeStore, progress: Callable[..., JobProgress]
) -> None:
    day = Span(FIRST, FIRST + DAY)

    async def scenario() -> None:
        windows = windows_of(store)
        store.jobs = [progress(day.end.isoformat(), NOW, checkpoint="1")]
        assert (await windows.of(Window.HOUR, day)).windows == []
        store.rows = [counted(Window.HOUR, FIRST)]
        await asyncio.sleep(0.25)  # the job is asked five times a second
        assert (await windows.of(Window.HOUR, day)).windows == []
        store.jobs = [progress(day.end.isoformat(), NOW, checkpoint="2")]
        await asyncio.sleep(0.25)
        assert len((await windows.of(Window.HOUR, day)).windows) == 1

    play(scenario)


@hypothesis_settings(max_examples=60)
@given(hours, hours, st.none() | hours, st.sets(hours, max_size=30), st.sampled_from(Window))
def test_a_range_has_each_of_its_windows_once_whatever_is_kept(
    one: datetime,
    other: datetime,
    watermark: datetime | None,
    counted_at: set[datetime],
    window: Window,
) -> None:
    start, end = sorted((one, other + HOUR))
    job = JobProgress("traffic", 1, 1, watermark, watermark, NOW, 0.0, "1", "a")
    store = FakeStore(rows=[counted(window, moment) for moment in counted_at], jobs=[job])
    inside = sorted(moment for moment in counted_at if start <= moment < end)

    async def scenario() -> None:
        windows = windows_of(store)
        for _ in range(2):
            if start < end:
                found = (await windows.of(window, Span(start, end))).windows
                assert [one.start for one in found] == inside
                assert all(
                    one.final == (watermark is not None and one.end <= watermark) for one in found
                )

    play(scenario)
