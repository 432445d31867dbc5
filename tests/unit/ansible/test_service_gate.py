"""The gates of restarts: what services say of their partners, and what forbids to stop one."""

import json
import runpy
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from millrace.common.paths import ANSIBLE
from millrace.inventory import build_inventory
from millrace.plan import CONTROLLER_ID_BASE, load_plan
from tests.playbooks import run_here

ROLE = ANSIBLE / "roles" / "gate"
gate = SimpleNamespace(**runpy.run_path(str(ROLE / "files" / "service_gate.py")))
Missing = gate.Missing
PLAN = load_plan("local")


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the role tells a host."""
    folder = tmp_path_factory.mktemp("rendered")
    play = {
        "hosts": "kafka-1",
        "vars_files": [f"{ROLE}/vars/main.yml"],
        "tasks": [
            {
                "ansible.builtin.copy": {
                    "content": "{{ gate_plan | to_json }}",
                    "dest": f"{folder}/gate.json",
                }
            }
        ],
    }
    run_here(build_inventory(PLAN, {}, artifacts="http://nowhere"), folder, **play)
    return json.loads((folder / "gate.json").read_text())


def service(rendered: dict[str, Any], name: str, host: str) -> Any:
    services: dict[str, Any] = {}
    for each, facts in rendered["services"].items():
        services[each] = gate.Service(host, redis_master="m", others=services, **facts)
    return services[name]


def test_a_host_knows_all_services_by_the_numbers_that_they_use(rendered: dict[str, Any]) -> None:
    assert rendered["host"] == "kafka-1"
    assert rendered["services"].keys() == PLAN.services.keys()
    brokers = rendered["services"]["kafka_broker"]
    assert brokers["hosts"]["kafka-2"] == PLAN.host("kafka-2").address
    assert brokers["ids"]["kafka-2"] == PLAN.host("kafka-2").index
    assert brokers["patience"] > 0
    voters = rendered["services"]["kafka_controller"]["ids"]
    assert voters["coord-1"] == CONTROLLER_ID_BASE + PLAN.host("coord-1").index


def test_each_service_with_partners_is_asked_in_one_of_two_ways() -> None:
    """The rest serve their own host only."""
    ways = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
    assert {*ways["gate_knows_partners"]} == gate.CHECKS.keys() == gate.SERVES.keys()
    assert not {*ways["gate_knows_partners"]} & {*ways["gate_asks_partners"]}
    alone = {"node_exporter", "redis_exporter", "cloudwatch_agent"}
    asked = {*ways["gate_knows_partners"], *ways["gate_asks_partners"]}
    assert load_plan("prod").services.keys() | PLAN.services.keys() == asked | alone


@pytest.mark.parametrize("name", gate.SERVES)
def test_a_service_serves_at_a_port_of_its_own(name: str) -> None:
    assert gate.SERVES[name] in PLAN.services[name].ports


# -- What is in the way

HOSTS = ["a-1", "a-2", "a-3"]
found = st.lists(st.builds(Missing, st.sampled_from([*HOSTS, None]), st.just("away")))


@given(found, st.sampled_from(HOSTS), st.sets(st.sampled_from(HOSTS)))
def test_only_the_host_itself_and_what_an_operator_knows_may_be_missing(
    missing: list[Any], host: str, accepted: set[str]
) -> None:
    left = gate.in_the_way(missing, host, accepted)
    assert {one.host for one in left} == {one.host for one in missing} - {host} - accepted


# -- What services say

UNDER = """\
Topic: events  Partition: 3  Leader: 1     Replicas: 2,1,3  Isr: 1,3  Elr:    LastKnownElr:
Topic: results Partition: 0  Leader: none  Replicas: 2,3    Isr:      Elr: 2  LastKnownElr:
"""


def test_brokers_whose_replicas_are_missing() -> None:
    assert gate.under_replicated(UNDER) == {
        2: ["events-3", "results-0"],
        3: ["results-0"],
    }
    assert gate.under_replicated("") == {}


QUORUM = """\
NodeId DirectoryId LogEndOffset Lag LastFetchTimestamp LastCaughtUpTimestamp Status
102    WvdlCBNCQI5 86413        0   1764500000100      1764500000100         Leader
101    AgMIDgEGCwI 86412        1   1764500000000      1764499999600         Follower
103    AgMIDgEGCwJ 86300        113 1764499940000      1764499940000         Follower
1      AgMIDgEGCwK 86413        0   1764500000100      1764500000100         Observer
"""


def test_a_voter_that_died_is_still_listed_but_behind() -> None:
    assert gate.behind(QUORUM) == {
        102: "leader",
        101: "",
        103: "its voter is 113 records and 60 s behind",
    }


RING = """\
Datacenter: eu
==============
Status=Up/Down
|/ State=Normal/Leaving/Joining/Moving
--  Address      Load       Tokens  Owns (effective)  Host ID  Rack
UN  {0}  1.2 MiB  16  100.0%  7c7a  a
DN  {1}  1.2 MiB  16  100.0%  8c7a  b
"""
AGREED = """\
Cluster Information:
\tName: millrace
\tSchema versions:
\t\t59adb24e-f3cd-3e02-97f0-5b395827453f: [{0}, {1}]

