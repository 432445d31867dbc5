"""Work in the background goes on after anything, and one bad row fails nothing else."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from millrace_api.hub import Hub
from millrace_api.metrics import Metrics
from millrace_api.outputs import Catalogue
from millrace_api.settings import Settings
from millrace_api.store import CassandraStore, JobProgress
from millrace_api.supervision import in_background

from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import BEARER, create_app
from tests.api.test_declared import WRITTEN
from tests.api.test_metrics import samples
from tests.clock import play

MakeProgress = Callable[..., JobProgress]
ERRORS = "millrace_api_unexpected_errors_total"
GOOD = WRITTEN.to_json()
RANGE = {"from": "2015-05-17T10:00:00Z", "to": "2015-05-17T11:00:00Z"}


def fails_first(times: int, then: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """As a bug in a library, or a row of a kind that nobody knew."""
    left = times

    async def ask(*args: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            raise TypeError(f"nobody foresaw this {left}")
        return await then(*args)

    return ask


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():
        await asyncio.sleep(0.05)


@asynccontextmanager
async def working(work: Callable[[], Awaitable[None]]) -> AsyncIterator[Metrics]:
    metrics = Metrics()
    async with in_background("work", work, metrics.failed):
        yield metrics


# --- each piece of work --------------------------------------------------------------------------


def test_the_live_stream_goes_on_where_it_stopped(
    store: FakeStore, feed: FakeFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.entries = [("1-0", "old")]
    hub = Hub(feed, store)

    async def scenario() -> None:
        with hub.viewer("viewer") as viewer:
            async with working(hub.run) as metrics:
                events = viewer.events()
                assert (await anext(events)).data == "redis"
                monkeypatch.setattr(feed, "read", fails_first(2, feed.read))
                await until(lambda: samples(metrics).get((ERRORS, "work")) == 2)
                feed.entries.append(("2-0", "meanwhile"))
                assert (await anext(events)).data == "meanwhile"

    play(scenario)


def test_what_metrics_know_is_looked_for_again_and_is_old_meanwhile(
    store: FakeStore, feed: FakeFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        looking = Metrics()
        async with working(lambda: looking.keep_looking(store, Hub(feed, store))) as metrics:
            await until(lambda: looking.look.answered)
            monkeypatch.setattr(store, "work", fails_first(2, store.work))
            await until(lambda: not looking.look.answered)
            await until(lambda: looking.look.answered)
            assert samples(metrics)[ERRORS, "work"] == 2

    play(scenario)


def test_descriptions_are_read_again(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = Catalogue(store)
    monkeypatch.setattr(store, "descriptions", fails_first(2, store.descriptions))
    store.described = [GOOD]

    async def scenario() -> None:
        async with working(catalogue.keep_reading) as metrics:
            await until(lambda: catalogue.outputs.usable)
            assert samples(metrics)[ERRORS, "work"] == 2

    play(scenario)


def test_the_store_is_connected_whatever_went_wrong_before(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CassandraStore(settings)
    tries = iter([TypeError("a driver's bug"), OSError("nobody listens"), object()])

    def connect(_: CassandraStore) -> object:
        outcome = next(tries)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(CassandraStore, "_connect", connect)

    async def scenario() -> None:
        async with working(store.connect_forever) as metrics:
            await until(lambda: store._session)
            assert samples(metrics)[ERRORS, "work"] == 1  # the other is expected

    play(scenario)


def test_the_same_failure_is_explained_once(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise TypeError("the same")

    async def scenario() -> None:
        async with working(fails) as metrics:
            await until(lambda: samples(metrics).get((ERRORS, "work"), 0) >= 3)

    with caplog.at_level(logging.ERROR):
        play(scenario)
    traces = [bool(record.exc_info) for record in caplog.records]
    assert traces[:3] == [True, False, False]


def test_all_of_it_is_counted_from_the_start(client: TestClient) -> None:
    told = samples(client.app.state.metrics)  # type: ignore[attr-defined]
    where = {labels[0] for name, *labels in told if name == ERRORS}
    work = {"connection", "live stream", "switches", "descriptions", "metrics", "keys"}
    assert where == {"requests"} | work
    assert all(told[ERRORS, one] == 0 for one in where)


def test_a_bug_in_an_answer_is_counted(
    client: TestClient, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "late_events", None)
    assert client.get("/v1/late", params=RANGE).status_code == 500
    assert samples(client.app.state.metrics)[ERRORS, "requests"] == 1  # type: ignore[attr-defined]


# --- a description that can't be used ------------------------------------------------------------

ABOUT = json.loads(GOOD)
BAD = {
    "no_json": ("{", "Invalid JSON"),
    "nothing": ("{}", "Field required"),
    "no_window": (json.dumps(ABOUT | {"job": "no_window", "window_seconds": 0}), "window_seconds"),
    "no_bucket": (json.dumps(ABOUT | {"job": "no_bucket", "buckets": 0}), "buckets"),
    "kind": (json.dumps(ABOUT | {"job": "kind", "key": {"status": "decimal(9,2)"}}), "key.status"),
    "name": (json.dumps(ABOUT | {"job": "name", "values": {'"; DROP': "int"}}), "values"),
    "other": (GOOD, "describes another job, by_status"),
    "slots": (
        json.dumps(
            ABOUT
            | {
                "job": "slots",
                "sessions": {"gap_seconds": 60, "pages": "requests", "merges": {"requests": "sum"}},
            }
        ),
        "no end and no start",
    ),
}


@pytest.fixture
def bad(store: FakeStore) -> None:
    store.described = [GOOD]
    store.descriptions_of = {job: text for job, (text, _) in BAD.items()}


@pytest.mark.usefixtures("bad")
def test_a_job_that_cannot_be_described_fails_no_other(client: TestClient) -> None:
    answer = client.get("/v1/jobs")
    assert answer.status_code == 200
    assert [one["job"] for one in answer.json()["jobs"]] == ["by_status"]
    problems = {one["job"]: one["problem"] for one in answer.json()["unusable"]}
    assert problems.keys() == BAD.keys()
    for job, (_, says) in BAD.items():
        assert says in problems[job], job
        refused = client.get(f"/v1/jobs/{job}", params=RANGE)
        assert (refused.status_code, says in refused.json()["detail"]) == (404, True)
    assert client.get("/v1/jobs/by_status", params=RANGE).status_code == 200
    assert "/v1/jobs/by_status" in client.get("/openapi.json").json()["paths"]


def test_it_is_logged_once_until_it_changes(
    store: FakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    catalogue = Catalogue(store)
    store.described = [GOOD]
    with caplog.at_level(logging.WARNING):
        for text in ("{", "{", "{}", "{}", "{"):
            store.descriptions_of = {"visits": text}
            asyncio.run(catalogue.read())
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3
    assert all("'visits' is left out" in message for message in told)


def test_a_newer_description_that_says_more_is_used(client: TestClient, store: FakeStore) -> None:
    store.described = [json.dumps(ABOUT | {"colour": "blue"})]
    assert client.get("/v1/jobs").json()["unusable"] == []


# --- answers that are made once ------------------------------------------------------------------


def test_the_store_is_asked_once_a_second_whether_it_is_ready(
    settings: Settings, store: FakeStore, feed: FakeFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[datetime] = []
    healthy = store.health

    async def health() -> Any:
        asked.append(datetime.now(UTC))
        return await healthy()

    monkeypatch.setattr(store, "health", health)
    app = create_app(settings, store, feed)

    async def scenario() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://api", headers=BEARER
        ) as client:
            for away, status in ((False, 200), (True, 503)):
                store.away = away
                asked.clear()
                answers = [(await client.get("/readyz")).status_code for _ in range(50)]
                assert {*answers} == {status}
                assert len(asked) == 1  # whether it answered or not
                await asyncio.sleep(1.1)

    play(scenario)
