import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from datasketches import hll_sketch, tgt_hll_type
from fastapi.testclient import TestClient
from millrace_api.ranges import Window
from millrace_api.settings import Settings
from millrace_api.store import JobProgress, TrafficRow

from millrace.config.alerts import load_alerts
from millrace.config.panels import load_panels
from millrace.panels import page
from millrace.plan import load_plan
from millrace_shared.names import ZookeeperNames
from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import BEARER, create_app


@pytest.fixture(scope="session")
def panels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("panels") / "panels.json"
    path.write_text(json.dumps(page(load_plan("local"), load_panels(), load_alerts())))
    return path


@pytest.fixture
def settings(panels: Path) -> Settings:
    return api_settings(panels)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if whoever asks again did so seconds later."""
    monkeypatch.setattr("millrace_api.progress.KEPT_SECONDS", 0)
    monkeypatch.setattr("millrace_api.history.OPEN_SECONDS", 0)


def api_settings(panels: Path = Path("none")) -> Settings:
    return Settings(
        cluster="millrace-test",
        host="edge-1",
        doors=2,
        data=Path("none"),
        zookeeper=[("127.0.0.1", 1)],
        znodes=ZookeeperNames("/lock", "/applications", "/jobs", "/upkeep", "/keys", "/doors"),
        keys_look_seconds=2,
        oidc=None,
        cassandra=[("127.0.0.1", 9042)],
        datacenter="millrace",
        keyspace="millrace",
        sentinels=[("127.0.0.1", 26379)],
        redis_master="millrace",
        stream="millrace:traffic",
        kafka=[("127.0.0.1", 1)],
        metrics_port=9410,
        runbooks=Path(__file__).parents[2] / "runbooks",
        panels=panels,
        prometheus=[("127.0.0.1", 1)],
        prometheus_timeout_seconds=1,
        prometheus_places=2,
        request_timeout_seconds=2,
        speculate_after_seconds=0.25,
        light_windows=240,
        light_places=8,
        light_queue=8,
        heavy_places=2,
        heavy_queue=2,
        lane_wait_seconds=5,
        client_requests_per_second=1000,
        client_pause_seconds=0.01,
        client_burst=1000,
        client_heavy=100,
        client_streams=1,
        max_streams=2,
        kept_days=800,
        kept_days_of_hours=100,
        kept_pages=1000,
        kept_seconds=3600,
        session_rows=100_000,
        looked_at_rows=1000,
        allowed_origins=[],
    )


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def feed() -> FakeFeed:
    return FakeFeed()


@pytest.fixture
def client(settings: Settings, store: FakeStore, feed: FakeFeed) -> Iterator[TestClient]:
    # Let a bug answer 500, as in production, instead of failing the test with its trace.
    with TestClient(
        create_app(settings, store, feed), raise_server_exceptions=False, headers=BEARER
    ) as client:
        yield client


def sketch_of(*visitors: str) -> bytes:
    """A sketch as Spark's hll_sketch_agg(visitor_id, 12) makes it."""
    sketch = hll_sketch(12, tgt_hll_type.HLL_8)
    for visitor in visitors:
        sketch.update(visitor)
    return sketch.serialize_updatable()


@pytest.fixture
def row() -> Callable[..., TrafficRow]:
    """A window at ``10:00`` of the log's first day, or at another time."""

    def make(window: Window, clock: str, *visitors: str, requests: int = 1) -> TrafficRow:
        return TrafficRow(
            window=window,
            start=datetime.fromisoformat(f"2015-05-17T{clock}:00").replace(tzinfo=UTC),
            requests=requests,
            page_views=1,
            bytes=100,
            status={"2xx": requests, "3xx": 0, "4xx": 0, "5xx": 0, "other": 0},
            visitors=sketch_of(*visitors),
            version=(3 << 32) | int(clock.replace(":", "")),
        )

    return make


@pytest.fixture
def progress() -> Callable[..., JobProgress]:
    def make(
        watermark: str | None, updated: datetime, job: str = "traffic", checkpoint: str = "a"
    ) -> JobProgress:
        at = watermark and datetime.fromisoformat(watermark)
        return JobProgress(job, 3, 7, at, at, updated, 12.5, "1.0.0", checkpoint)

    return make
