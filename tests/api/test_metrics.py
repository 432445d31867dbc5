"""What Prometheus reads from the API, parsed by its own client."""

import asyncio
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from fastapi.testclient import TestClient
from millrace_api.hub import Hub
from millrace_api.metrics import Look, Metrics, look
from millrace_api.settings import Settings
from millrace_api.store import JobProgress, JobWork, StoreUnavailable
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import BEARER, create_app
from tests.clock import play
from tests.waiting import PATIENCE_SECONDS

MakeProgress = Callable[..., JobProgress]
NOW = datetime(2026, 5, 17, 10, tzinfo=UTC)
RANGE = {"from": "2015-05-17T00:00:00Z", "to": "2015-05-18T00:00:00Z"}


def samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """(name, label's value, …) → value, as a scrape gets them."""
    text = generate_latest(metrics.registry).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def seen(store: FakeStore, feed: FakeFeed) -> Look:
    return asyncio.run(look(store, Hub(feed, store), NOW))


def test_a_look_tells_what_the_store_has(
    store: FakeStore, feed: FakeFeed, progress: MakeProgress
) -> None:
    store.jobs = [progress("2026-05-17T09:00:00Z", NOW), progress(None, NOW, job="archive")]
    store.done = [JobWork("traffic", 40, 12.5, 3)]
    store.left_out = {"sessions": 2}
    store.lists = {NOW: (12, 300)}
    store.letter_counts = {'not "JSON"': 7}
    metrics = Metrics()
    metrics.look = seen(store, feed)
    found = samples(metrics)
    assert found["millrace_api_store_up",] == 1
    assert found["millrace_job_updated_timestamp_seconds", "archive"] == NOW.timestamp()
    assert found["millrace_job_watermark_timestamp_seconds", "traffic"] == NOW.timestamp() - 3600
    assert ("millrace_job_watermark_timestamp_seconds", "archive") not in found
    assert found["millrace_job_epoch", "traffic"] == 3
    assert found["millrace_job_info", "traffic", "1.0.0"] == 1
    assert found["millrace_job_batches_total", "traffic"] == 40
    assert found["millrace_job_batch_seconds_total", "traffic"] == 12.5
    assert found["millrace_job_late_events_total", "traffic"] == 3
    assert found["millrace_job_quarantined_records", "sessions"] == 2
    assert found["millrace_pages_error",] == 12
    assert found["millrace_dead_letters_recent", 'not "JSON"'] == 7


def test_while_the_store_is_away_the_last_look_stays_and_ages(
    store: FakeStore, feed: FakeFeed, progress: MakeProgress
) -> None:
    store.jobs = [progress(None, NOW)]
    metrics = Metrics()

    async def lose_the_store() -> None:
        looking = asyncio.create_task(metrics.keep_looking(store, Hub(feed, store)))
        await until(lambda: metrics.look.answered)
        store.away = True
        await until(lambda: not metrics.look.answered)
        looking.cancel()

    play(lose_the_store)
    found = samples(metrics)
    assert found["millrace_api_store_up",] == 0
    assert found["millrace_job_updated_timestamp_seconds", "traffic"] == NOW.timestamp()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():
            await asyncio.sleep(0.005)


def test_a_look_without_a_store_is_none(store: FakeStore, feed: FakeFeed) -> None:
    store.away = True
    with pytest.raises(StoreUnavailable):
        seen(store, feed)


def test_requests_are_counted_by_route_and_status(
    settings: Settings, store: FakeStore, feed: FakeFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(replace_limits(settings), store, feed)
    with TestClient(app, raise_server_exceptions=False, headers=BEARER) as client:
        client.get("/v1/jobs/nobodys", params=RANGE)
        client.get("/v1/traffic", params=RANGE)
        client.get("/v1/traffic", params={"from": "?", "to": "?"})
        store.away = True
        client.get("/v1/traffic", params=RANGE)
        monkeypatch.setattr(store, "late_events", None)  # a bug
        client.get("/v1/late", params=RANGE)
        client.get("/nothing/here")
        client.get("/v1/traffic", params=RANGE)  # beyond the burst
    name = "millrace_api_request_seconds_count"
    found = {key[1:]: n for key, n in samples(app.state.metrics).items() if key[0] == name}
    assert found == {
        ("/v1/jobs/{job}", "404"): 1,
        ("/v1/traffic", "200"): 1,
        ("/v1/traffic", "422"): 1,
        ("/v1/traffic", "503"): 1,
        ("/v1/late", "500"): 1,
        ("none", "404"): 1,
        ("none", "429"): 1,
    }


def replace_limits(settings: Settings) -> Settings:
    return settings.model_copy(update={"client_requests_per_second": 0.001, "client_burst": 6})


def test_they_are_served_on_a_port_of_their_own() -> None:
    metrics = Metrics()
    metrics.look = replace(metrics.look, viewers=4)
    with metrics.served(0) as port:
        address = f"http://127.0.0.1:{port}/metrics"
        text = urllib.request.urlopen(address, timeout=PATIENCE_SECONDS).read().decode()
    assert "millrace_api_stream_clients 4.0" in text
    assert "process_resident_memory_bytes" in text


def test_the_public_port_has_no_metrics(client: TestClient) -> None:
    assert client.get("/metrics").status_code == 404
