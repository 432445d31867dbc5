"""The operations page's figures, asked of a small HTTP server in Prometheus' place."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from millrace_api.operations import LookBack, Period, moments, timed, told, values
from millrace_api.settings import Settings
from millrace_api.store import JobProgress

from millrace.config.panels import load_panels
from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import BEARER, create_app
from tests.waiting import PATIENCE_SECONDS

MakeProgress = Callable[..., JobProgress]
NOBODY = ("127.0.0.1", 1)


class StandIn:
    """Answers as Prometheus does with what a test puts here, and keeps what it was asked."""

    def __init__(self) -> None:
        self.series: dict[str, list[tuple[dict[str, str], Any]]] = {}  # by a part of the query
        self.alerts: list[dict[str, Any]] = []
        self.asked: list[dict[str, str]] = []
        self.refusal = ""
        self.hangs = False
        self.taken = 0  # questions, answered or not
        self.released = threading.Event()

    def answer(self, path: str, asked: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.asked.append(asked)
        if self.refusal:
            return 422, {"status": "error", "error": self.refusal}
        if path.endswith("/alerts"):
            return 200, {"status": "success", "data": {"alerts": self.alerts}}
        if path.endswith("/query"):
            now = [
                {"metric": labels, "value": [0, f"{value}"]}
                for part, series in self.series.items()
                if part in asked["query"]
                for labels, value in series
            ]
            return 200, {"status": "success", "data": {"resultType": "vector", "result": now}}
        start, end, step = (int(asked[name]) for name in ("start", "end", "step"))
        found = [
            {
                "metric": labels,
                "values": [
                    [at, f"{value(at) if callable(value) else value}"]
                    for at in range(start, end + 1, step)
                ],
            }
            for part, series in self.series.items()
            if part in asked["query"]
            for labels, value in series
        ]
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": found}}


@contextmanager
def served(stand_in: StandIn) -> Iterator[tuple[str, int]]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stand_in.taken += 1
            if stand_in.hangs:
                stand_in.released.wait(PATIENCE_SECONDS)
            url = urlsplit(self.path)
            asked = {name: found[0] for name, found in parse_qs(url.query).items()}
            status, content = stand_in.answer(url.path, asked)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield ("127.0.0.1", server.server_address[1])
        server.shutdown()


@contextmanager
def hanging(stand_in: StandIn) -> Iterator[None]:
    """It answers nothing until this is left."""
    stand_in.hangs = True
    yield
    stand_in.released.set()


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, an answer comes in time, and nobody is asked again so soon."""
    monkeypatch.setattr("millrace_api.planes.INTENT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr("millrace_api.operations.BEHIND_WAIT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr("millrace_api.prometheus.AGAIN_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def stand_in() -> StandIn:
    return StandIn()


@pytest.fixture
def own(stand_in: StandIn) -> Iterator[tuple[str, int]]:
    with served(stand_in) as endpoint:
        yield endpoint


@contextmanager
def asking(
    settings: Settings,
    *endpoints: tuple[str, int],
    timeout: float = PATIENCE_SECONDS,
    store: FakeStore | None = None,
) -> Any:
    update = {"prometheus": [*endpoints], "prometheus_timeout_seconds": timeout}
    app = create_app(settings.model_copy(update=update), store or FakeStore(), FakeFeed())
    with TestClient(app, raise_server_exceptions=False, headers=BEARER) as client:
        yield client


@pytest.fixture
def client(settings: Settings, own: tuple[str, int]) -> Iterator[TestClient]:
    with asking(settings, own) as client:
        yield client


# --- what may be asked ---------------------------------------------------------------------------


def test_the_overview_names_every_panel_and_no_query(client: TestClient) -> None:
    answer = client.get("/v1/operations")
    told_of = [panel["name"] for group in answer.json()["groups"] for panel in group["panels"]]
    assert told_of == [panel.name for panel in load_panels().panels]
    assert answer.json()["ranges"] == ["15m", "1h", "6h", "24h", "7d"]
    assert "expr" not in answer.text


def test_every_panel_is_asked_for_with_everything_filled_in(
    client: TestClient, stand_in: StandIn
) -> None:
    panels = load_panels().panels
    for panel in panels:
        path = f"/v1/operations/panels/{panel.name}"
        assert client.get(path, params={"range": "24h"}).status_code == 200
    assert len(stand_in.asked) == sum(len(panel.queries) for panel in panels)
    for asked in stand_in.asked:
        assert "$" not in asked["query"].replace('"$1"', "")
        assert (int(asked["end"]) - int(asked["start"])) / int(asked["step"]) == 288
        assert re.fullmatch(r"[0-9]+ms", asked["timeout"])  # Prometheus takes no "5.0s".


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("panels/lag?range=2h", 422),
        ("panels/lag?range=3650d", 422),
        ("panels/up", 404),
        ("panels/lag?query=up", 422),
    ],
)
def test_nothing_else_can_be_asked(
    client: TestClient, stand_in: StandIn, path: str, status: int
) -> None:
    assert client.get(f"/v1/operations/{path}").status_code == status
    assert "up" not in [asked["query"] for asked in stand_in.asked]


