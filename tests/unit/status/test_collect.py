"""Who is asked for a snapshot, and what becomes of those who don't answer."""

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qs

import pytest

from millrace.cluster import prometheus, services
from millrace.cluster.services import BadAnswer, NameNode, Redis
from millrace.common.errors import OperatorError
from millrace.plan import Endpoint
from millrace.status import collect as collecting
from millrace.status.asking import Round
from millrace.status.collect import HostWord, collect, host_word
from millrace.status.snapshot import (
    Controller,
    Coordination,
    Fault,
    HostFacts,
    Kafka,
    Lag,
    Silence,
    Unit,
)
from millrace.status.verdict import UNKNOWN, judge
from tests.unit.status.test_figures import NOW, PLAN, well
from tests.waiting import PATIENCE_SECONDS

NOBODY = Endpoint("127.0.0.1", 1)
HOST_NAMES = {host.name for host in PLAN.hosts}


# --- A round of questions -------------------------------------------------------------------------


def test_an_answer_is_its_own_reply():
    assert Round(60).ask("somebody", lambda: 7).reply() == 7


def test_whoever_says_nothing_until_the_deadline_is_silent():
    """The clock is moved by hand: the round's nine seconds are over at once."""
    clock = iter([0.0])
    never = threading.Event()
    asked = Round(9, now=lambda: next(clock, 9.0))
    assert asked.ask("coord-1: zookeeper", never.wait).reply() == Silence(
        "coord-1: zookeeper gave no answer in 9 s"
    )
    never.set()


@pytest.mark.parametrize(
    ("raised", "reply"),
    [
        (TimeoutError(), Silence("it gave no answer in 0 s")),
        (OperatorError("ZooKeeper doesn't say"), Silence("it: ZooKeeper doesn't say")),
        (KeyError("beans"), Silence("it: KeyError: 'beans'")),
        (BadAnswer("503 no quorum"), Fault("it: 503 no quorum")),
        (ConnectionRefusedError(111, "Connection refused"), Fault("it: Connection refused")),
        (
            OSError("connect to host x port 22: No route"),
            Fault("it: connect to host x port 22: No route"),
        ),
    ],
)
def test_what_a_question_raises_is_a_fault_only_if_it_says_something_of_the_service(raised, reply):
    def question() -> int:
        raise raised

    assert Round(60).ask("it", question).reply() == reply


# --- What services say ----------------------------------------------------------------------------


@contextmanager
def listening(answer: bytes) -> Iterator[tuple[Endpoint, list[bytes]]]:
    """A server that gives every caller the same answer; what it was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            link, _ = server.accept()
            with link:
                asked.append(link.recv(4096))
                link.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Endpoint("127.0.0.1", server.getsockname()[1]), asked
        thread.join(PATIENCE_SECONDS)


def says(answer: bytes, question: Callable[[Endpoint], object]) -> object:
    with listening(answer) as (at, _):
        return question(at)


def test_a_zookeeper_server_says_its_mode():
    text = b"Zookeeper version: 3.9\nMode: follower\nNode count: 5\n"
    assert says(text, services.zookeeper_mode) == "follower"
    with pytest.raises(BadAnswer, match="not currently serving"):
        says(
            b"This ZooKeeper instance is not currently serving requests\n", services.zookeeper_mode
        )


def bulk(text: str) -> bytes:
    return f"${len(text)}\r\n{text}\r\n".encode()


@pytest.mark.parametrize(
    ("info", "found"),
    [
        ("role:master\r\nconnected_slaves:2\r\n", Redis("master")),
        ("role:slave\r\nmaster_link_status:up\r\n", Redis("replica")),
        ("role:slave\r\nmaster_link_status:down\r\n", Redis("replica", is_linked=False)),
    ],
)
def test_a_redis_server_says_its_role(info, found):
    with listening(bulk(f"# Replication\r\n{info}")) as (at, asked):
        assert services.redis(at) == found
    assert asked == [b"INFO replication\r\n"]


def test_a_redis_server_that_loads_its_data_doesnt_serve():
    with pytest.raises(BadAnswer, match="LOADING"):
        says(b"-LOADING Redis is loading the dataset in memory\r\n", services.redis)
    with pytest.raises(BadAnswer, match="closed the connection"):
        says(b"", services.redis)


@pytest.mark.parametrize(
    ("answer", "sees"),
    [
        (b"+OK 3 usable Sentinels. Quorum and failover authorization can be reached\r\n", True),
        (b"-NOQUORUM 1 usable Sentinels. Not enough available Sentinels\r\n", False),
    ],
)
def test_a_sentinel_says_whether_it_sees_a_quorum(answer, sees):
    assert says(answer, lambda at: services.sees_quorum(at, "millrace")) is sees


def test_a_port_where_nobody_listens_refuses():
    with pytest.raises(ConnectionRefusedError):
        services.zookeeper_mode(NOBODY)


class Handler(BaseHTTPRequestHandler):
    """Answers by path, as the server's ``answers`` say."""

    def do_GET(self) -> None:
        found = self.server.answers.get(self.path.partition("?")[0])  # type: ignore[attr-defined]
        found = found(self.path) if callable(found) else found
        self.send_response(503 if found is None else 200)
        self.end_headers()
        self.wfile.write(b"no\nquorum" if found is None else json.dumps(found).encode())

    def log_message(self, *_: object) -> None: ...


