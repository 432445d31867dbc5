"""The job gateway: its decisions by table and by property, then what it does with them."""

import json
import logging
import os
import threading
import zipfile
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from millrace_gateway import commands, upkeep
from millrace_gateway import settings as configuration
from millrace_gateway.daemon import Gateway
from millrace_gateway.decide import (
    Intent,
    Kill,
    Limits,
    Observation,
    Order,
    Run,
    SendOrder,
    Submission,
    Submit,
    Wait,
    decide,
)
from millrace_gateway.registry import LockLost
from millrace_gateway.settings import Cassandra, Kafka, Settings, Upkeep
from millrace_gateway.submit import Child, Deployment, NotDeployed, command
from millrace_gateway.upkeep import Record
from millrace_gateway.yarn import Unreachable, Yarn

from millrace_shared.driver_record import DriverRecord
from millrace_shared.names import ZookeeperNames
from tests.waiting import PATIENCE_SECONDS, soon

LIMITS = Limits(drivers=2, submit=120, drain=90, pause=60, settled=300, warm=900, catch_up=20)
NOW = 10_000.0
RUNNING_V2 = Intent("running", "v2")
TOLD_V2 = Order("running", "v2", NOW - 500)


def run(version: str, state: str = "RUNNING", number: int = 1, **times: float) -> Run:
    return Run(f"application_{number}", state, version, times.get("started", NOW - 500), NOW - 400)


def failed(number: int, ago: float, lasted: float = 10) -> Run:
    ended = NOW - ago
    return Run(f"application_{number}", "FAILED", "v2", ended - lasted, ended)