\t\tUNREACHABLE: [{2}]

Database versions:
\t5.0.7: [{0}:7000, {1}:7000]
"""
DIFFERENT = AGREED.replace(", {1}]", "]\n\n\t\t7b0f9c1e-0000-3e02-97f0-5b395827453f: [{1}]")


@pytest.mark.parametrize(("described", "apart"), [(AGREED, False), (DIFFERENT, True)])
def test_nodes_of_the_ring_and_their_schema(rendered, monkeypatch, described, apart) -> None:
    ring = service(rendered, "cassandra", "cassandra-1")
    addresses = [*ring.hosts.values()]
    answers = {"status": RING.format(*addresses), "describecluster": described.format(*addresses)}
    monkeypatch.setitem(gate.cassandra.__globals__, "printed", lambda _, what: answers[what])
    missing = [*gate.cassandra(ring)]
    assert missing[:2] == [Missing("cassandra-2", "DN"), Missing("cassandra-3", "not in the ring")]
    assert any("don't agree" in one.what for one in missing) is apart


def test_a_schema_in_two_versions_is_waited_for_and_keeps_no_node_from_its_restart(
    monkeypatch,
) -> None:
    """A rolling upgrade ends it; who is in the middle of one must be able to go on."""
    apart = Missing(None, "nodes don't agree on the schema", settles=True)
    ring = here("cassandra", "native", 1)
    known = gate.wrong.__globals__
    monkeypatch.setitem(known, "missing", lambda *_: [apart])
    monkeypatch.setitem(known, "serves", lambda *_: True)
    assert gate.wrong("before", "cassandra", ring, waited=0) == [apart]
    assert gate.wrong("before", "cassandra", ring, waited=gate.SETTLING_SECONDS) == []
    assert gate.wrong("after", "cassandra", ring, waited=0) == []
    assert gate.wrong("well", "cassandra", ring, waited=9999) == [apart]


@pytest.mark.parametrize(
    ("report", "takes"),
    [
        ("Written txid 603", True),
        ("Written txid 596 (7 txns/198ms behind)", True),
        ("Written txid 596 (7 txns/1198ms behind)", False),
        ("Written txid 596 (7 txns/198ms behind) (will try to re-sync on next segment)", False),
        ("Written txid 0 (never written", False),
    ],
)
def test_a_journalnode_takes_edits(report: str, takes: bool) -> None:
    line = f"Writing segment beginning at txid 589. \n198.18.1.11:8485 ({report})"
    assert gate.TAKES_EDITS.findall(line) == (["198.18.1.11"] if takes else [])


# -- Over sockets


@contextmanager
def server(answer: bytes) -> Iterator[int]:
    """Answers whoever says something, and closes; gives its port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1000)
            self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, args=(0.01,)).start()
        try:
            yield serving.server_address[1]
        finally:
            serving.shutdown()


