import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from millrace_collector.app import create_app
from millrace_collector.delivery import Delivery
from millrace_collector.settings import Settings

from millrace.config import load_names
from millrace.config.streams import load_streams
from millrace.plan.streams import plan_stream
from millrace_shared.keys import ALL, Follower, Key, Secret, sha256
from tests.clock import Clock
from tests.collector.fakes import FakeProducer
from tests.keys import FakeRegistry, Memory
from tests.waiting import PATIENCE_SECONDS, soon

SECRET = "a-key-of-the-tests-with-32-bytes-at-least"
SLOW_SECRET = "a-key-of-the-tests-for-one-event-a-second"
PAGE_SECRET = "a-key-of-the-tests-that-everybody-can-read"


def key_of(secret: str, rate: int, **changes: Any) -> Key:
    return Key(
        [Secret(sha256(secret.encode()))], **{"streams": [ALL]} | changes, events_per_second=rate
    )


KEYS = {
    "tests": key_of(SECRET, 100_000),
    "slow": key_of(SLOW_SECRET, 1),
    "page": key_of(PAGE_SECRET, 100, streams=["events"], client_events_per_second=10),
}


def collector_settings(**changes: Any) -> Settings:
    content: dict[str, Any] = {
        "streams": {
            name: plan_stream(stream, f"topic-of-{name}", "small").model_dump(mode="json")
            for name, stream in load_streams().items()
        },
        "host": "edge-1",
        "all_doors": 1,
        "zookeeper": "127.0.0.1:1",
        "znodes": load_names().zookeeper.model_dump(),
        "keys_file": "/nowhere/keys.json",
        "keys_look_seconds": PATIENCE_SECONDS,  # a test looks itself
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "metrics_port": 1,
        "request_bytes": 100_000,
        "buffer_bytes": 1_000_000,
        "receive_seconds": PATIENCE_SECONDS,
        "burst_seconds": 1,
        "event_bytes": 1024,
        "addresses": 100,
        "threads": 2,
        "allowed_origins": [],
    }
    any_free = {"metrics_port": 0}  # of the tests alone: no host is configured so
    return Settings.model_validate(content | changes).model_copy(update=any_free)


@contextmanager
def serving(app: FastAPI, http: Literal["auto", "h11"] = "auto") -> Iterator[httpx.Client]:
    """The app behind its real server; a client of it that has a key. On hosts ``http`` is h11."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            port=0,
            http=http,
            log_level="warning",
            timeout_graceful_shutdown=round(PATIENCE_SECONDS),
        )
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        soon(lambda: server.started or not thread.is_alive(), "the server has started")
        assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {SECRET}"},
            timeout=PATIENCE_SECONDS,
        ) as client:
            client.stop = lambda: setattr(server, "should_exit", True)  # type: ignore[attr-defined]
            client.app = app  # type: ignore[attr-defined]
            yield client
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def producers() -> list[FakeProducer]:
    """Those that were made, the newest last."""
    return []


@pytest.fixture
def clock() -> Clock:
    """By which rates are judged, and by which Kafka is asked again."""
    return Clock()


@pytest.fixture
def collector(producers: list[FakeProducer], clock: Clock) -> Callable[..., Any]:
    """The app over producers and keys of the tests, with other settings."""

    def make(keys: Mapping[str, Key] = KEYS, **changes: Any) -> FastAPI:
        def connect() -> Any:
            producers.append(FakeProducer())
            return producers[-1]

        settings, registry = collector_settings(**changes), FakeRegistry(keys)
        registry.there = settings.all_doors
        follower = Follower(registry, Memory(), settings.all_doors, clock)
        follower.look()
        app = create_app(settings, Delivery(connect, clock), follower, clock)
        app.state.registry = registry
        return app

    return make


@pytest.fixture
def client(collector: Callable[..., FastAPI]) -> Iterator[httpx.Client]:
    with serving(collector()) as client:
        yield client


@pytest.fixture
def producer(client: httpx.Client, producers: list[FakeProducer]) -> FakeProducer:
    return producers[0]