OPEN = Submission("v2", "edge-1", NOW - 20)
ONE, TWO = "application_1", "application_2"
PAIR = [run("v2"), run("v2", number=2)]
UPGRADE = [run("v1"), run("v2", number=2)]
TABLE = {
    "absent: submit": (Observation(NOW, RUNNING_V2), Submit("v2"), "submitting"),
    "absent and to be stopped: nothing": (
        Observation(NOW, Intent("stopped", "v2")),
        Wait(),
        "stopped",
    ),
    "submission under way: wait": (
        Observation(NOW, RUNNING_V2, submission=OPEN),
        Wait(),
        "submitting",
    ),
    "submission of a gateway that died long ago: submit": (
        Observation(NOW, RUNNING_V2, submission=replace(OPEN, started=NOW - 121)),
        Submit("v2"),
        "submitting",
    ),
    "another version's submission may still bring a driver: wait": (
        Observation(NOW, RUNNING_V2, submission=replace(OPEN, version="v1")),
        Wait(),
        "submitting",
    ),
    "one starts: submit the second": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=[run("v2", "ACCEPTED")]),
        Submit("v2"),
        "submitting",
    ),
    "one leads: submit a standby": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=[run("v2")], leading=ONE),
        Submit("v2"),
        "running",
    ),
    "one has just taken over: let it catch up": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=[run("v2")], leading=ONE, led_since=NOW - 19),
        Wait(),
        "running",
    ),
    "one has caught up: submit a standby": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=[run("v2")], leading=ONE, led_since=NOW - 20),
        Submit("v2"),
        "running",
    ),
    "one leads, a standby is being submitted: wait": (
        Observation(NOW, RUNNING_V2, TOLD_V2, OPEN, [run("v2")], leading=ONE),
        Wait(),
        "running",
    ),
    "one leads, standbys fail: back off": (
        Observation(
            NOW, RUNNING_V2, TOLD_V2, None, [run("v2")], [failed(2, 50), failed(3, 1)], leading=ONE
        ),
        Wait(),
        "running",
    ),
    "two, of which one leads: nothing": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=PAIR, leading=ONE),
        Wait(),
        "running",
    ),
    "two on one host: the standby goes, to come elsewhere": (
        Observation(
            NOW,
            RUNNING_V2,
            TOLD_V2,
            active=PAIR,
            leading=ONE,
            standbys=frozenset({TWO}),
            sharing=frozenset({TWO}),
        ),
        Kill(TWO),
        "removing",
    ),
    "two on one host, one of which has only just come there: nothing": (
        Observation(
            NOW,
            RUNNING_V2,
            TOLD_V2,
            active=[run("v2"), run("v2", number=2, started=NOW - 300)],
            leading=ONE,
            standbys=frozenset({TWO}),
            sharing=frozenset({TWO}),
        ),
        Wait(),
        "running",
    ),
    "one of two hangs before it is warm: it goes, for another to come": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=PAIR, leading=ONE, stuck=frozenset({TWO})),
        Kill(TWO),
        "removing",
    ),
    "the new version hangs before it is warm: it goes, the old one leads": (
        Observation(NOW, RUNNING_V2, active=UPGRADE, leading=ONE, stuck=frozenset({TWO})),
        Kill(TWO),
        "removing",
    ),
    "two, of which none leads yet: nothing": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=PAIR),
        Wait(),
        "starting",
    ),
    "told to stop, but wanted again: tell them to run": (
        Observation(NOW, RUNNING_V2, Order("stopped", "v2", NOW - 5), active=PAIR, leading=ONE),
        SendOrder("running", "v2"),
        "running",
    ),
    "old pair: its standby makes room": (
        Observation(NOW, RUNNING_V2, active=[run("v1"), run("v1", number=2)], leading=ONE),
        Kill(TWO),
        "removing",
    ),
    "old leader alone: submit the new version": (
        Observation(NOW, RUNNING_V2, active=[run("v1")], leading=ONE),
        Submit("v2"),
        "submitting",
    ),
    "old leader, new one starts: wait": (
        Observation(NOW, RUNNING_V2, active=UPGRADE, leading=ONE),
        Wait(),
        "handing-over",
    ),
    "old leader, new one stands by: hand over": (
        Observation(
            NOW, RUNNING_V2, TOLD_V2, active=UPGRADE, leading=ONE, standbys=frozenset({TWO})
        ),
        SendOrder("stopped", "v1"),
        "draining",
    ),
    "handing over: wait": (
        Observation(
            NOW,
            RUNNING_V2,
            Order("stopped", "v1", NOW - 30),
            active=UPGRADE,
            leading=ONE,
            standbys=frozenset({TWO}),
        ),
        Wait(),
        "draining",
    ),
    "handing over for too long: kill": (
        Observation(
            NOW,
            RUNNING_V2,
            Order("stopped", "v1", NOW - 91),
            active=UPGRADE,
            leading=ONE,
            standbys=frozenset({TWO}),
        ),
        Kill(ONE),
        "draining",
    ),
    "the old one no longer leads: it goes": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=UPGRADE, leading=TWO),
        Kill(ONE),
        "removing",
    ),
    "old version without a driver: kill": (
        Observation(NOW, RUNNING_V2, active=[run("v1", "ACCEPTED")]),
        Kill(ONE),
        "removing",
    ),
    "to be stopped: the standby first": (
        Observation(NOW, Intent("stopped", "v2"), TOLD_V2, active=PAIR, leading=ONE),
        Kill(TWO),
        "removing",
    ),
    "to be stopped: then the leader drains": (
        Observation(NOW, Intent("stopped", "v2"), TOLD_V2, active=[run("v2")], leading=ONE),
        SendOrder("stopped", "v2"),
        "draining",
    ),
    "three: the latest that doesn't lead goes": (
        Observation(
            NOW, RUNNING_V2, TOLD_V2, active=[*PAIR, run("v2", number=3)], leading="application_3"
        ),
        Kill(TWO),
        "removing",
    ),
    "ended after a long run: submit at once": (
        Observation(NOW, RUNNING_V2, ended=[failed(1, ago=0.5, lasted=301)]),
        Submit("v2"),
        "submitting",
    ),
    "failed once, 2 s ago: submit": (
        Observation(NOW, RUNNING_V2, ended=[failed(1, ago=2)]),
        Submit("v2"),
        "submitting",
    ),
    "failed three times, 2 s ago: back off": (
        Observation(NOW, RUNNING_V2, ended=[failed(1, 90), failed(2, 50), failed(3, 2)]),
        Wait(),
        "backing-off",
    ),
    "failed three times, 5 s ago: submit": (
        Observation(NOW, RUNNING_V2, ended=[failed(1, 90), failed(2, 50), failed(3, 5)]),
        Submit("v2"),
        "submitting",
    ),
    "spark-submit failed ten times: back off": (
        Observation(NOW, RUNNING_V2, submission=Submission("v2", "edge-1", NOW - 60, NOW - 59, 10)),
        Wait(),
        "backing-off",
    ),
    "another version's failures don't count": (
        Observation(NOW, Intent("running", "v3"), ended=[failed(1, 50), failed(2, 0.1)]),
        Submit("v3"),
        "submitting",
    ),
}


@pytest.mark.parametrize(("seen", "action", "phase"), TABLE.values(), ids=TABLE)
def test_decision(seen, action, phase):
    decision = decide(seen, LIMITS)
    assert (decision.action, decision.phase) == (action, phase)


