"""The API behind the real server, for clients that are programs of their own: on loopback alone."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import uvicorn
from millrace_api.ranges import Window
from millrace_api.store import DeadLetter, JobProgress, LateEvents, TrafficRow

from tests.api import test_declared, test_sessions
from tests.api.conftest import sketch_of
from tests.api.fakes import FakeStore
from tests.api.keys import BEARER
from tests.waiting import PATIENCE_SECONDS, soon

LONG_URL = "/" + "a-very-long-path/" * 20
RTL_URL = "/\u202egpj.txet\u202c/\u05e9\u05dc\u05d5\u05dd"  # whose direction is another
TEN = datetime(2015, 5, 17, 10, tzinfo=UTC)


@contextmanager
def at_loopback(app: Any) -> Iterator[str]:
    """Its address, for as long as the server runs."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        soon(lambda: server.started, "the server has started")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def describe_jobs(url: str) -> None:
    """From here on the API's document has the jobs' paths."""
    httpx.get(f"{url}/v1/jobs", headers=BEARER, timeout=PATIENCE_SECONDS).raise_for_status()


def busy_store() -> FakeStore:
    """Something of everything, at ten in the morning of the log's first day."""
    letters = [
        DeadLetter(f"events-0-{n}", "not JSON", 9, '{"url": <b>', TEN + timedelta(minutes=n))
        for n in range(8)
    ]
    recent = [
        DeadLetter(f"events-1-{n}", "no value", 9, LONG_URL, datetime.now(UTC)) for n in range(3)
    ]
    jobs = ("traffic", "archive", "by_status", "visits")
    seen, now = TEN + timedelta(minutes=50), datetime.now(UTC)
    store = FakeStore(
        rows=[
            *(traffic(Window.HOUR, TEN + n * timedelta(hours=1), n) for n in range(-20, 2)),
            *(traffic(Window.MINUTE, TEN + n * timedelta(minutes=1), n) for n in range(-60, 60)),
        ],
        letters=[*letters, *recent],
        letter_counts={"not JSON": len(letters)},
        late=[LateEvents(TEN.date(), "1m", 3)],
        jobs=[JobProgress(job, 3, 7, TEN, seen, now, 12.5, "1.0.0", "a") for job in jobs],
        described=[test_declared.WRITTEN.to_json(), test_sessions.WRITTEN.to_json()],
    )
    store.pages[TEN] = Counter(
        {f"/page/{n}": 100 - n for n in range(9)} | {LONG_URL: 170, RTL_URL: 160}
    )
    store.job_table = [
        *(test_declared.row(minute, status) for minute in range(60) for status in (200, 404)),
        *test_sessions.slots_of(test_sessions.VISITS),
    ]
    return store


def traffic(window: Window, start: datetime, number: int) -> TrafficRow:
    counts = {"2xx": 90 + number % 7, "3xx": 6, "4xx": 3, "5xx": number % 2, "other": 0}
    return TrafficRow(
        window=window,
        start=start,
        requests=sum(counts.values()),
        page_views=40 + number % 5,
        bytes=123_456,
        status=counts,
        visitors=sketch_of(*(f"visitor {n}" for n in range(20 + number % 9))),
        version=(3 << 32) | 7,
    )