@contextmanager
def web(answers: dict[str, object]) -> Iterator[Endpoint]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.answers = answers  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield Endpoint("127.0.0.1", server.server_port)
        server.shutdown()


def namenode_bean(path: str) -> object:
    if "NameNodeStatus" in path:
        return {"beans": [{"State": "active"}]}
    return {"beans": [{"NumLiveDataNodes": 3, "MissingBlocks": 2}]}


def test_a_namenode_says_its_role_and_its_blocks():
    with web({"/jmx": namenode_bean}) as at:
        assert services.namenode(at) == NameNode("active", 3, 2)


@pytest.mark.parametrize("state", ["ACTIVE", "STANDBY"])
def test_only_an_active_resourcemanager_is_asked_for_applications(state):
    apps = [{"id": "a_1", "name": "insights", "state": "RUNNING", "elapsedTime": 61_000}]
    answers: dict[str, object] = {"/ws/v1/cluster/info": {"clusterInfo": {"haState": state}}}
    if state == "ACTIVE":
        answers["/ws/v1/cluster/apps"] = {"apps": {"app": apps}}
    with web(answers) as at:
        found = services.resourcemanager(at)
    assert found.role == state.lower()
    assert [app.elapsed_seconds for app in found.applications] == [61.0] * (state == "ACTIVE")


def test_a_service_that_isnt_ready_says_why_in_one_line():
    with web({}) as at, pytest.raises(BadAnswer, match=r"^503 no quorum$"):
        services.is_ready(at)


ALERT = {
    "labels": {"alertname": "A", "severity": "warning", "component": "kafka"},
    "annotations": {
        "summary": "it is [/so]",
        "runbook_url": "http://edge-1/runbooks/kafka-host-lost",
    },
    "state": "pending",
    "activeAt": "2026-01-01T00:00:00.123456789Z",
}


def prometheus_answers(scraped: prometheus.Scraped) -> dict[str, object]:
    """What Prometheus' HTTP API makes of figures; of each there is an older one, too."""
    moment = "2027-01-15T07:59:{:09.6f}Z"  # NOW is the end of this minute

    def series(s: prometheus.Sample) -> dict[str, object]:
        labels = {"__name__": s.name, "job": s.job, "host": s.host, "zone": "a", **s.labels}
        at = scraped.at - s.age
        return {"metric": labels, "values": [[at - 15, "1e9"], [at, str(s.value)]]}

    def target(t: prometheus.Target) -> dict[str, object]:
        return {
            "labels": {"job": t.job, "host": t.host, "zone": "a", "instance": "x"},
            "health": t.health,
            "lastError": t.error,
            "lastScrape": moment.format(60 - t.age),
        }

    def query(path: str) -> object:
        asked = parse_qs(path.partition("?")[2])
        if asked["query"] == ["time()"]:
            return {"data": {"result": [scraped.at, str(scraped.at)]}}
        assert asked["query"][0].endswith("[45s]")
        assert asked["time"] == [str(scraped.at)]
        return {"data": {"result": [series(sample) for sample in scraped.samples]}}

    return {
        "/api/v1/query": query,
        "/api/v1/targets": {"data": {"activeTargets": [target(t) for t in scraped.targets]}},
        "/api/v1/alerts": {"data": {"alerts": [ALERT]}},
    }