def test_backing_off_says_when_it_tries_again_and_where_to_look():
    seen = Observation(NOW, RUNNING_V2, ended=[failed(1, 50), failed(2, 1)])
    decision = decide(seen, LIMITS)
    assert decision.detail == (
        "version v2, failure 2, again at 02:46:41 UTC: "
        "application_2 ended FAILED; yarn logs -applicationId application_2"
    )
    assert decision.run == "application_2"


def test_what_a_decision_says_stays_the_same_while_the_situation_does():
    seen = Observation(NOW, RUNNING_V2, ended=[failed(1, 90), failed(2, 50), failed(3, 0)])
    said = {decide(replace(seen, now=NOW + second), LIMITS).detail for second in range(4)}
    assert len(said) == 1


# --- properties ---------------------------------------------------------------------------------

versions = st.sampled_from(["v1", "v2"])
moments = st.floats(min_value=NOW - 1000, max_value=NOW)
intents = st.builds(Intent, st.sampled_from(["running", "stopped"]), versions)
orders = st.builds(Order, st.sampled_from(["running", "stopped"]), versions, moments)
submissions = st.builds(
    Submission,
    version=versions,
    gateway=st.just("edge-1"),
    started=moments,
    ended=st.none() | moments,
    failures=st.integers(0, 40),
)
active_runs = st.builds(
    Run,
    id=st.uuids().map(str),
    state=st.sampled_from(["NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING"]),
    version=versions,
    started=moments,
)
ended_runs = st.builds(
    Run, st.uuids().map(str), st.sampled_from(["FAILED", "KILLED"]), versions, moments, moments
)


@st.composite
def situations(draw):
    active = draw(st.lists(active_runs, max_size=4))
    drivers = [r.id for r in active if r.state == "RUNNING"]
    leading = draw(st.sampled_from(["", *drivers]))
    ready = draw(st.sets(st.sampled_from(drivers))) if drivers else set()
    stuck = draw(st.sets(st.sampled_from(drivers))) if drivers else set()
    return Observation(
        NOW,
        draw(intents),
        draw(st.none() | orders),
        draw(st.none() | submissions),
        active,
        draw(st.lists(ended_runs, max_size=30)),
        leading,
        frozenset(ready - {leading}),
        stuck=frozenset(stuck - ready),
    )


@examples(deadline=None)
@given(situations())
def test_never_submits_more_than_are_wanted_or_beside_one_that_may_still_come(seen):
    if isinstance(decide(seen, LIMITS).action, Submit):
        assert len(seen.active) < LIMITS.drivers
        assert seen.intent.state == "running"
        last = seen.submission
        assert last is None or last.ended is not None or NOW - last.started > LIMITS.submit


@examples(deadline=None)
@given(situations())
def test_who_leads_is_only_killed_when_it_was_told_to_stop_and_hangs(seen):
    action = decide(seen, LIMITS).action
    if isinstance(action, Kill) and action.run == seen.leading:
        version = next(r.version for r in seen.active if r.id == seen.leading)
        assert (seen.order.state, seen.order.version) == ("stopped", version)
        assert NOW - seen.order.since > LIMITS.drain


@examples(deadline=None)
@given(situations())
def test_who_leads_is_only_told_to_stop_when_another_is_ready_or_all_are_to_stop(seen):
    action = decide(seen, LIMITS).action
    if (
        isinstance(action, SendOrder)
        and action.state == "stopped"
        and seen.intent.state == "running"
    ):
        ready = [r for r in seen.active if r.id in seen.standbys]
        assert seen.intent.version in {r.version for r in ready}


@examples(deadline=None)
@given(situations())
def test_submits_at_the_latest_after_the_longest_wait_when_nothing_is_there(seen):
    later = replace(
        seen,
        now=NOW + LIMITS.submit + LIMITS.pause + 1,
        active=[],
        leading="",
        standbys=frozenset(),
    )
    expected = Submit if seen.intent.state == "running" else Wait
    assert isinstance(decide(later, LIMITS).action, expected)


