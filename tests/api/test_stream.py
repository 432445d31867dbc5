"""The live stream: from Redis with resume, from the store while Redis is away."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest
from millrace_api import stream
from millrace_api.ranges import Window
from millrace_api.store import JobProgress, TrafficRow

from tests.api.fakes import FakeFeed, FakeStore

Row = Callable[..., TrafficRow]
MakeProgress = Callable[..., JobProgress]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "POLL_SECONDS", 0)


async def until(frames: AsyncIterator[str], beginning: str) -> str:
    async with asyncio.timeout(5):
        async for frame in frames:
            if frame.startswith(beginning):
                return frame
    raise AssertionError(f"the stream ended without {beginning!r}")


def run(scenario: Callable[[], object]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def test_a_new_client_gets_what_comes_after_it(store: FakeStore, feed: FakeFeed) -> None:
    async def scenario() -> None:
        feed.entries = [("5-0", '{"old": 1}')]
        frames = stream.frames(feed, store, None)
        assert await until(frames, "event: source") == "event: source\ndata: redis\n\n"
        await until(frames, ": heartbeat")
        feed.entries.append(("6-0", '{"new": 1}'))
        assert await until(frames, "id:") == 'id: 6-0\nevent: window\ndata: {"new": 1}\n\n'

    run(scenario)


def test_a_client_that_reconnects_misses_nothing(store: FakeStore, feed: FakeFeed) -> None:
    async def scenario() -> None:
        feed.entries = [(f"{n}-0", str(n)) for n in range(1, 5)]
        frames = stream.frames(feed, store, "2-0")
        assert [(await until(frames, "id:"))[4:7] for _ in range(2)] == ["3-0", "4-0"]

    run(scenario)


def test_a_made_up_id_starts_at_the_end(store: FakeStore, feed: FakeFeed) -> None:
    async def scenario() -> None:
        feed.entries = [("5-0", "old")]
        frames = stream.frames(feed, store, "0-0\r\nXREAD")
        await until(frames, "event: source")
        assert await anext(frames) == stream.HEARTBEAT

    run(scenario)


def test_without_redis_changes_come_from_the_store_and_then_redis_goes_on(
    store: FakeStore, feed: FakeFeed, row: Row, progress: MakeProgress
) -> None:
    async def scenario() -> None:
        feed.entries = [("1-0", "seen")]
        store.rows = [row(Window.MINUTE, "10:00")]
        store.jobs = [progress("2015-05-17T10:05:00Z", datetime.now(UTC))]
        frames = stream.frames(feed, store, "1-0")
        await until(frames, ": heartbeat")
        feed.away = True
        assert await until(frames, "event: source") == "event: source\ndata: store\n\n"
        await until(frames, ": heartbeat")
        store.rows.append(row(Window.MINUTE, "10:05", requests=7))
        window = await until(frames, "event: window")
        assert json.loads(window.split("data: ")[1])["requests"] == 7
        feed.entries.append(("2-0", "missed"))
        feed.away = False
        assert "redis" in await until(frames, "event: source")
        assert "missed" in await until(frames, "id: 2-0")

    run(scenario)


def test_the_stream_goes_on_while_redis_and_the_store_are_away(
    store: FakeStore, feed: FakeFeed
) -> None:
    async def scenario() -> None:
        store.away = feed.away = True
        frames = stream.frames(feed, store, None)
        await until(frames, "event: source")
        for _ in range(3):
            assert await anext(frames) == stream.HEARTBEAT

    run(scenario)
