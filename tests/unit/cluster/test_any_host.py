"""A service's hosts as one: real HTTP servers on loopback, some of which are no help."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from millrace.cluster import doors, tunnel
from millrace.cluster.hdfs import Hdfs
from millrace.cluster.http import AnyHost, Unanswered
from millrace.cluster.insight_api import InsightApi
from millrace.common.errors import OperatorError
from millrace.plan import load_plan
from tests.clock import Clock
from tests.waiting import PATIENCE_SECONDS

NOBODY = "127.0.0.1:1"
STANDBY = b'{"RemoteException": {"exception": "StandbyException"}}'
MISSING = b'{"RemoteException": {"exception": "FileNotFoundException"}}'


class Server(ThreadingHTTPServer):
    """Gives every question the same answer and counts them."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = status, body
        self.retry_after = ""
        self.refusals = 0  # 429 so many times first
        self.asked = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        status, body = self.server.answer
        refused = self.server.asked <= self.server.refusals
        self.send_response(429 if refused else status)
        if self.server.retry_after:
            self.send_header("Retry-After", self.server.retry_after)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """A standby that refuses, and one that answers."""
    started = [Server(403, STANDBY), Server(200, b'{"hello": 1}')]
    for server in started:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield started
    for server in started:
        server.shutdown()
        server.server_close()


def test_the_host_that_answers_is_found_and_asked_first_from_then_on(servers):
    standby, active = servers
    hosts = AnyHost([NOBODY, standby.address, active.address], seconds=PATIENCE_SECONDS)
    for _ in range(3):
        assert hosts.get("/x").json() == {"hello": 1}
    assert (standby.asked, active.asked) == (1, 3)


def test_when_it_fails_the_others_are_asked_at_once(servers):
    first, second = servers
    hosts = AnyHost([first.address, second.address], seconds=PATIENCE_SECONDS)
    hosts.get("/x")
    first.answer, second.answer = second.answer, first.answer
    assert hosts.get("/x").json() == {"hello": 1}


def test_nobody_says_of_each_host_what_it_did_instead(servers):
    standby, _ = servers
    hosts = AnyHost([NOBODY, standby.address], seconds=PATIENCE_SECONDS)
    with pytest.raises(Unanswered) as failure:
        hosts.get("/x")
    assert NOBODY in str(failure.value)
    assert "403" in str(failure.value)


def insight_api(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> InsightApi:
    monkeypatch.setattr(doors, "addresses", lambda *_: list(addresses))
    monkeypatch.setattr(doors, "credentials", lambda *_: None)  # so these speak plain HTTP
    return InsightApi(load_plan("local"))


def moved(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that it makes, by which alone its time passes."""
    clock, slept = Clock(), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.sleep(seconds)

    # Of that module alone: other tests' threads may be asleep.
    its_time = SimpleNamespace(sleep=sleep, monotonic=clock)
    monkeypatch.setattr("millrace.cluster.insight_api.time", its_time)
    return slept


def test_a_busy_api_is_asked_again_when_it_says(servers, monkeypatch):
    _, busy = servers
    busy.refusals, busy.retry_after = 2, "1"
    slept = moved(monkeypatch)
    api = insight_api(monkeypatch, NOBODY, busy.address)
    assert api.get("/v1/progress") == {"hello": 1}
    assert slept == [1, 1]


def test_a_parameter_may_have_any_name(servers, monkeypatch):
    _, active = servers
    api = insight_api(monkeypatch, active.address)
    assert api.get("/v1/jobs/x", path="/a", self="b") == {"hello": 1}


def test_an_api_that_stays_busy_is_given_up_within_patience(servers, monkeypatch):
    busy, _ = servers
    busy.answer, busy.retry_after = (503, b"busy"), "1"
    monkeypatch.setattr("millrace.cluster.insight_api.PATIENCE_SECONDS", 1.5)
    slept = moved(monkeypatch)
    with pytest.raises(OperatorError, match="503 busy"):
        insight_api(monkeypatch, busy.address).get("/v1/progress")
    assert busy.asked == 2
    assert slept == [1]


def test_an_api_that_refuses_without_a_time_is_given_up_at_once(servers, monkeypatch):
    refusing, _ = servers
    with pytest.raises(OperatorError, match="403"):
        insight_api(monkeypatch, refusing.address).get("/v1/progress")
    assert refusing.asked == 1


def hdfs(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> Hdfs:
    monkeypatch.setattr(tunnel, "addresses", lambda *_: list(addresses))
    monkeypatch.setattr("millrace.cluster.hdfs.PAUSE_SECONDS", 0.01)
    return Hdfs(load_plan("local"))


def test_the_active_namenode_lists_a_folder(servers, monkeypatch):
    standby, active = servers
    active.answer = 200, b'{"FileStatuses": {"FileStatus": [{"pathSuffix": "a"}]}}'
    assert hdfs(monkeypatch, standby.address, active.address).names("/folder") == ["a"]


def test_a_missing_file_is_known_at_once_and_said(servers, monkeypatch):
    standby, active = servers
    active.answer = 404, MISSING
    with pytest.raises(OperatorError, match="HDFS has no /folder"):
        hdfs(monkeypatch, standby.address, active.address).names("/folder")
    assert active.asked == 1


def test_two_standbys_are_asked_until_patience_ends(servers, monkeypatch):
    standby, _ = servers
    with pytest.raises(OperatorError, match="HDFS doesn't answer"):
        hdfs(monkeypatch, standby.address).names("/folder")
    assert standby.asked == 5