@dataclass
class World:
    """ZooKeeper, YARN, drivers and a gateway, as far as a decision can tell."""

    now: float = NOW
    intent: Intent = RUNNING_V2
    order: Order | None = None
    submission: Submission | None = None
    in_flight: str = ""  # version of the spark-submit that is under way
    active: list[Run] = field(default_factory=list)
    ended: list[Run] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)  # in line for the lease; the first one leads
    submitted: int = 0

    @property
    def leader(self) -> Run | None:
        return next((r for r in self.active if self.ready and r.id == self.ready[0]), None)

    def look(self) -> None:
        """One turn of the gateway."""
        leading = self.ready[0] if self.ready else ""
        seen = Observation(
            self.now,
            self.intent,
            self.order,
            self.submission,
            self.active,
            self.ended,
            leading,
            frozenset(self.ready[1:]),
        )
        match decide(seen, LIMITS).action:
            case Submit(version):
                assert not self.in_flight
                self.order = Order("running", version, self.now)
                self.submission = Submission(version, "edge-1", self.now)
                self.in_flight = version
            case SendOrder(state, version):
                self.order = Order(state, version, self.now)
            case Kill(killed):
                self._end(killed, "KILLED")

    def arrive(self) -> None:
        """spark-submit is through, and its gateway lives to write that down."""
        if self.in_flight:
            self._accept()
            self.submission = replace(self.submission, ended=self.now)

    def arrive_orphaned(self) -> None:
        """spark-submit is through, but its gateway has died."""
        if self.in_flight:
            self._accept()

    def vanish(self) -> None:
        """The gateway dies, and its spark-submit with it, before YARN hears of anything."""
        self.in_flight = ""

    def warm_up(self) -> None:
        """A driver gets in line."""
        waiting = [r.id for r in self.active if r.id not in self.ready]
        self.ready += waiting[:1]

    def crash(self) -> None:
        if self.active:
            self._end(self.active[0].id, "FAILED")

    def obey(self) -> None:
        """Only who leads reads orders."""
        leader = self.leader
        if leader and self.order == replace(self.order, state="stopped", version=leader.version):
            self._end(leader.id, "FINISHED")

    def deploy(self, version: str) -> None:
        self.intent = Intent("running", version)

    def stop(self) -> None:
        self.intent = replace(self.intent, state="stopped")

    def _accept(self) -> None:
        self.submitted += 1
        run_id = f"application_{self.submitted}"
        self.active.append(Run(run_id, "RUNNING", self.in_flight, self.now))
        self.in_flight = ""

    def _end(self, run_id: str, state: str) -> None:
        ended = next(r for r in self.active if r.id == run_id)
        self.active.remove(ended)
        self.ready = [r for r in self.ready if r != run_id]
        self.ended.append(replace(ended, state=state, finished=self.now))


steps = st.sampled_from(
    [
        *[lambda w: w.look()] * 4,
        lambda w: w.arrive(),
        lambda w: w.arrive_orphaned(),
        lambda w: w.vanish(),
        *[lambda w: w.warm_up()] * 2,
        lambda w: w.crash(),
        lambda w: w.obey(),
        lambda w: w.deploy("v1"),
        lambda w: w.deploy("v2"),
        lambda w: w.stop(),
    ]
)


def settle(world: World, rounds: int = 150) -> None:
    for _ in range(rounds):
        world.look()
        world.arrive()
        world.warm_up()
        world.obey()
        world.now += 3


@examples(deadline=None)
@given(st.lists(st.tuples(steps, st.floats(0.1, 20)), max_size=60))
def test_whatever_happens_there_are_never_three_and_in_the_end_there_is_the_right_pair(story):
    world = World()
    for step, seconds in story:
        step(world)
        assert len(world.active) + bool(world.in_flight) <= LIMITS.drivers
        world.now += seconds
        if world.in_flight and world.now - world.submission.started > LIMITS.submit:
            world.vanish()  # its gateway kills it, and a dead gateway's children are dead
    world.deploy("v2")
    settle(world)
    assert [r.version for r in world.active] == ["v2", "v2"]
    assert len(world.ready) == 2


def test_an_upgrade_and_its_back_out_leave_no_moment_without_a_ready_driver():
    world = World()
    settle(world, 10)
    for version in ("v3", "v2"):
        world.deploy(version)
        for _ in range(40):
            world.look()
            world.arrive()
            world.warm_up()
            world.obey()
            world.now += 3
            assert world.ready
        assert {r.version for r in world.active} == {version}


# --- the gateway around the decision --------------------------------------------------------------


class Registry:
    """In memory what `LeaderRegistry` keeps in ZooKeeper."""

    def __init__(self, intent: Intent) -> None:
        self.leads = True
        self.intents = {"insights": intent}
        self.orders: dict[str, Order] = {}
        self.submissions: dict[str, Submission] = {}
        self.statuses: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []  # by the drivers
        self.record: Record | None = None

    def upkeep(self) -> Record | None:
        return self.record

    def put_upkeep(self, record: Record) -> None:
        self.record = record

    def drivers(self, _: str) -> list[DriverRecord]:
        return [DriverRecord.read({"host": "", "since": 0} | driver) for driver in self.told]

    def holds_lock(self) -> bool:
        return self.leads

    def applications(self) -> list[str]:
        return list(self.intents)

    def intent(self, application: str) -> Intent | None:
        return self.intents.get(application)

    def order(self, application: str) -> Order | None:
        return self.orders.get(application)

    def submission(self, application: str) -> Submission | None:
        return self.submissions.get(application)

    def put_order(self, application: str, order: Order) -> None:
        self.orders[application] = order

    def put_submission(self, application: str, submission: Submission) -> None:
        self.submissions[application] = submission

    def put_status(self, application: str, status: dict[str, Any]) -> None:
        self.statuses.append(status)


