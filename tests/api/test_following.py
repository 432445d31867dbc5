"""How this door follows the keys: in the background, on and on, and over its restart."""

import asyncio
import logging
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from millrace_api.identity import keep_looking
from millrace_api.settings import Settings

from millrace_shared.keys import FileStore, Follower, Keys
from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import FakeCopy, FakeRegistry, bearer, create_app, key
from tests.api.test_metrics import samples
from tests.clock import play

EVERY_SECONDS = 2.0
ANN, BOB = (Keys({name: key(name, "insights")}).content() for name in ("ann", "bob"))


def test_a_change_is_known_after_the_next_look() -> None:
    async def scene() -> None:
        registry, looked = FakeRegistry(ANN), []
        follower = Follower(registry, FakeCopy(), 2, lambda: 0.0)
        task = asyncio.create_task(
            keep_looking(follower, EVERY_SECONDS, lambda: looked.append(registry.looks))
        )
        await asyncio.sleep(1)
        assert [*(follower.keys or ())] == ["ann"]
        registry.content = BOB
        await asyncio.sleep(EVERY_SECONDS)
        assert [*(follower.keys or ())] == ["bob"]
        assert looked == [1, 2]
        task.cancel()

    play(scene)


def test_without_zookeeper_it_goes_on_with_what_it_knows(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        registry, looked = FakeRegistry(ANN), []
        follower = Follower(registry, FakeCopy(), 2, lambda: 0.0)
        task = asyncio.create_task(
            keep_looking(follower, EVERY_SECONDS, lambda: looked.append(registry.looks))
        )
        await asyncio.sleep(1)
        registry.away = True
        await asyncio.sleep(10 * EVERY_SECONDS)
        assert registry.looks == 11
        assert [*(follower.keys or ())] == ["ann"]
        registry.away, registry.content = False, BOB
        await asyncio.sleep(EVERY_SECONDS)
        assert [*(follower.keys or ())] == ["bob"]
        assert looked == [1, 12]
        task.cancel()

    with caplog.at_level(logging.WARNING):
        play(scene)
    assert len(caplog.records) == 1  # and not every two seconds for days


def test_over_its_restart_it_knows_the_keys_of_before(
    settings: Settings, store: FakeStore, feed: FakeFeed, tmp_path: Path
) -> None:
    copy = FileStore(tmp_path / "keys.json")
    before = Follower(FakeRegistry(ANN), copy, 2, lambda: 0.0)
    before.look()
    after = Follower(FakeRegistry(away=True), copy, 2, lambda: 0.0)
    with TestClient(create_app(settings, store, feed, after)) as client:
        assert client.get("/v1/extent", headers=bearer("ann")).status_code == 200
        assert client.get("/v1/extent", headers=bearer("bob")).status_code == 401


def test_when_keys_were_looked_at_is_told(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    app = create_app(settings, store, feed)
    name = ("millrace_keys_looked_at_timestamp_seconds",)
    assert samples(app.state.metrics)[name] == 0
    app.state.metrics.looked_at_keys()
    assert samples(app.state.metrics)[name] > 0