def test_a_prometheus_is_read_as_it_tells():
    with web(prometheus_answers(well(5.0))) as at:
        found = prometheus.scraped(at, "up", 45, 10)
    assert found.at == NOW
    assert {round(target.age, 3) for target in found.targets} == {5.0}
    sample = found.samples[0]
    assert sample.age == 5.0
    assert (sample.job, sample.host, sample.value) == ("node-exporter", "coord-1", 1.0)
    assert sample.labels["state"] == "active"
    [alert] = found.alerts
    assert (alert.name, alert.runbook, alert.state) == ("A", "kafka-host-lost", "pending")


# --- What hosts say -------------------------------------------------------------------------------


def test_the_probes_answer_becomes_facts():
    answer = {
        "resident": 5,
        "services": {
            "kafka_controller": {"active": True, "restarts": 2, "leader": 101, "epoch": 7},
            "journalnode": {
                "active": False,
                "restarts": 0,
                "disk": {"path": "/data/journalnode", "free": 0.5},
            },
            "alertmanager": {"active": True, "restarts": 0, "error": "URLError: refused"},
        },
    }
    word = host_word(answer)
    assert word.facts == HostFacts(
        {
            "kafka_controller": Unit(True, 2),
            "journalnode": Unit(False, 0),
            "alertmanager": Unit(True, 0),
        },
        {"/data/journalnode": 0.5},
        5,
    )
    assert word.controller == Controller(101, 7)
    assert word.peers == Fault("URLError: refused")
    answer["services"]["alertmanager"]["error"] = "TimeoutError: timed out"
    assert host_word(answer).peers == Silence("TimeoutError: timed out")


@pytest.mark.parametrize(
    ("stderr", "is_gone"),
    [
        ("ssh: connect to host 198.18.0.21 port 22: No route to host", True),
        ("ssh: connect to host 198.18.0.21 port 22: Connection timed out", True),
        ("channel 0: open failed: connect failed: No route to host\nstdio forwarding failed", True),
        ("Connection timed out during banner exchange", False),
        ("Timeout, server 198.18.0.21 not responding.", False),
        ("Permission denied (publickey).", False),
    ],
)
def test_a_host_that_is_too_busy_to_let_somebody_in_isnt_gone(monkeypatch, stderr, is_gone):
    done = subprocess.CompletedProcess([], 255, "", stderr)
    monkeypatch.setattr(collecting, "run_on", lambda *_, **__: done)
    asked = Round(60)
    pending = collecting._ask_hosts(asked, PLAN, [PLAN.host("kafka-1")])
    reply = pending["kafka-1"].reply()
    assert isinstance(reply, Fault if is_gone else Silence)
    assert stderr.splitlines()[-1] in reply.why


# --- Who is asked ---------------------------------------------------------------------------------