class Cluster:
    """In memory what `Yarn` asks the ResourceManager."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.killed: list[str] = []
        self.away = False
        self.workers = 3

    def kill(self, run: str) -> None:
        self.killed.append(run)

    def active(self, _: str) -> list[Run]:
        if self.away:
            raise Unreachable("no active ResourceManager among master-1:8088, master-2:8088")
        return self.runs

    def ended(self, _: str) -> list[Run]:
        return []

    def hosts(self) -> int:
        return self.workers


@pytest.fixture
def deployments(tmp_path: Path) -> Path:
    """A deployed v2 of `insights`."""
    folder = tmp_path / "insights-v2"
    folder.mkdir()
    (folder / "insights.json").write_text("{}")
    with zipfile.ZipFile(folder / "millrace_jobs.zip", "w") as package:
        package.writestr("millrace_jobs/main.py", "")
    return tmp_path


@pytest.fixture
def settings(tmp_path: Path, deployments: Path) -> Settings:
    return Settings(
        name="edge-1",
        zookeeper="",
        znodes=ZookeeperNames("/gateway/lock", "/applications", "/jobs", "/upkeep"),
        cassandra=Cassandra([], 9042, "dc", "keyspace"),
        kafka=Kafka("", "group-"),
        metrics_port=0,
        resourcemanagers=[],
        user="millrace",
        spark_submit=spark_submit(tmp_path, "exit 0"),
        deployments=deployments,
        logs=tmp_path,
        drivers=2,
        poll_seconds=1,
        session_seconds=10,
        request_timeout_seconds=PATIENCE_SECONDS,
        submit_timeout_seconds=PATIENCE_SECONDS,
        drain_timeout_seconds=90,
        pause_max_seconds=60,
        settled_seconds=300,
        warm_timeout_seconds=900,
        deploy_timeout_seconds=480,
        catch_up_seconds=20,
        upkeep=Upkeep(
            hour_utc=3,
            overdue_hours=50,
            timeout_seconds=PATIENCE_SECONDS,
            heap_mb=512,
            memory_mb=900,
            cores=1,
            left_days=7,
            application_logs="/logs",
        ),
    )


def spark_submit(folder: Path, script: str) -> Path:
    path = folder / "spark-submit"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def until_reaped(gateway: Gateway, registry: Registry) -> Submission:
    """Turns the gateway until its spark-submit has ended."""

    def ended() -> bool:
        gateway.turn()
        return registry.submissions["insights"].ended is not None

    soon(ended, "spark-submit has ended")
    return registry.submissions["insights"]


def test_a_submission_is_written_down_and_done_once(settings, tmp_path):
    registry, cluster = Registry(RUNNING_V2), Cluster()
    calls = tmp_path / "calls"
    goes_on = tmp_path / "goes-on"
    script = f"echo $* >> {calls}; until [ -e {goes_on} ]; do sleep 0.01; done"
    recording = spark_submit(tmp_path, script)
    gateway = Gateway(replace(settings, spark_submit=recording), registry, cluster)
    gateway.turn()
    assert registry.orders["insights"].state == "running"
    assert registry.submissions["insights"].gateway == "edge-1"
    soon(calls.exists, "it was called")
    gateway.turn()
    goes_on.touch()
    cluster.runs = PAIR
    assert until_reaped(gateway, registry).failures == 0
    assert calls.read_text().count("\n") == 1


def test_a_failing_spark_submit_is_told_and_counted(settings, tmp_path):
    registry = Registry(RUNNING_V2)
    failing = spark_submit(tmp_path, "echo java.io.IOException: no space; exit 1")
    gateway = Gateway(replace(settings, spark_submit=failing), registry, Cluster())
    gateway.turn()
    last = until_reaped(gateway, registry)
    assert last.failures == 1
    assert last.error.startswith("java.io.IOException: no space")
    gateway.turn()
    assert registry.statuses[-1]["phase"] == "backing-off"


def test_a_version_that_this_host_lacks_is_a_failure_that_names_the_file(settings):
    registry = Registry(Intent("running", "v9"))
    Gateway(settings, registry, Cluster()).turn()
    error = registry.submissions["insights"].error
    assert "insights-v9/millrace_jobs.zip is missing" in error
    assert "deploy-jobs.yml" in error


def test_one_log_line_and_one_status_for_each_change(settings, caplog):
    registry, cluster = Registry(RUNNING_V2), Cluster()
    registry.orders["insights"] = TOLD_V2
    cluster.runs = PAIR
    registry.told = [
        {"run": ONE, "host": "worker-1", "state": "leading", "since": NOW},
        {"run": TWO, "host": "worker-2", "state": "standby", "since": NOW},
    ]
    gateway = Gateway(settings, registry, cluster)
    with caplog.at_level(logging.INFO, "gateway"):
        for away in (False, False, True, True, False):
            cluster.away = away
            gateway.turn()
    assert [status["phase"] for status in registry.statuses] == ["running", "unknown", "running"]
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("one", "two", "killed"),
    [("draining", "standby", []), ("draining", "leading", [ONE]), ("leading", "leading", [ONE])],
)
def test_who_finishes_its_last_batches_is_not_killed_meanwhile(settings, one, two, killed):
    registry, cluster = Registry(RUNNING_V2), Cluster()
    registry.orders["insights"] = Order("stopped", "v1", NOW)
    cluster.runs = UPGRADE
    registry.told = [
        {"run": ONE, "host": "worker-1", "state": one, "since": NOW},
        {"run": TWO, "host": "worker-2", "state": two, "since": NOW + 1},
    ]
    Gateway(settings, registry, cluster, clock=lambda: NOW + 2).turn()
    assert cluster.killed == killed


@pytest.mark.parametrize(
    ("state", "host", "workers", "killed"),
    [
        ("standby", "worker-1", 3, [TWO]),
        ("standby", "worker-1", 1, []),
        ("standby", "worker-2", 3, []),
        ("warming", "worker-1", 3, [TWO]),  # to warm up first takes minutes
        ("draining", "worker-1", 3, []),
    ],
)
def test_who_is_to_stand_by_on_the_leaders_host_goes_if_there_is_another(
    settings, state, host, workers, killed
):
    registry, cluster = Registry(RUNNING_V2), Cluster()
    registry.orders["insights"] = TOLD_V2
    cluster.runs, cluster.workers = PAIR, workers
    registry.told = [
        {"run": ONE, "host": "worker-1", "state": "leading", "since": NOW},
        {"run": TWO, "host": host, "state": state, "since": NOW},
    ]
    Gateway(settings, registry, cluster, clock=lambda: NOW).turn()
    assert cluster.killed == killed


@pytest.mark.parametrize(
    ("state", "seconds", "killed"),
    [("warming", 901, [TWO]), ("warming", 899, []), ("standby", 10**6, [])],
)
def test_who_never_gets_warm_goes(settings, state, seconds, killed):
    registry, cluster = Registry(RUNNING_V2), Cluster()
    registry.orders["insights"] = TOLD_V2
    cluster.runs = PAIR
    registry.told = [
        {"run": ONE, "host": "worker-1", "state": "leading", "since": NOW - 10**6},
        {"run": TWO, "host": "worker-2", "state": state, "since": NOW - seconds},
    ]
    Gateway(settings, registry, cluster, clock=lambda: NOW).turn()
    assert cluster.killed == killed


def test_a_gateway_without_the_lock_does_nothing(settings):
    registry = Registry(RUNNING_V2)
    registry.leads = False
    with pytest.raises(LockLost):
        Gateway(settings, registry, Cluster()).turn()
    assert not registry.submissions


def test_what_a_restarted_gateway_had_begun_is_over(settings):
    registry = Registry(RUNNING_V2)
    registry.submissions["insights"] = Submission("v2", "edge-1", NOW)
    Gateway(settings, registry, Cluster(), clock=lambda: NOW).take_over()
    assert registry.submissions["insights"].ended is not None


def test_what_another_gateway_has_begun_may_still_arrive(settings):
    registry = Registry(RUNNING_V2)
    begun = registry.submissions["insights"] = Submission("v2", "edge-2", NOW)
    gateway = Gateway(settings, registry, Cluster(), clock=lambda: NOW)
    gateway.take_over()
    gateway.turn()
    assert registry.submissions["insights"] == begun


def test_a_gateway_that_leaves_takes_its_spark_submit_with_it(settings, tmp_path):
    registry = Registry(RUNNING_V2)
    child = tmp_path / "child"
    hanging = spark_submit(tmp_path, f"echo $$ > {child}; exec sleep 3600")
    gateway = Gateway(replace(settings, spark_submit=hanging), registry, Cluster())
    gateway.turn()
    soon(lambda: child.exists() and child.read_text(), "it has begun")
    gateway.leave()
    assert registry.submissions["insights"].ended is not None
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)


# --- spark-submit -------------------------------------------------------------------------------


def test_command_names_application_version_package_and_config():
    words = command(
        Path("/opt/spark-submit"), Deployment("insights", "v2", Path("/d")), Path("/tmp/main.py")
    )
    line = " ".join(words)
    assert "--deploy-mode cluster --name insights" in line
    assert "spark.yarn.tags=millrace:insights,version:v2" in line
    assert "spark.yarn.submit.waitAppCompletion=false" in line
    assert "--py-files /d/millrace_jobs.zip --files /d/insights.json" in line
    assert words[-3:] == ["/tmp/main.py", "--config", "insights.json"]


def test_a_spark_submit_that_hangs_is_killed(tmp_path, deployments):
    hanging = spark_submit(tmp_path, "exec sleep 3600")
    deployed = Deployment("insights", "v2", deployments / "insights-v2")
    child = Child(hanging, deployed, tmp_path / "log", timeout=0)
    assert child.ended()
    assert child.error().startswith("spark-submit was killed")


def test_a_deployment_lacking_a_file_is_refused_by_name(tmp_path):
    with pytest.raises(NotDeployed, match=r"millrace_jobs\.zip is missing"):
        Deployment("insights", "v2", tmp_path).check()


def test_a_deployment_waits_for_no_disabled_job(settings, deployments, monkeypatch, capsys):
    config = deployments / "insights-v2" / "insights.json"
    config.write_text(json.dumps({"jobs": ["archive", "traffic"]}))
    asked = []

    def progress(_, jobs, version):
        asked.append((jobs, version))
        return nullcontext(SimpleNamespace(missing=lambda: []))

    monkeypatch.setattr(commands, "JobActivity", progress)
    registry = SimpleNamespace(
        is_disabled=lambda job: job == "archive",
        status=lambda application: {"version": "v2", "phase": "running"},
    )
    wanted = SimpleNamespace(application="insights", version="v2", timeout=0)
    commands._wait(registry, settings, wanted)
    assert asked == [(["traffic"], "v2")]
    assert capsys.readouterr().out == "insights: v2 runs without archive, disabled\n"


# --- YARN ---------------------------------------------------------------------------------------


class ResourceManager(BaseHTTPRequestHandler):
    """Answers as its server's ``role`` says."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.role == "standby":
            self.send_response(307)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()
            self.wfile.write(b"This is standby RM.")
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.answer).encode())

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.killed.append((self.path, json.loads(content)))
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def resourcemanagers():
    servers = []
    for role in ("standby", "active"):
        server = HTTPServer(("127.0.0.1", 0), ResourceManager)
        server.role, server.asked, server.killed, server.answer = role, [], [], {"apps": None}
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()


