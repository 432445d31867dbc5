"""Figures over ranges: what is final is read once, and no figure is any different for it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from millrace_api.admission import Admission, Client
from millrace_api.history import BLOCK, History, sort_out
from millrace_api.progress import TrafficJob
from millrace_api.ranges import DAY, HOUR, MINUTE, Span, Window
from millrace_api.settings import Settings
from millrace_api.sketches import merge
from millrace_api.store import JobProgress, StoreUnavailable, TrafficRow, add_up

from tests.api.conftest import api_settings, sketch_of
from tests.api.fakes import FakeStore
from tests.clock import now, play

MakeProgress = Callable[..., JobProgress]
FIRST = datetime(2015, 5, 17, tzinfo=UTC)
YEAR = Span(FIRST, FIRST + 365 * DAY)
LATER = (FIRST + 400 * DAY).isoformat()
NOW = datetime.now(UTC)


class World:
    """A store, what is asked of it, and who asks."""

    def __init__(self, api_settings: Settings, store: FakeStore) -> None:
        self.history = History(store, TrafficJob(store), api_settings, clock=now)
        self.client = Client("me", Admission(api_settings))

    async def requests(self, span: Span) -> int:
        return (await self.history.total(span, self.client)).measures.requests

    async def views(self, span: Span) -> dict[str, int]:
        return dict((await self.history.top_pages(span, 100, self.client)).pages)


@pytest.fixture
def world(settings: Settings, store: FakeStore) -> World:
    return World(settings, store)


def counted(window: Window, start: datetime, requests: int = 1) -> TrafficRow:
    return TrafficRow(
        window=window,
        start=start,
        requests=requests,
        page_views=1,
        bytes=100,
        status={"2xx": requests, "3xx": 0, "4xx": 0, "5xx": 0, "other": 0},
        visitors=sketch_of(start.isoformat(), "everywhere"),
        version=7,
    )


def test_a_years_total_is_read_once(world: World, store: FakeStore, progress: MakeProgress) -> None:
    store.jobs = [progress(LATER, NOW)]
    store.rows = [counted(Window.HOUR, FIRST + hour * HOUR) for hour in range(0, 365 * 24, 7)]

    async def scenario() -> None:
        first = await world.history.total(YEAR, world.client)
        assert (first.measures.requests, first.final) == (len(store.rows), True)
        assert len(store.reads) == 365
        store.reads.clear()
        again = await world.history.total(Span(YEAR.start + 5 * HOUR, YEAR.end), world.client)
        assert again.measures.requests == len(store.rows) - 1
        assert len(store.reads) == 1  # the day of which it needs but a part

    play(scenario)


def test_a_years_days_are_kept_as_few_parts(
    world: World, store: FakeStore, progress: MakeProgress
) -> None:
    store.jobs = [progress(LATER, NOW)]
    closed, changing = sort_out(Span(YEAR.start + MINUTE, YEAR.end), datetime.fromisoformat(LATER))
    assert len(closed) + len(changing) < 60
    assert {part.length for part in closed} == {DAY, BLOCK}

    async def scenario() -> None:
        await world.requests(YEAR)
        store.reads.clear()
        blocks = [part for part in closed if part.length == BLOCK]
        assert await world.requests(Span(blocks[0].start, blocks[-1].end)) == 0
        assert not store.reads

    play(scenario)


def test_a_weeks_pages_are_read_once(
    world: World, store: FakeStore, progress: MakeProgress
) -> None:
    store.jobs = [progress((FIRST + 7 * DAY - HOUR).isoformat(), NOW)]
    store.pages = {FIRST + hour * HOUR: Counter({"/": 1, f"/{hour}": 1}) for hour in range(168)}
    week = Span(FIRST, FIRST + 7 * DAY)

    async def scenario() -> None:
        assert (await world.views(week))["/"] == 168
        store.reads.clear()
        store.pages[FIRST + 167 * HOUR]["/"] += 10
        assert (await world.views(week))["/"] == 178
        assert store.reads == [(FIRST + 167 * HOUR,)]  # the hour that isn't over

    play(scenario)


@pytest.mark.parametrize("watermark", [None, (FIRST + DAY - MINUTE).isoformat()])
def test_what_is_not_final_is_read_each_time(
    world: World, store: FakeStore, progress: MakeProgress, watermark: str | None
) -> None:
    store.jobs = [progress(watermark, NOW)]

    async def scenario() -> None:
        for requests in (1, 2):
            store.rows = [counted(Window.HOUR, FIRST, requests)]
            store.pages = {FIRST + 23 * HOUR: Counter({"/": requests})}
            assert await world.requests(Span(FIRST, FIRST + DAY)) == requests
            assert await world.views(Span(FIRST, FIRST + DAY)) == {"/": requests}

    play(scenario)


def test_a_new_start_of_the_job_is_read_anew(
    world: World, store: FakeStore, progress: MakeProgress
) -> None:
    async def scenario() -> None:
        for requests, checkpoint in ((1, "old"), (2, "new")):
            store.jobs = [progress(LATER, NOW, checkpoint=checkpoint)]
            store.rows = [counted(Window.HOUR, FIRST, requests)]
            store.pages = {FIRST: Counter({"/": requests})}
            assert await world.requests(Span(FIRST, FIRST + DAY)) == requests
            assert await world.views(Span(FIRST, FIRST + DAY)) == {"/": requests}

    play(scenario)


def test_a_day_is_not_kept_for_a_watermark_that_came_after_it_was_read(
    world: World, store: FakeStore, progress: MakeProgress
) -> None:
    def commit(store: FakeStore) -> None:
        store.rows = [counted(Window.HOUR, FIRST, 2)]
        store.jobs = [progress(LATER, NOW)]

    async def scenario() -> None:
        store.rows, store.jobs = [counted(Window.HOUR, FIRST, 1)], [progress(None, NOW)]
        store.commits = [lambda _: None, commit]  # right after the day was read
        assert await world.requests(Span(FIRST, FIRST + DAY)) == 1
        assert await world.requests(Span(FIRST, FIRST + DAY)) == 2

    play(scenario)


def test_an_operators_correction_shows_after_a_while(
    settings: Settings, store: FakeStore, progress: MakeProgress
) -> None:
    world = World(settings.model_copy(update={"kept_seconds": 0.1}), store)
    store.jobs = [progress(LATER, NOW)]

    async def scenario() -> None:
        store.rows = [counted(Window.HOUR, FIRST, 1)]
        assert await world.requests(Span(FIRST, FIRST + DAY)) == 1
        store.rows = [counted(Window.HOUR, FIRST, 2)]
        assert await world.requests(Span(FIRST, FIRST + DAY)) == 1
        await asyncio.sleep(0.15)
        assert await world.requests(Span(FIRST, FIRST + DAY)) == 2

    play(scenario)


def test_what_is_kept_is_bounded(
    settings: Settings, store: FakeStore, progress: MakeProgress
) -> None:
    world = World(settings.model_copy(update={"kept_days": 3, "kept_pages": 10}), store)
    store.jobs = [progress(LATER, NOW)]
    store.pages = {
        FIRST: Counter({f"/{n}": 1 for n in range(50)}),  # never fits
        FIRST + HOUR: Counter({f"/{n}": 1 for n in range(8)}),
        FIRST + 2 * HOUR: Counter({f"/{n}": 1 for n in range(8)}),
    }

    async def scenario() -> None:
        for _ in range(2):
            assert len(await world.views(Span(FIRST, FIRST + DAY))) == 50
            assert await world.requests(Span(FIRST, FIRST + 10 * DAY)) == 0
            assert world.history._days._values.currsize <= 3
            assert world.history._pages._values.currsize <= 10

    play(scenario)


def test_sixty_who_ask_for_the_same_at_once_read_it_once(
    settings: Settings, store: FakeStore, progress: MakeProgress
) -> None:
    world = World(settings.model_copy(update={"light_queue": 60}), store)
    store.jobs = [progress(LATER, NOW)]
    store.takes_seconds = 0.01
    week = Span(FIRST, FIRST + 7 * DAY)

    async def scenario() -> None:
        await asyncio.gather(*(world.views(week) for _ in range(60)))
        assert len(store.reads) == 168
        assert store.most_reading == 8

    play(scenario)


def test_a_failure_is_not_kept_and_what_was_read_is(
    world: World, store: FakeStore, progress: MakeProgress
) -> None:
    store.jobs = [progress(LATER, NOW)]

    def fail(store: FakeStore) -> None:
        store.away = True

    async def scenario() -> None:
        store.commits = [*[lambda _: None] * 100, fail]
        with pytest.raises(StoreUnavailable):
            await world.requests(YEAR)
        store.away = False
        store.reads.clear()
        assert await world.requests(YEAR) == 0
        assert 0 < len(store.reads) < 300

    play(scenario)


moments = st.integers(min_value=0, max_value=40 * 24 * 60).map(lambda n: FIRST + n * MINUTE)


@hypothesis_settings(max_examples=60)
@given(moments, moments, st.none() | moments, st.sets(moments, max_size=30))
def test_a_total_is_the_sum_of_its_windows_whatever_is_kept(
    one: datetime, other: datetime, watermark: datetime | None, minutes: set[datetime]
) -> None:
    start, end = sorted((one, other + MINUTE))
    rows = [counted(Window.MINUTE, minute) for minute in sorted(minutes)]
    job = JobProgress("traffic", 1, 1, watermark, watermark, NOW, 0.0, "1", "a")
    store = FakeStore(rows=[*rows, *_hours(rows)], jobs=[job])
    world = World(api_settings(), store)
    inside = add_up([row for row in rows if start <= row.start < end])

    async def scenario() -> None:
        for _ in range(2):
            if start == end:
                return
            total = await world.history.total(Span(start, end), world.client)
            assert total.measures.requests == inside.requests
            assert merge([total.measures.visitors]).count == merge([inside.visitors]).count
            assert total.final == (watermark is not None and end <= watermark)

    play(scenario)


def _hours(rows: list[TrafficRow]) -> list[TrafficRow]:
    """What the job stores of the same events by the hour."""
    by_hour: dict[datetime, list[TrafficRow]] = {}
    for row in rows:
        by_hour.setdefault(row.start.replace(minute=0), []).append(row)
    return [
        TrafficRow(window=Window.HOUR, start=hour, **vars(add_up(parts)))
        for hour, parts in by_hour.items()
    ]


def test_what_is_open_is_read_once_a_second_and_for_a_newer_watermark_anew(
    settings: Settings,
    store: FakeStore,
    progress: MakeProgress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a row from before a commit would be final by the watermark from after it."""
    monkeypatch.setattr("millrace_api.history.OPEN_SECONDS", 60)
    day = Span(FIRST, FIRST + DAY)

    async def scenario() -> None:
        world = World(settings, store)
        answers = []
        for requests, watermark in ((1, None), (2, None), (3, FIRST.isoformat())):
            store.rows = [counted(Window.HOUR, FIRST, requests)]
            store.pages = {FIRST: Counter({"/": requests})}
            store.jobs = [progress(watermark, NOW)]
            answers.append((await world.requests(day), await world.views(day)))
        assert answers == [(1, {"/": 1}), (1, {"/": 1}), (3, {"/": 3})]

    play(scenario)