def test_the_same_is_asked_once_for_everybody(
    client: TestClient, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_795_000_001.0]
    monkeypatch.setattr("millrace_api.operations.time.time", lambda: now[0])
    for _ in range(5):
        assert client.get("/v1/operations/panels/lag").status_code == 200
    assert len(stand_in.asked) == 1
    now[0] += LookBack.H1.step
    client.get("/v1/operations/panels/lag")
    client.get("/v1/operations/panels/lag", params={"range": "6h"})
    assert len(stand_in.asked) == 3


# --- what comes of it ----------------------------------------------------------------------------


def test_a_picture_has_a_value_for_each_step(client: TestClient, stand_in: StandIn) -> None:
    stand_in.series["lag_records"] = [({"name": "traffic"}, 7), ({"name": "archive"}, "NaN")]
    found = client.get("/v1/operations/panels/lag", params={"range": "15m"}).json()
    start, end = (datetime.fromisoformat(found[name]) for name in ("start", "end"))
    assert ((end - start).total_seconds(), found["step_seconds"]) == (900, 15)
    assert found["left_out"] == 0
    assert found["series"] == [
        {"legend": "archive", "values": [None] * 61},
        {"legend": "traffic", "values": [7.0] * 61},
    ]


def test_an_event_comes_once_at_its_moment_and_only_within_the_range(
    client: TestClient, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = 1_795_000_000
    monkeypatch.setattr("millrace_api.operations.time.time", lambda: moment + 600.0)
    edge = {"job": "insight-api", "host": "edge-1"}
    stand_in.series["process_start"] = [
        (edge, lambda at: moment if at >= moment else moment - 86400),
        ({"job": "cassandra", "host": "cassandra-1"}, moment - 86400),
    ]
    stand_in.series["ALERTS"] = [({"alertname": "ZoneDown", "zone": "a"}, moment + 60)]
    found = client.get("/v1/operations/events").json()["events"]
    assert found == [
        {
            "at": "2026-11-18T11:07:40Z",
            "kind": "alert",
            "text": "ZoneDown a",
            "runbook": "/runbooks/zone-lost",
        },
        {
            "at": "2026-11-18T11:06:40Z",
            "kind": "restart",
            "text": "insight-api on edge-1 was started",
            "runbook": None,
        },
    ]


def test_alerts_come_by_urgency_with_their_runbook(client: TestClient, stand_in: StandIn) -> None:
    def alert(name: str, state: str, severity: str) -> dict[str, Any]:
        labels = {"alertname": name, "severity": severity}
        annotations = {"summary": f"about {name}"}
        since = "2026-05-17T10:00:00Z"
        return {"labels": labels, "annotations": annotations, "state": state, "activeAt": since}

    stand_in.alerts = [
        alert("DeadLetters", "firing", "warning"),
        alert("HdfsMissingBlocks", "pending", "critical"),
        alert("Nobodys", "firing", "other"),
        alert("ZoneDown", "firing", "critical"),
    ]
    found = client.get("/v1/operations/alerts").json()["alerts"]
    names = [one["name"] for one in found]
    assert names == ["ZoneDown", "DeadLetters", "Nobodys", "HdfsMissingBlocks"]
    assert [one["runbook"] for one in found[:3]] == [
        "/runbooks/zone-lost",
        "/runbooks/poison-message",
        None,
    ]
    assert found[0]["summary"] == "about ZoneDown"


@given(st.floats(1e9, 3e9), st.sampled_from(LookBack))
def test_a_period_ends_within_the_last_minute_and_its_points_fit_a_picture(
    now: float, over: LookBack
) -> None:
    period = Period.until(now, over)
    assert now - 60 < period.end <= now
    assert period.end - period.start == over.length
    assert len(values([(period.end, "1")], period)) == period.points <= 400
    assert [*moments([(0, str(period.start)), (0, str(period.start - 1))], period)] == [
        period.start
    ]


def test_a_rate_spans_four_scrapes_and_a_legend_what_is_there() -> None:
    assert timed("rate(x[$__rate_interval]) / y[$__interval]", 15, 15) == "rate(x[60s]) / y[15s]"
    assert timed("rate(x[$__rate_interval])", 300, 15) == "rate(x[315s])"
    assert values([(0, "NaN"), (15, "+Inf"), (30, "2")], Period(0, 30, 15)) == [None, None, 2]
    assert told("{{a}} {{b}} on {{c}}", {"a": "1", "c": "2"}) == "1 on 2"


# --- a disabled job ------------------------------------------------------------------------------


def processing(client: TestClient) -> tuple[str, str]:
    """The state of the plane that runs jobs, and what is said of it."""
    planes = {plane["name"]: plane for plane in client.get("/v1/status").json()["planes"]}
    return planes["process"]["state"], planes["process"]["detail"]


@pytest.fixture
def two_jobs(progress: MakeProgress) -> FakeStore:
    """`traffic` writes; `sessions` did an hour ago."""
    store, now = FakeStore(), datetime.now(UTC)
    store.jobs = [
        progress(None, now, job="traffic"),
        progress(None, now - timedelta(hours=1), job="sessions"),
    ]
    return store


def test_a_job_that_is_disabled_is_not_missed(
    settings: Settings, stand_in: StandIn, own: tuple[str, int], two_jobs: FakeStore
) -> None:
    stand_in.series = {"millrace:job:disabled": [({"name": "sessions"}, 1)]}
    with asking(settings, own, store=two_jobs) as client:
        assert processing(client) == ("up", "traffic committing batches; sessions disabled")


def test_a_job_that_is_no_longer_deployed_is_not_missed(
    settings: Settings, stand_in: StandIn, own: tuple[str, int], two_jobs: FakeStore
) -> None:
    stand_in.series = {"millrace:job:deployed": [({"name": "traffic"}, 1)]}
    with asking(settings, own, store=two_jobs) as client:
        assert processing(client) == ("up", "traffic committing batches")


def test_of_other_jobs_it_is_said_which_stand_still(
    settings: Settings, stand_in: StandIn, own: tuple[str, int], two_jobs: FakeStore
) -> None:
    stand_in.series = {"millrace:job:disabled": [({"name": "traffic"}, 1)]}
    with asking(settings, own, store=two_jobs) as client:
        assert processing(client) == ("degraded", "no progress: sessions")


def behind(client: TestClient) -> dict[str, Any]:
    return {job["job"]: job["behind"] for job in client.get("/v1/progress").json()["jobs"]}


def test_progress_says_who_is_behind_since_when_and_until_when(
    settings: Settings, stand_in: StandIn, own: tuple[str, int], two_jobs: FakeStore
) -> None:
    stand_in.series = {
        "millrace_job_behind_since": [({"name": "traffic"}, 1_800_000_000)],
        "millrace_job_lag_records": [({"name": "traffic"}, 5000), ({"name": "sessions"}, 7)],
        "millrace_job_catch_up_seconds": [({"name": "traffic"}, 90.5)],
    }
    with asking(settings, own, store=two_jobs) as client:
        traffic = {
            "since": "2027-01-15T08:00:00Z",
            "records": 5000,
            "level_in_seconds": 90.5,
        }
        assert behind(client) == behind(client) == {"traffic": traffic, "sessions": None}
    assert len(stand_in.asked) == 3  # not again so soon


def test_who_falls_behind_has_no_end_of_it(
    settings: Settings, stand_in: StandIn, own: tuple[str, int], two_jobs: FakeStore
) -> None:
    stand_in.series = {"millrace_job_behind_since": [({"name": "sessions"}, 1_800_000_000)]}
    with asking(settings, own, store=two_jobs) as client:
        found = behind(client)["sessions"]
    assert (found["records"], found["level_in_seconds"]) == (None, None)


def test_progress_waits_for_no_prometheus(
    settings: Settings,
    stand_in: StandIn,
    own: tuple[str, int],
    two_jobs: FakeStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with asking(settings, NOBODY, store=two_jobs) as client:
        assert behind(client) == {"traffic": None, "sessions": None}
    monkeypatch.setattr("millrace_api.operations.BEHIND_WAIT_SECONDS", 0.05)
    longer = 2 * PATIENCE_SECONDS  # than it hangs
    with asking(settings, own, timeout=longer, store=two_jobs) as client, hanging(stand_in):
        assert behind(client) == {"traffic": None, "sessions": None}


def test_what_hangs_is_not_waited_for(
    settings: Settings,
    stand_in: StandIn,
    own: tuple[str, int],
    two_jobs: FakeStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millrace_api.planes.INTENT_SECONDS", 0.05)
    longer = 2 * PATIENCE_SECONDS  # than it hangs
    with asking(settings, own, timeout=longer, store=two_jobs) as client, hanging(stand_in):
        assert processing(client) == ("degraded", "no progress: sessions")
        assert not stand_in.asked  # it has answered nothing yet


def test_nobody_is_asked_while_all_jobs_write(
    settings: Settings, stand_in: StandIn, own: tuple[str, int], two_jobs: FakeStore
) -> None:
    del two_jobs.jobs[1]
    with asking(settings, own, store=two_jobs) as client:
        assert processing(client) == ("up", "traffic committing batches")
    assert not stand_in.asked


# --- when Prometheus doesn't answer --------------------------------------------------------------


def test_the_other_is_asked_and_then_first(settings: Settings) -> None:
    first, second = StandIn(), StandIn()
    first.refusal = "expanding series: context deadline exceeded"
    with (
        served(first) as own,
        served(second) as other,
        asking(settings, own, other) as client,
    ):
        for name in ("lag", "freshness", "lag?range=6h"):
            assert client.get(f"/v1/operations/panels/{name}").status_code == 200
    assert (len(first.asked), len(second.asked)) == (1, 3)


def test_when_none_answers_it_says_why_and_what_to_do(settings: Settings) -> None:
    stand_in = StandIn()
    stand_in.refusal = "no space left on device"
    with served(stand_in) as refusing, asking(settings, NOBODY, refusing) as client:
        answer = client.get("/v1/operations/panels/lag")
        again = client.get("/v1/operations/alerts")
    assert answer.status_code == again.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert "Connection refused" in answer.json()["detail"]
    assert "no space left on device" in answer.json()["detail"]
    assert "target-down" in answer.json()["detail"]
    assert len(stand_in.asked) == 1  # who comes right afterwards learns it at once


def test_one_that_hangs_is_given_up_and_delays_nobody_else(
    settings: Settings, stand_in: StandIn, own: tuple[str, int]
) -> None:
    with asking(settings, own, timeout=0.2) as client, hanging(stand_in):
        answers = [client.get("/v1/operations/panels/lag") for _ in range(10)]
        assert client.get("/healthz").status_code == 200
        assert not stand_in.asked  # it has answered nothing yet
    assert stand_in.taken <= 1  # nobody waits for it again
    assert {answer.status_code for answer in answers} == {503}


def test_what_speaks_no_http_is_none(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = listening.getsockname()

        def talk_nonsense() -> None:
            with listening.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(b"220 mail.example.org ESMTP\r\n")

        threading.Thread(target=talk_nonsense, daemon=True).start()
        with asking(settings, endpoint) as client:
            assert client.get("/v1/operations/alerts").status_code == 503