def yarn(servers: list[HTTPServer]) -> Yarn:
    addresses = ["127.0.0.1:1", *(f"127.0.0.1:{server.server_port}" for server in servers)]
    return Yarn(addresses, "millrace", timeout=PATIENCE_SECONDS)


def app(number: int, started: int) -> dict[str, Any]:
    return {
        "id": f"application_{number}",
        "state": "RUNNING",
        "applicationTags": "millrace:insights,version:v2",
        "startedTime": started,
        "finishedTime": 0,
        "runningContainers": 3,
    }


def test_hosts_are_those_that_can_be_given_containers(resourcemanagers):
    resourcemanagers[1].answer = {"clusterMetrics": {"activeNodes": 2, "lostNodes": 1}}
    assert yarn(resourcemanagers).hosts() == 2


def test_the_active_resourcemanager_is_found_beside_a_dead_one_and_a_standby(resourcemanagers):
    standby, active = resourcemanagers
    active.answer = {"apps": {"app": [app(2, 2000), app(1, 1000)]}}
    client = yarn(resourcemanagers)
    assert client.active("insights") == [
        Run("application_1", "RUNNING", "v2", 1.0, containers=3),
        Run("application_2", "RUNNING", "v2", 2.0, containers=3),
    ]
    client.active("insights")
    assert len(standby.asked) == 1, "it is remembered which one is active"