class World:
    """A cluster whose Prometheis are on loopback, and all of whose other services say nothing."""

    def __init__(self, monkeypatch) -> None:
        self.entered: list[str] = []  # hosts, by SSH
        self.lags: list[str] = []  # jobs, by Kafka
        self.rings = 0  # by Cassandra
        self.places: dict[str, Endpoint] = {}  # of Prometheis, by host
        monkeypatch.setattr(
            collecting,
            "tunnel",
            SimpleNamespace(prepare=lambda plan, endpoints: None, on_host=self._at),
        )
        monkeypatch.setattr(collecting.kafka, "connect", lambda plan: None)
        monkeypatch.setattr(collecting, "_kafka", lambda admin, left: Kafka(3, 12, 0, 0))
        monkeypatch.setattr(collecting, "_coordination", lambda plan, left: Coordination({}))
        monkeypatch.setattr(collecting, "_ask_host", self._enter)
        monkeypatch.setattr(collecting, "_lag", self._lag)
        monkeypatch.setattr(collecting, "_ring", self._ring)

    def _at(self, plan, host, service, port) -> Endpoint:
        return self.places.get(host.name, NOBODY) if service == "prometheus_server" else NOBODY

    def _enter(self, asked, plan, host) -> HostWord:
        self.entered.append(host.name)
        facts = HostFacts(dict.fromkeys(host.services, Unit(True, 0)), {}, 2**20)
        return HostWord(facts, Controller(101, 7), 2)

    def _lag(self, admin, plan, job, told) -> Lag:
        self.lags.append(job)
        return Lag(0, 0)

    def _ring(self, plan) -> dict[str, str]:
        self.rings += 1
        return {node.address: "UN" for node in plan.hosts_of("cassandra")}


@pytest.fixture
def world(monkeypatch) -> World:
    return World(monkeypatch)


def test_on_a_calm_cluster_no_host_is_entered_and_kafka_is_asked_once(world):
    with web(prometheus_answers(well())) as at:
        world.places = {"edge-1": at, "edge-2": at}
        snapshot = collect(PLAN)
    assert (world.entered, world.lags, world.rings) == ([], [], 0)
    assert set(snapshot.hosts) == HOST_NAMES
    assert all(isinstance(facts, HostFacts) for facts in snapshot.hosts.values())
    assert snapshot.age == pytest.approx(5.0)
    assert {c.state for c in judge(PLAN, snapshot).components if c.name == "JournalNodes"} == {
        "healthy"
    }


def test_where_no_prometheus_answers_each_host_is_asked_itself(world):
    snapshot = collect(PLAN)
    assert set(world.entered) == HOST_NAMES
    assert len(world.entered) == len(HOST_NAMES)
    assert (set(world.lags), world.rings) == (set(PLAN.jobs), 1)
    assert snapshot.age is None
    assert judge(PLAN, snapshot).resident == len(HOST_NAMES) * 2**20


def test_after_a_fault_no_figure_is_believed(world):
    with web(prometheus_answers(well())) as at:
        world.places = {"edge-1": at, "edge-2": at}
        snapshot = collect(PLAN, fresh=True)
    assert set(world.entered) == HOST_NAMES
    assert (set(world.lags), world.rings) == (set(PLAN.jobs), 1)
    assert snapshot.age is None
    assert judge(PLAN, snapshot).alerts == []  # it is pending, and known


def test_only_a_host_in_doubt_is_entered(world):
    scraped = well()
    unit = f"{PLAN.services['kafka_broker'].unit}.service"
    samples = tuple(
        s for s in scraped.samples if (s.host, s.labels.get("name")) != ("kafka-2", unit)
    )
    with web(prometheus_answers(prometheus.Scraped(NOW, scraped.targets, samples))) as at:
        world.places = {"edge-1": at}
        collect(PLAN)
    assert world.entered == ["kafka-2"]


def test_a_host_that_says_nothing_by_ssh_either_is_unknown_with_both_reasons(world, monkeypatch):
    def silent(asked, plan, host) -> HostWord:
        raise TimeoutError

    monkeypatch.setattr(collecting, "_ask_host", silent)
    scraped = well()
    samples = tuple(sample for sample in scraped.samples if sample.host != "worker-1")
    with web(prometheus_answers(replace(scraped, samples=samples))) as at:
        world.places = {"edge-1": at}
        snapshot = collect(PLAN)
    reply = snapshot.hosts["worker-1"]
    assert isinstance(reply, Silence)
    assert reply.why.startswith("worker-1 by SSH gave no answer in ")
    assert reply.why.endswith("; Prometheus has no recent figures of it")
    lines = {c.name: c.state for c in judge(PLAN, snapshot).components}
    assert lines["DataNodes"] == UNKNOWN