def here(name: str, port_name: str, port: int, hosts: int = 1) -> Any:
    addresses = {f"h-{n}": f"127.0.0.{n}" for n in range(1, hosts + 1)}
    ids = {host: number for number, host in enumerate(addresses, 1)}
    return gate.Service("h-1", name, addresses, ids, {port_name: port}, 1, "mymaster", {})


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (b"Zookeeper version: 3.9\nMode: leader\n", []),
        (b"Mode: follower\n", [Missing(None, "0 hosts are leader")]),
        (
            b"This ZooKeeper instance is not currently serving requests\n",
            [
                Missing("h-1", "This ZooKeeper instance is not currently serving requests"),
                Missing(None, "0 hosts are leader"),
            ],
        ),
    ],
)
def test_zookeeper_says_its_mode(answer: bytes, missing: list[Any]) -> None:
    with server(answer) as port:
        assert gate.missing("zookeeper", here("zookeeper", "client", port)) == missing


def test_a_partner_that_does_not_answer_is_missing() -> None:
    with server(b"Mode: leader\n") as port:
        [gone] = gate.missing("zookeeper", here("zookeeper", "client", port, hosts=2))
    assert gone.host == "h-2"


def redis_here(monkeypatch, name: str, answer: str) -> list[Any]:
    monkeypatch.setitem(gate.redis.__globals__, "redis_said", lambda *_: answer)
    return [one.host for one in gate.missing(name, here(name, "client", 1, hosts=3))]


@pytest.mark.parametrize(
    ("second", "missing"),
    [("online", ["h-3"]), ("wait_bgsave", ["h-2", "h-3"])],
)
def test_redis_has_one_master_and_replicas_in_sync(monkeypatch, second, missing) -> None:
    replica = f"slave0:ip=127.0.0.2,port=6379,state={second},offset=9,lag=0"
    answer = f"# Replication\r\nrole:master\r\n{replica}\r\n"
    assert redis_here(monkeypatch, "redis", answer) == missing


def test_a_redis_whose_master_is_none_is_in_trouble(monkeypatch) -> None:
    answer = "role:slave\r\nmaster_host:127.0.0.2\r\n"
    assert redis_here(monkeypatch, "redis", answer) == [None]


@pytest.mark.parametrize(
    ("flags", "missing"),
    [("sentinel", ["h-3"]), ("s_down,sentinel,disconnected", ["h-2", "h-3"])],
)
def test_a_sentinel_knows_the_others(monkeypatch, flags: str, missing: list[str]) -> None:
    answer = f"name\na3f\nip\n127.0.0.2\nport\n26379\nrunid\n77\nflags\n{flags}\n"
    assert redis_here(monkeypatch, "redis_sentinel", answer) == missing


def test_what_does_not_serve_may_be_restarted_whoever_is_missing() -> None:
    """A wrong setting has stopped all of them: nobody could ever go on."""
    with server(b"not serving") as port:
        serving = here("zookeeper", "client", port, hosts=2)
        assert [one.host for one in gate.wrong("before", "zookeeper", serving)] == [
            "h-2",
            None,
        ]
        assert gate.wrong("after", "zookeeper", serving) != []
    assert gate.wrong("before", "zookeeper", serving) == []
    assert gate.wrong("after", "zookeeper", serving) != []


def test_a_service_without_a_check_is_asked_by_its_unit(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(gate.by_health.__globals__, "UNITS", tmp_path)
    collector = here("collector", "http", 1)
    for command, well in (("X-Health=test 1 = 1", True), ("X-Health=test 1 = 2", False)):
        (tmp_path / "collector.service").write_text(f"[Unit]\n{command}\n[Service]\n")
        assert (gate.missing("collector", collector) == []) is well


def test_a_service_without_a_command_has_to_be_active(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(gate.by_health.__globals__, "UNITS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "job_gateway.service").write_text("[Unit]\n[Service]\n")
    for code in (0, 3):
        (tmp_path / "systemctl").write_text(
            f'#!/bin/sh\n[ "$*" = "is-active job_gateway" ] && exit {code}\n'
        )
        (tmp_path / "systemctl").chmod(0o755)
        assert (gate.missing("job_gateway", here("job_gateway", "http", 1)) == []) is (code == 0)


def test_a_daemon_that_starts_does_not_know_all_of_itself_yet(monkeypatch) -> None:
    monkeypatch.setitem(gate.CHECKS, "datanode", lambda _: iter([{}["BPServiceActorInfo"]]))
    [found] = gate.missing("datanode", here("datanode", "data", 1))
    assert "isn't complete" in found.what