def test_nothing_runs(resourcemanagers):
    assert yarn(resourcemanagers).active("insights") == []


def test_no_active_resourcemanager_is_not_mistaken_for_nothing_runs(resourcemanagers):
    resourcemanagers[1].role = "standby"
    with pytest.raises(Unreachable, match="no active ResourceManager among"):
        yarn(resourcemanagers).active("insights")


def test_kill(resourcemanagers):
    yarn(resourcemanagers).kill("application_1")
    path, content = resourcemanagers[1].killed[0]
    assert path.startswith("/ws/v1/cluster/apps/application_1/state")
    assert content == {"state": "KILLED"}


def test_whatever_runs_is_told_by_its_id(resourcemanagers):
    resourcemanagers[1].answer = {"apps": {"app": [app(2, 2000) | {"applicationTags": ""}]}}
    assert yarn(resourcemanagers).running() == ["application_2"]


# --- upkeep -------------------------------------------------------------------------------------

HOUR = 3600.0
MIDNIGHT = 20_000 * 24 * HOUR


@given(st.floats(0, 1e9), st.lists(st.floats(1, 1e5), max_size=50), st.integers(0, 23))
def test_an_upkeep_is_due_once_a_day_however_often_somebody_looks(start, pauses, hour):
    done, now, nights = start, start, 0
    for pause in pauses:
        now += pause
        if upkeep.is_due(done, now, hour):
            done, nights = now, nights + 1
    days = (now - start) / 86_400
    assert nights <= days + 1
    assert not upkeep.is_due(done, now, hour)
    assert upkeep.is_due(done, done + 86_400, hour)


