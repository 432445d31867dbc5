"""The live stream: one reader for all viewers, with resume, and the store while Redis is away."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import pytest
from millrace_api import hub as hub_module
from millrace_api.hub import LONGEST_QUEUE, RESYNC, Hub, LiveEvent, Viewer
from millrace_api.live import BATCH
from millrace_api.ranges import Window
from millrace_api.store import JobProgress, TrafficRow
from millrace_api.stream import MISSED_BATCHES, events

from tests.api.fakes import FakeFeed, FakeStore
from tests.clock import play
from tests.waiting import PATIENCE_SECONDS

Row = Callable[..., TrafficRow]
MakeProgress = Callable[..., JobProgress]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "POLL_SECONDS", 0.01)


@asynccontextmanager
async def running(feed: FakeFeed, store: FakeStore) -> AsyncIterator[Hub]:
    hub = Hub(feed, store)
    reader = asyncio.create_task(hub.run())
    try:
        yield hub
    finally:
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader


async def until(stream: AsyncIterator[LiveEvent], event: str, data: str = "") -> LiveEvent:
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for found in stream:
            if found.event == event and data in found.data:
                return found
    raise AssertionError(f"the stream ended without {event!r}")


async def soon(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.001)


def test_a_new_client_gets_what_comes_after_it(store: FakeStore, feed: FakeFeed) -> None:
    async def scenario() -> None:
        feed.entries = [("5-0", '{"old": 1}')]
        async with running(feed, store) as hub:
            stream = events(hub, "viewer", None)
            await until(stream, "source", "redis")
            feed.entries.append(("6-0", '{"new": 1}'))
            assert await until(stream, "window") == LiveEvent("window", '{"new": 1}', "6-0")

    play(scenario)


def test_a_client_that_reconnects_misses_nothing_and_gets_nothing_twice(
    store: FakeStore, feed: FakeFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_back = feed.since

    async def busy(after: str) -> list[tuple[str, str]]:
        feed.entries.append(("5-0", "while the past is read"))
        await asyncio.sleep(0.05)  # the hub has it, too
        return await look_back(after)

    async def scenario() -> None:
        feed.entries = [(f"{n}-0", str(n)) for n in range(1, 5)]
        async with running(feed, store) as hub:
            await soon(lambda: feed.most_readers)
            monkeypatch.setattr(feed, "since", busy)
            stream = events(hub, "viewer", "2-0")
            first = (await until(stream, "window")).id
            monkeypatch.setattr(feed, "since", look_back)
            feed.entries.append(("6-0", "later"))
            seen = [first, *[(await until(stream, "window")).id for _ in range(3)]]
            assert seen == ["3-0", "4-0", "5-0", "6-0"]

    play(scenario)


def test_a_made_up_id_starts_at_the_end(store: FakeStore, feed: FakeFeed) -> None:
    async def scenario() -> None:
        feed.entries = [("5-0", "old")]
        async with running(feed, store) as hub:
            stream = events(hub, "viewer", "0-0\r\nXREAD")
            await until(stream, "source")
            feed.entries.append(("6-0", "new"))
            assert (await until(stream, "window")).data == "new"

    play(scenario)


@pytest.mark.parametrize("away", [True, False])
def test_who_comes_back_to_more_than_can_be_told_is_asked_to_resync(
    store: FakeStore, feed: FakeFeed, away: bool
) -> None:
    async def scenario() -> None:
        feed.entries = [(f"{n}-0", str(n)) for n in range(1, MISSED_BATCHES * BATCH + 2)]
        feed.away = away
        async with running(feed, store) as hub:
            assert await until(events(hub, "viewer", "1-0"), "resync") == RESYNC

    play(scenario)


def test_one_reader_serves_everybody(store: FakeStore, feed: FakeFeed) -> None:
    async def scenario() -> None:
        async with running(feed, store) as hub:
            await soon(lambda: feed.most_readers)
            viewers = [events(hub, "viewer", None) for _ in range(60)]
            await asyncio.gather(*(until(viewer, "source") for viewer in viewers))
            feed.entries.append(("1-0", "for all"))
            seen = await asyncio.gather(*(until(viewer, "window") for viewer in viewers))
            assert {event.data for event in seen} == {"for all"}
            assert (hub.viewers(), feed.most_readers) == (60, 1)
            for viewer in viewers:
                await viewer.aclose()
            assert hub.viewers() == 0

    play(scenario)


def test_who_reads_too_slowly_gets_a_resync_and_delays_nobody(
    store: FakeStore, feed: FakeFeed
) -> None:
    async def scenario() -> None:
        async with running(feed, store) as hub:
            slow, fast = events(hub, "viewer", None), events(hub, "viewer", None)
            await asyncio.gather(until(slow, "source"), until(fast, "source"))
            for n in range(1, LONGEST_QUEUE + 2):
                feed.entries.append((f"{n}-0", str(n)))
                assert (await until(fast, "window")).data == str(n)
            assert [(await anext(slow)).data for _ in range(2)] == [
                RESYNC.data,
                str(LONGEST_QUEUE + 1),
            ]

    play(scenario)


def test_what_waits_for_a_viewer_is_bounded() -> None:
    viewer = Viewer("viewer")
    for n in range(10 * LONGEST_QUEUE):
        viewer.put(LiveEvent("window", str(n)))
    assert viewer._waiting.qsize() <= LONGEST_QUEUE


def test_without_redis_changes_come_from_the_store_and_then_redis_goes_on(
    store: FakeStore, feed: FakeFeed, row: Row, progress: MakeProgress
) -> None:
    async def scenario() -> None:
        feed.entries = [("1-0", "seen")]
        store.rows = [row(Window.MINUTE, "10:00")]
        store.jobs = [progress("2015-05-17T10:05:00Z", datetime.now(UTC))]
        async with running(feed, store) as hub:
            stream = events(hub, "viewer", "1-0")
            await until(stream, "source", "redis")
            feed.away = True
            await until(stream, "source", "store")
            await asyncio.sleep(0.05)
            store.rows.append(row(Window.MINUTE, "10:05", requests=7))
            assert json.loads((await until(stream, "window")).data)["requests"] == 7
            feed.entries.append(("2-0", "missed"))
            feed.away = False
            await until(stream, "source", "redis")
            assert (await until(stream, "window")).data == "missed"

    play(scenario)


def test_the_reader_outlives_redis_and_the_store(store: FakeStore, feed: FakeFeed) -> None:
    async def scenario() -> None:
        store.away = feed.away = True
        async with running(feed, store) as hub:
            stream = events(hub, "viewer", None)
            await until(stream, "source", "store")
            await asyncio.sleep(0.05)
            store.away = feed.away = False
            await until(stream, "source", "redis")
            feed.entries.append(("1-0", "back"))
            assert (await until(stream, "window")).data == "back"

    play(scenario)
