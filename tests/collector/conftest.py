import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from millrace_collector.app import create_app
from millrace_collector.delivery import Delivery
from millrace_collector.settings import Settings

from millrace.config.streams import load_streams
from millrace.plan.streams import plan_stream
from tests.clock import Clock
from tests.collector.fakes import FakeProducer
from tests.waiting import PATIENCE_SECONDS, soon

SECRET = "a-key-of-the-tests-with-32-bytes-at-least"
SLOW_SECRET = "a-key-of-the-tests-for-one-event-a-second"


def collector_settings(**changes: Any) -> Settings:
    content: dict[str, Any] = {
        "streams": {
            name: plan_stream(stream, f"topic-of-{name}", "small").model_dump(mode="json")
            for name, stream in load_streams().items()
        },
        "keys": [
            {"name": name, "sha256": hashlib.sha256(secret.encode()).hexdigest()}
            | {"events_per_second": rate}
            for name, secret, rate in (("tests", SECRET, 100_000), ("slow", SLOW_SECRET, 1))
        ],
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "metrics_port": 1,
        "request_bytes": 100_000,
        "buffer_bytes": 1_000_000,
        "receive_seconds": PATIENCE_SECONDS,
        "burst_seconds": 1,
        "event_bytes": 1024,
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
    """The app over producers of the tests, with other settings."""

    def make(**changes: Any) -> FastAPI:
        def connect() -> Any:
            producers.append(FakeProducer())
            return producers[-1]

        return create_app(collector_settings(**changes), Delivery(connect, clock), clock)

    return make


@pytest.fixture
def client(collector: Callable[..., FastAPI]) -> Iterator[httpx.Client]:
    with serving(collector()) as client:
        yield client


@pytest.fixture
def producer(client: httpx.Client, producers: list[FakeProducer]) -> FakeProducer:
    return producers[0]