def test_a_look_at_night_does_it_once(settings):
    registry, done = Registry(RUNNING_V2), []

    def look(hours: float) -> str:
        clock = lambda: MIDNIGHT + hours * HOUR  # noqa: E731
        return upkeep.look(registry, settings, lambda what: done.append(what.version), clock)

    assert look(1) == "looked for the first time: nothing is due yet"
    assert look(2.5) == "done already"
    assert look(3.5) == "done"
    assert look(4.5) == "done already"
    assert done == ["v2"]
    assert registry.record == Record(MIDNIGHT + 3.5 * HOUR, "edge-1")
    registry.record = upkeep.due(registry.record, MIDNIGHT + 5 * HOUR)
    assert look(5) == "done"
    assert look(26) == "done already"
    assert look(27) == "done"


def test_one_that_fails_is_told_and_done_by_the_next_look(settings):
    registry = Registry(RUNNING_V2)
    registry.record = Record(MIDNIGHT - HOUR, "edge-2")

    def unreachable(_: Deployment) -> None:
        raise Unreachable("no active ResourceManager")

    clock = lambda: MIDNIGHT + 4 * HOUR  # noqa: E731
    with pytest.raises(upkeep.Failed, match="no active ResourceManager"):
        upkeep.look(registry, settings, unreachable, clock)
    failed = Record(MIDNIGHT - HOUR, "edge-1", "no active ResourceManager")
    assert registry.record == failed
    assert upkeep.look(registry, settings, lambda _: None, clock) == "done"
    assert registry.record.error == ""


def deployed_upkeep(deployments: Path, code: str) -> Deployment:
    with zipfile.ZipFile(deployments / "insights-v2" / "millrace_jobs.zip", "w") as package:
        package.writestr("millrace_jobs/__init__.py", "")
        package.writestr("millrace_jobs/upkeep.py", code)
    return Deployment("insights", "v2", deployments / "insights-v2")


def test_the_versions_own_code_does_it_with_a_spark_of_its_own(settings, deployments, tmp_path):
    code = "import os, sys; print(*sys.argv[1:], os.environ['PYSPARK_SUBMIT_ARGS'])"
    upkeep.cut_back(deployed_upkeep(deployments, code), settings, [ONE, TWO])
    told = (tmp_path / "upkeep-insights.log").read_text()
    assert f"--logs /logs --left-days 7 --running {ONE} {TWO} --master local[1]" in told
    assert "spark.driver.memory=512m" in told
    assert "spark.ui.enabled=false" in told  # or it listens where no plan says


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise OSError('no space')", "OSError: no space"),
        ("import time; time.sleep(3600)", "not done"),
    ],
)
def test_one_that_fails_or_hangs_says_why_and_where_to_read_more(settings, deployments, code, told):
    hangs = "sleep" in code
    patience = replace(settings.upkeep, timeout_seconds=1 if hangs else PATIENCE_SECONDS)
    brief = replace(settings, upkeep=patience)
    with pytest.raises(upkeep.Failed, match=rf"{told}.*upkeep-insights\.log"):
        upkeep.cut_back(deployed_upkeep(deployments, code), brief, [])


# --- settings -----------------------------------------------------------------------------------


def test_settings_are_read_as_they_were_written(tmp_path, settings):
    file = tmp_path / "gateway.json"
    file.write_text(json.dumps(asdict(settings), default=str))
    assert configuration.load(file) == settings
