"""The verdict on every state a cluster may be in."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.cluster.prometheus import Alert
from millrace.cluster.services import Application, NameNode, Redis, ResourceManager
from millrace.common.console import Console
from millrace.common.exits import Exit
from millrace.config.alerts import load_alerts
from millrace.drill.runbook import load_runbooks
from millrace.plan import CONTROLLER_ID_BASE, load_plan
from millrace.status import health
from millrace.status.render import render
from millrace.status.ring import states
from millrace.status.snapshot import (
    Backlog,
    Controller,
    Coordination,
    Event,
    Fault,
    HostFacts,
    Kafka,
    Lag,
    Monitor,
    Progress,
    Silence,
    Snapshot,
    Unit,
    Upkeep,
)
from millrace.status.verdict import ALERTS, DOWN, HEALTHY, STATES, UNKNOWN, age, judge, moment
from millrace_shared.driver_record import DriverRecord

PLAN = load_plan("local")
NOW = 1_800_000_060.0
# Of a snapshot: what is by host, and what is one answer.
BY_HOST = (
    *("hosts", "zookeeper", "controllers", "redis", "sentinels", "namenodes"),
    *("resourcemanagers", "apis", "collectors", "monitors", "alertmanagers"),
)
SINGLE = ("kafka", "ring", "coordination", "progress", "events")


def healthy() -> Snapshot:
    """Of a cluster where all is well."""

    def of(service: str, first: Any, other: Any) -> dict[str, Any]:
        return {h.name: first if h.index == 1 else other for h in PLAN.hosts_of(service)}

    apps = tuple(Application("application_1_1", name, "RUNNING", 61) for name in PLAN.applications)
    pair = [
        DriverRecord("application_1_1", host, state, since=0.0, rehearsed_at=NOW - 60)
        for state, host in (("leading", "worker-1"), ("standby", "worker-2"))
    ]
    drivers = dict.fromkeys(PLAN.applications, pair)
    units = {host.name: dict.fromkeys(host.services, Unit(True, 0)) for host in PLAN.hosts}
    return Snapshot(
        at=NOW,
        hosts={name: HostFacts(made, {}, 2**28) for name, made in units.items()},
        zookeeper=of("zookeeper", "leader", "follower"),
        controllers=dict.fromkeys(
            (host.name for host in PLAN.hosts_of("kafka_controller")),
            Controller(CONTROLLER_ID_BASE + 1, 7),
        ),
        redis=of("redis", Redis("master"), Redis("replica")),
        sentinels=of("redis_sentinel", True, True),
        namenodes=of("namenode", NameNode("active", 3, 0), NameNode("standby", 3, 0)),
        resourcemanagers=of(
            "resourcemanager", ResourceManager("active", apps), ResourceManager("standby")
        ),
        apis=of("insight_api", True, True),
        collectors=of("collector", True, True),
        monitors=of("prometheus_server", Monitor(80, 0), Monitor(80, 0)),
        alertmanagers=of("alertmanager", 2, 2),
        kafka=Kafka(brokers=3, partitions=12, under_replicated=0, leaderless=0),
        ring={host.address: "UN" for host in PLAN.hosts_of("cassandra")},
        coordination=Coordination(drivers, frozenset(), Upkeep(NOW - 5 * 3600, "edge-1")),
        lags={job: Lag(0, 0) for job in PLAN.jobs},
        events=(),
    )


def on(snapshot: Snapshot, part: str, name: str, reply: Any) -> Snapshot:
    """With another reply of one host, or one job."""
    return replace(snapshot, **{part: {**getattr(snapshot, part), name: reply}})


def stopped(snapshot: Snapshot, host: str, service: str) -> Snapshot:
    facts = snapshot.hosts[host]
    assert isinstance(facts, HostFacts)
    return on(
        snapshot, "hosts", host, replace(facts, units={**facts.units, service: Unit(False, 0)})
    )


def with_drivers(snapshot: Snapshot, *drivers: DriverRecord) -> Snapshot:
    """The one application's."""
    [application] = PLAN.applications
    assert isinstance(snapshot.coordination, Coordination)
    known = replace(snapshot.coordination, drivers={application: drivers})
    return replace(snapshot, coordination=known)


def drivers_of(snapshot: Snapshot) -> Sequence[DriverRecord]:
    assert isinstance(snapshot.coordination, Coordination)
    [drivers] = snapshot.coordination.drivers.values()
    return drivers


def verdict(snapshot: Snapshot, name: str):
    return next(c for c in judge(PLAN, snapshot).components if c.name == name)


def test_a_healthy_cluster_is_healthy():
    status = judge(PLAN, healthy())
    assert status.state == "healthy"
    assert [c for c in status.components if c.problems or c.unanswered] == []
    assert status.resident == len(PLAN.hosts) * 2**28


@pytest.mark.parametrize(
    ("snapshot", "code"),
    [
        (healthy(), Exit.OK),
        (on(healthy(), "apis", "edge-1", Fault("refused")), Exit.UNHEALTHY),
        (on(healthy(), "zookeeper", "coord-1", "follower"), Exit.UNHEALTHY),
        (on(healthy(), "apis", "edge-1", Silence("no answer")), Exit.UNREACHABLE),
        (replace(healthy(), hosts=dict.fromkeys(healthy().hosts, Fault("x"))), Exit.UNREACHABLE),
    ],
    ids=["healthy", "degraded", "down", "unknown", "no host answers"],
)
def test_a_script_can_tell_ill_from_silent(snapshot: Snapshot, code: Exit) -> None:
    assert judge(PLAN, snapshot).exit == code


@pytest.mark.parametrize(
    ("part", "host", "reply", "component", "state"),
    [
        ("zookeeper", "coord-1", "follower", "ZooKeeper", "down"),
        ("zookeeper", "coord-2", "leader", "ZooKeeper", "down"),
        ("zookeeper", "coord-2", Fault("no quorum"), "ZooKeeper", "degraded"),
        ("controllers", "coord-3", Fault("x"), "Kafka controllers", "degraded"),
        ("controllers", "coord-3", Controller(-1, 8), "Kafka controllers", "down"),
        ("controllers", "coord-3", Controller(103, 6), "Kafka controllers", "healthy"),
        ("namenodes", "master-1", NameNode("standby", 3, 0), "HDFS", "down"),
        ("namenodes", "master-2", Fault("refused"), "HDFS", "degraded"),
        ("namenodes", "master-1", NameNode("active", 3, 2), "HDFS", "down"),
        ("resourcemanagers", "master-2", ResourceManager("active"), "YARN", "down"),
        ("redis", "redis-2", Redis("master"), "Redis", "down"),
        ("redis", "redis-2", Redis("replica", is_linked=False), "Redis", "degraded"),
        ("sentinels", "coord-1", False, "Redis", "degraded"),
        ("apis", "edge-1", Fault("503"), "Insight API", "degraded"),
        ("collectors", "edge-2", Fault("refused"), "Collector", "degraded"),
        ("monitors", "edge-2", Fault("refused"), "Monitoring", "degraded"),
        ("alertmanagers", "edge-2", 1, "Monitoring", "degraded"),
    ],
)
def test_a_sick_service_shows(part, host, reply, component, state):
    snapshot = on(healthy(), part, host, reply)
    assert verdict(snapshot, component).state == state
    assert judge(PLAN, snapshot).state == state


@pytest.mark.parametrize(
    ("host", "service", "component"),
    [
        ("worker-1", "datanode", "DataNodes"),
        ("kafka-3", "node_exporter", "Monitoring"),
        ("kafka-3", "kafka_broker", "Kafka brokers"),
        ("worker-2", "nodemanager", "NodeManagers"),
    ],
)
def test_a_unit_that_is_stopped_shows(host, service, component):
    found = verdict(stopped(healthy(), host, service), component)
    assert found.state == "degraded"
    assert found.problems == [f"{host}: {PLAN.services[service].unit} is not active"]


def test_a_service_that_doesnt_answer_is_lost_with_its_unit():
    snapshot = on(healthy(), "zookeeper", "coord-2", Silence("coord-2 gave no answer in 9 s"))
    found = verdict(stopped(snapshot, "coord-2", "zookeeper"), "ZooKeeper")
    assert (found.state, found.problems) == ("degraded", ["coord-2: zookeeper is not active"])


# --- What nobody answers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "host", "component"),
    [
        ("zookeeper", "coord-1", "ZooKeeper"),  # the leader
        ("zookeeper", "coord-2", "ZooKeeper"),
        ("namenodes", "master-1", "HDFS"),
        ("redis", "redis-1", "Redis"),
        ("apis", "edge-1", "Insight API"),
        ("hosts", "worker-1", "DataNodes"),
        ("monitors", "edge-1", "Monitoring"),
    ],
)
def test_what_doesnt_answer_in_time_is_unknown_and_says_who(part, host, component):
    why = f"{host}: it gave no answer in 9 s"
    found = verdict(on(healthy(), part, host, Silence(why)), component)
    assert (found.state, found.problems, found.unanswered) == ("unknown", [], [why])


def test_a_cluster_too_busy_to_answer_anything_is_unknown():
    status = judge(PLAN, silenced(healthy(), places()))
    assert status.state == "unknown"
    assert {c.state for c in status.components} == {"unknown"}
    assert {host.state for host in status.hosts.values()} == {"unknown"}
    assert "✖" not in shown(status)
    assert "unreachable" not in shown(status)


def test_a_host_without_a_word_takes_nothing_from_services_that_answer():
    """Its units are unknown, and with them what only they say."""
    snapshot = on(healthy(), "hosts", "coord-1", Silence("coord-1 by SSH gave no answer"))
    assert verdict(snapshot, "ZooKeeper").state == "healthy"
    assert verdict(snapshot, "JournalNodes").state == "unknown"


def test_a_service_that_answers_is_there_whatever_its_host_says():
    refuses = Fault("coord-1 by SSH: Connection refused")
    snapshot = on(healthy(), "hosts", "coord-1", refuses)
    assert verdict(snapshot, "ZooKeeper").state == "healthy"
    assert verdict(snapshot, "JournalNodes").problems == [refuses.why]


def test_what_is_known_to_be_down_is_down_whatever_else_is_silent():
    snapshot = on(healthy(), "zookeeper", "coord-1", Silence("coord-1 gave no answer"))
    for host in ("coord-2", "coord-3"):
        snapshot = on(snapshot, "zookeeper", host, Fault(f"{host}: it serves nobody"))
    assert verdict(snapshot, "ZooKeeper").state == "down"


def test_kafka_without_an_answer_is_down_only_if_most_brokers_are():
    snapshot = replace(healthy(), kafka=Silence("Kafka gave no answer in 9 s"))
    assert verdict(snapshot, "Kafka brokers").state == "unknown"
    snapshot = stopped(stopped(snapshot, "kafka-1", "kafka_broker"), "kafka-2", "kafka_broker")
    assert verdict(snapshot, "Kafka brokers").state == "down"


def places() -> list[tuple[str, str]]:
    """Everything that is asked in a snapshot: part, and host or job."""
    sound = healthy()
    several = [(part, name) for part in (*BY_HOST, "lags") for name in getattr(sound, part)]
    return several + [(part, "") for part in SINGLE]


def silenced(snapshot: Snapshot, some: list[tuple[str, str]]) -> Snapshot:
    for part, name in some:
        silence = Silence(f"{name or part} gave no answer in 9 s")
        snapshot = (
            on(snapshot, part, name, silence) if name else replace(snapshot, **{part: silence})
        )
    return snapshot


SILENCES = st.lists(st.sampled_from(places()), max_size=60)
# What may be wrong with a part, each of its own.
FAULTS: dict[str, list[Any]] = {
    "hosts": [Fault("by SSH: No route to host")],
    "zookeeper": [Fault("refused"), "leader", "follower"],
    "controllers": [Fault("refused"), Controller(102, 8), Controller(-1, 9)],
    "redis": [Fault("refused"), Redis("master"), Redis("replica", is_linked=False)],
    "sentinels": [Fault("refused"), False],
    "namenodes": [Fault("refused"), NameNode("active", 2, 5), NameNode("standby", 3, 0)],
    "resourcemanagers": [Fault("refused"), ResourceManager("active"), ResourceManager("standby")],
    "apis": [Fault("503")],
    "collectors": [Fault("refused")],
    "monitors": [Fault("refused")],
    "alertmanagers": [Fault("refused"), 1],
    "lags": [Lag(10, 0), Lag(10, 3)],
    "kafka": [Kafka(3, 12, 4, 0), Kafka(2, 12, 4, 1)],
    "ring": [dict.fromkeys((h.address for h in PLAN.hosts_of("cassandra")), "DN")],
    "coordination": [Coordination({}), Coordination({}, frozenset(PLAN.jobs))],
}


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Of clusters that have some faults, and of some whose units are stopped."""
    snapshot = healthy()
    candidates = [place for place in places() if place[0] in FAULTS]
    for part, name in draw(st.lists(st.sampled_from(candidates), max_size=8)):
        reply = draw(st.sampled_from(FAULTS[part]))
        snapshot = on(snapshot, part, name, reply) if name else replace(snapshot, **{part: reply})
    asked = {"zookeeper", "redis", "redis_sentinel", "namenode", "resourcemanager"}
    asked |= {"insight_api", "collector", "prometheus_server", "kafka_controller", "alertmanager"}
    units = [
        (h.name, service) for h in PLAN.hosts for service in h.services if service not in asked
    ]
    for host, service in draw(st.lists(st.sampled_from(units), max_size=4)):
        if isinstance(snapshot.hosts[host], HostFacts):
            snapshot = stopped(snapshot, host, service)
    return snapshot


@given(SILENCES)
def test_unanswered_questions_alone_never_make_anything_down(some):
    status = judge(PLAN, silenced(healthy(), some))
    assert {component.state for component in status.components} <= {HEALTHY, UNKNOWN}
    assert status.state in (HEALTHY, UNKNOWN)


@given(snapshots(), SILENCES)
def test_another_silence_never_makes_a_state_better(snapshot, some):
    """What isn't known any more is unknown; a host that is gone takes what is silent along, and
    nothing answers there."""
    gone = {host for host, facts in snapshot.hosts.items() if isinstance(facts, Fault)}
    some = [(part, name) for part, name in some if name not in gone]
    before, after = judge(PLAN, snapshot), judge(PLAN, silenced(snapshot, some))
    pairs = [(before.state, after.state)]
    pairs += [(a.state, b.state) for a, b in zip(before.components, after.components, strict=True)]
    for old, new in pairs:
        assert new == UNKNOWN or STATES.index(new) <= STATES.index(old)


@given(snapshots())
def test_the_cluster_is_as_its_worst_part(snapshot):
    status = judge(PLAN, snapshot)
    parts = [component.state for component in status.components]
    assert status.state == next(state for state in STATES if state in parts)
    assert (status.state == DOWN) == (DOWN in parts)


# --- Drivers and jobs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "state", "problem"),
    [
        ("leading", "down", "no driver of 'insights' leads"),
        (
            "standby",
            "degraded",
            "no driver of 'insights' stands by: none starts yet,"
            " `job-gateway status` on an edge host tells why",
        ),
    ],
)
def test_a_missing_driver_shows(driver, state, problem):
    snapshot = healthy()
    left = [d for d in drivers_of(snapshot) if d.state != driver]
    found = verdict(with_drivers(snapshot, *left), "Applications")
    assert (found.state, found.problems) == (state, [problem])


def test_who_drives_is_unknown_while_zookeeper_is_silent():
    snapshot = replace(healthy(), coordination=Silence("ZooKeeper gave no answer in 9 s"))
    for line in ("Applications", "Upkeep", "Job archive"):
        assert verdict(snapshot, line).state == "unknown"


def test_drivers_that_would_be_lost_together_show():
    snapshot = healthy()
    together = [replace(driver, host="worker-1") for driver in drivers_of(snapshot)]
    found = verdict(with_drivers(snapshot, *together), "Applications")
    assert (found.state, found.problems) == (
        "degraded",
        ["both drivers of 'insights' are on worker-1"],
    )


@pytest.mark.parametrize(("lost", "state"), [(1, "degraded"), (2, "down")])
def test_cassandra_goes_on_with_a_majority(lost, state):
    ring = {address: "DN" if n < lost else "UN" for n, address in enumerate(healthy().ring)}
    assert verdict(replace(healthy(), ring=ring), "Cassandra").state == state


def test_one_dead_host_degrades_and_stops_nothing():
    """Of those that lead nothing: an election would have taken place."""
    for host in PLAN.hosts:
        if host.index == 1:
            continue
        snapshot = on(healthy(), "hosts", host.name, Fault(f"{host.name}: No route to host"))
        for part in BY_HOST[1:]:
            if host.name in getattr(snapshot, part):
                snapshot = on(snapshot, part, host.name, Silence("no answer"))
        status = judge(PLAN, snapshot)
        assert status.state == "degraded", host.name
        assert status.hosts[host.name].state == "down"
        assert any(host.name in p for c in status.components for p in c.problems)


def test_a_disabled_job_may_fall_behind():
    snapshot = on(healthy(), "lags", "archive", Lag(1200, 1200))
    assert verdict(snapshot, "Job archive").state == "degraded"
    assert isinstance(snapshot.coordination, Coordination)
    ordered = replace(snapshot.coordination, disabled=frozenset({"archive"}))
    snapshot = replace(snapshot, coordination=ordered)
    found = verdict(snapshot, "Job archive")
    assert (found.state, found.seen) == ("healthy", "disabled, 1,200 records behind")
    assert judge(PLAN, snapshot).state == "healthy"


@pytest.mark.parametrize(
    ("lag", "state"),
    [
        (Lag(10**6, 0), "healthy"),  # as many as there may be, if they are new
        (Lag(5, 1), "degraded"),
        (Silence("Kafka, of the job, gave no answer in 9 s"), "unknown"),
    ],
)
@pytest.mark.parametrize("job", ["traffic", "archive"])
def test_a_job_that_falls_behind_shows(job, lag, state):
    snapshot = on(healthy(), "lags", job, lag)
    assert verdict(snapshot, f"Job {job}").state == state
    assert judge(PLAN, snapshot).state == state


@pytest.mark.parametrize(
    ("backlog", "told"),
    [
        (None, ""),
        (Backlog(NOW - 300, 120.0), ", since 5 min; it will be level in 2 min"),
        (Backlog(NOW - 300, None), ", since 5 min, and it isn't catching up: runbooks/overload.md"),
    ],
)
def test_a_job_that_is_behind_says_since_when_and_until_when(backlog, told):
    snapshot = on(healthy(), "lags", "archive", Lag(5, 1))
    snapshot = replace(snapshot, backlogs={"archive": backlog} if backlog else {})
    [problem] = verdict(snapshot, "Job archive").problems
    assert problem == f"it falls behind, or catches up: 1 wait for 120 s or longer{told}"


def test_a_job_that_failed_shows_why():
    snapshot = healthy()
    leading, standby = drivers_of(snapshot)
    why = "more than 50 further records fail: no"
    failed = replace(leading, jobs={"sessions": "failed"}, troubles={"sessions": why})
    snapshot = with_drivers(snapshot, failed, standby)
    found = verdict(snapshot, "Job sessions")
    assert found.state == "degraded"
    assert found.problems == [f"it has failed and is tried again: {why}"]
    assert found.trouble == why
    told = replace(
        failed, failed_since={"sessions": snapshot.at - 300}, runbooks={"sessions": "job-failed"}
    )
    found = verdict(with_drivers(snapshot, told, standby), "Job sessions")
    assert found.problems == [
        f"it has failed 5 min ago and is tried again: {why}: runbooks/job-failed.md"
    ]
    assert verdict(snapshot, "Job traffic").state == "healthy"
    lines = json.loads(json.dumps(judge(PLAN, snapshot).as_json()))["components"]
    assert [line["trouble"] for line in lines if line["name"] == "Job sessions"] == [why]


def test_a_job_that_isolates_records_shows_by_what_it_fails():
    snapshot = healthy()
    leading, standby = drivers_of(snapshot)
    searching = replace(
        leading, jobs={"sessions": "isolating"}, troubles={"sessions": "batch 7: ValueError"}
    )
    snapshot = with_drivers(snapshot, searching, standby)
    found = verdict(snapshot, "Job sessions")
    assert found.seen == (
        "0 records behind, isolating the records that it fails by: batch 7: ValueError"
    )
    assert (found.state, found.trouble) == ("healthy", "batch 7: ValueError")
    assert verdict(on(snapshot, "lags", "sessions", Lag(9, 9)), "Job sessions").state == "degraded"


def test_who_is_to_stand_by_shows_since_when_it_warms_up():
    snapshot = healthy()
    leading, standby = drivers_of(snapshot)
    warming = replace(standby, state="warming", since=NOW - 780)
    (problem,) = verdict(with_drivers(snapshot, leading, warming), "Applications").problems
    assert problem == "no driver of 'insights' stands by: worker-2's has been warming up for 13 min"


def test_without_a_standby_no_host_is_asked(monkeypatch):
    alone = {"insights": [d for d in drivers_of(healthy()) if d.state != "standby"]}
    monkeypatch.setattr(health, "ask_drivers", lambda plan: alone)
    monkeypatch.setattr(health, "collect", lambda plan, **_: pytest.fail("it asked"))
    assert health.problems(PLAN) == [
        "Applications: degraded, no driver of 'insights' stands by: none starts yet,"
        " `job-gateway status` on an edge host tells why"
    ]


def observe(monkeypatch, snapshot: Snapshot) -> None:
    """As it is asked for after a fault: no figure of before it will do."""

    def collect(plan, *, fresh):
        assert fresh
        return snapshot

    monkeypatch.setattr(health, "ask_drivers", lambda plan: snapshot.coordination.drivers)
    monkeypatch.setattr(health, "collect", collect)


def test_health_is_that_of_every_component(monkeypatch):
    observe(monkeypatch, on(healthy(), "lags", "archive", Lag(1_400_000, 1_300_000)))
    [problem] = health.problems(PLAN)
    assert problem.startswith(
        "Job archive: degraded, it falls behind, or catches up: 1,300,000 wait"
    )


def test_what_isnt_known_to_be_well_isnt_healthy(monkeypatch):
    observe(monkeypatch, on(healthy(), "apis", "edge-1", Silence("edge-1 gave no answer in 30 s")))
    assert health.problems(PLAN) == ["Insight API: unknown, edge-1 gave no answer in 30 s"]


def test_the_nemesis_learns_which_components_are_not_whole(monkeypatch):
    snapshot = replace(healthy(), kafka=Kafka(3, 12, under_replicated=1, leaderless=0))
    snapshot = on(snapshot, "lags", "archive", Lag(10**6, 10**6))  # a backlog is no illness
    leading = [driver for driver in drivers_of(snapshot) if driver.state == "leading"]
    observe(monkeypatch, with_drivers(snapshot, *leading))
    assert health.unhealthy(PLAN) == {"kafka", "spark"}


def test_every_part_is_a_line_of_the_status_and_a_component_of_runbooks():
    assert set(health.PARTS) <= {line.name for line in judge(PLAN, healthy()).components}
    assert set(health.PARTS.values()) <= {r.about.component for r in load_runbooks()}


def test_a_standby_tells_how_warm_it_is():
    snapshot = healthy()
    assert "worker-2 (rehearsed 60 s ago) stands by" in verdict(snapshot, "Applications").seen
    old = [
        replace(driver, rehearsed_at=None, standing_by_since=NOW - 3 * 3600)
        for driver in drivers_of(snapshot)
    ]
    found = verdict(with_drivers(snapshot, *old), "Applications")
    assert "worker-2 (for 3 h, never rehearsed) stands by" in found.seen
    assert found.state == "healthy"


def test_a_standby_that_rehearses_no_more_is_cold():
    later = NOW + PLAN.spark.settings.common.cold_seconds + 60
    cold = verdict(replace(healthy(), at=later), "Applications")
    assert cold.state == "degraded"
    assert "runbooks/standby-cold.md" in cold.problems[0]


@pytest.mark.parametrize(
    ("hours", "error", "told"),
    [
        (49, "", None),
        (51, "", "systemctl list-timers upkeep.timer"),
        (5, "java.io.IOException: no", "it failed and is tried again within the hour: java.io.IO"),
    ],
)
def test_an_upkeep_that_failed_or_is_overdue_is_a_trouble_with_what_to_do(hours, error, told):
    last = Upkeep(NOW - hours * 3600, "edge-2", error)
    found = verdict(replace(healthy(), coordination=Coordination({}, frozenset(), last)), "Upkeep")
    assert found.state == ("degraded" if told else "healthy")
    assert [told in problem for problem in found.problems] == [True] * bool(told)


def test_a_new_cluster_waits_for_its_first_night():
    for last in (None, Upkeep(NOW)):
        snapshot = replace(healthy(), coordination=Coordination({}, frozenset(), last))
        assert verdict(snapshot, "Upkeep").state == "healthy"


# --- Alerts and events ----------------------------------------------------------------------------


def alert(
    name: str,
    severity: str,
    since: str = "2026-01-01T00:00:00.123Z",
    component: str = "jobs",
    state: str = "firing",
) -> Alert:
    labels = {"alertname": name, "severity": severity, "component": component}
    return Alert(labels, state, since, f"{name} of worker-1 [eth0]", "driver-killed")


def told_by_prometheus(snapshot: Snapshot, *told: list[Alert]) -> Snapshot:
    """By each of them, or by both the same."""
    for number, host in enumerate(PLAN.hosts_of("prometheus_server")):
        monitor = Monitor(80, 0, tuple(told[number % len(told)]))
        snapshot = on(snapshot, "monitors", host.name, monitor)
    return snapshot


def test_firing_alerts_are_told_once_the_worst_first_and_do_not_make_the_state():
    told = (["info", "critical"], ["critical", "warning"])
    alerts = [[alert(s.title(), s) for s in severities] for severities in told]
    status = judge(PLAN, told_by_prometheus(healthy(), *alerts))
    assert status.alerts
    assert [a.severity for a in status.alerts] == ["critical", "warning", "info"]
    assert status.state == "healthy"
    assert "Critical of worker-1 [eth0]" in shown(status)
    assert "runbooks/driver-killed.md" in shown(status)


def test_no_alert_is_not_the_same_as_nobody_to_know():
    snapshot = healthy()
    assert "no alert fires" in shown(judge(PLAN, snapshot))
    for host in PLAN.hosts_of("prometheus_server"):
        snapshot = on(snapshot, "monitors", host.name, Silence(f"{host.name} gave no answer"))
    status = judge(PLAN, snapshot)
    assert status.alerts is None
    assert "nobody knows" in shown(status)
    assert "0 of 2 Prometheus servers" in verdict(snapshot, "Monitoring").seen


def test_a_problem_is_told_with_its_age_as_soon_as_it_is_seen():
    """By alerts of its own part, pending ones as well; not by infos, which look back."""
    snapshot = replace(healthy(), at=moment("2026-01-01T00:08:00Z"))
    snapshot = replace(snapshot, ring={**snapshot.ring, next(iter(snapshot.ring)): "DN"})
    snapshot = told_by_prometheus(
        snapshot,
        [
            alert("NodeDown", "warning", component="cassandra", state="pending"),
            alert("Info", "info", component="cassandra"),
            alert("Other", "warning", component="kafka"),
        ],
    )
    assert verdict(snapshot, "Cassandra").since == {"NodeDown": "2026-01-01T00:00:00.123Z"}
    assert verdict(snapshot, "Kafka brokers").since == {}  # it is healthy
    status = judge(PLAN, snapshot)
    assert "NodeDown for 8 min" in shown(status)
    assert status.alerts is not None
    assert [a.alert for a in status.alerts] == ["Other", "Info"]


def test_an_alert_that_both_have_is_told_once_with_its_first_time():
    later, first = (alert("Late", "warning", f"2026-01-01T00:0{m}:00Z") for m in (5, 1))
    status = judge(PLAN, told_by_prometheus(healthy(), [later], [first]))
    assert status.alerts is not None
    assert [a.since for a in status.alerts] == ["2026-01-01T00:01:00Z"]


def test_an_alert_that_fires_for_one_of_them_is_told_while_it_is_pending_for_the_other():
    fires = alert("Late", "warning", "2026-01-01T00:05:00Z")
    pending = replace(fires, state="pending", since="2026-01-01T00:01:00Z")
    status = judge(PLAN, told_by_prometheus(healthy(), [fires], [pending]))
    assert status.alerts is not None
    assert [a.alert for a in status.alerts] == ["Late"]


def test_of_several_times_of_an_alert_the_first_is_its_age():
    gone = [
        replace(one, labels={**one.labels, "name": name})
        for name, minute in (("a", 5), ("b", 1))
        for one in [alert("Gone", "critical", f"2026-01-01T00:0{minute}:00Z")]
    ]
    snapshot = with_drivers(told_by_prometheus(healthy(), gone))
    assert verdict(snapshot, "Applications").since == {"Gone": "2026-01-01T00:01:00Z"}


def test_every_line_is_dated_by_alerts_that_there_are():
    lines = {line.name for line in judge(PLAN, healthy()).components}
    assert set(ALERTS) <= lines
    assert set(ALERTS.values()) | {"jobs"} <= set(load_alerts())


def test_the_last_events_are_told_and_that_nobody_knows_them():
    events = tuple(Event(NOW - 60 * n, "restart", f"number {n} [x]") for n in range(20))
    text = shown(judge(PLAN, replace(healthy(), events=events)))
    assert "restart: number 7 [x]" in text
    assert "number 8" not in text
    assert "7 min" in text
    assert "nothing happened" in shown(judge(PLAN, healthy()))
    silent = replace(healthy(), events=Silence("edge-1 gave no answer in 9 s"))
    assert "what happened lately nobody knows" in shown(judge(PLAN, silent))


# --- As a person reads it -------------------------------------------------------------------------


def test_every_state_can_be_shown():
    snapshot = on(healthy(), "hosts", "edge-2", Fault("edge-2 by SSH: No route to host"))
    snapshot = on(snapshot, "hosts", "edge-1", Silence("edge-1 by SSH gave no answer in 9 s"))
    snapshot = replace(
        snapshot,
        progress=(Progress("archive", 2), Progress("traffic", 15, "2026-11-21T03:36:00Z")),
    )
    text = shown(judge(PLAN, snapshot))
    assert "unreachable" in text
    assert "edge-2 by SSH: No route to host" in text
    assert "not known: edge-1 by SSH gave no answer in 9 s" in text
    assert "traffic: batch 15, watermark 2026-11-21T03:36:00Z" in text
    assert "archive: batch 2 " in text
    assert "None" not in text


def test_what_comes_from_outside_is_text():
    """Neither an error, nor an event, nor an alert is read as markup."""
    snapshot = healthy()
    leading, standby = drivers_of(snapshot)
    trouble = replace(
        leading,
        jobs={"sessions": "isolating"},
        troubles={"archive": "at /a[/b]", "sessions": "by [/c]"},
    )
    snapshot = with_drivers(snapshot, trouble, standby)
    snapshot = replace(snapshot, events=(Event(NOW, "restart", "of [/x]"),))
    snapshot = on(snapshot, "apis", "edge-1", Fault("edge-1: 500 [/y]"))
    snapshot = on(snapshot, "zookeeper", "coord-2", "observer[/z]")
    snapshot = on(snapshot, "hosts", "edge-2", Silence("[/ssh] said nothing"))
    text = shown(judge(PLAN, snapshot))
    for said in ("at /a[/b]", "by [/c]", "of [/x]", "500 [/y]", "observer[/z]", "[/ssh] said"):
        assert said in text


def test_how_old_figures_are_is_told_at_one_place():
    asked, read = healthy(), replace(healthy(), age=14.2)
    assert "all of it was asked just now" in shown(judge(PLAN, asked))
    assert shown(judge(PLAN, read)).count("14 s ago") == 1
    assert judge(PLAN, read).as_json()["figures_age"] == 14.2


def test_what_only_hosts_know_is_left_out_where_they_were_not_asked():
    snapshot = healthy()
    for host, facts in snapshot.hosts.items():
        assert isinstance(facts, HostFacts)
        units = {name: replace(unit, restarts=None) for name, unit in facts.units.items()}
        snapshot = on(snapshot, "hosts", host, HostFacts(units, facts.disks))
    status = judge(PLAN, snapshot)
    assert status.resident is None
    assert "resident" in shown(judge(PLAN, healthy()))
    assert "resident" not in shown(status)
    assert {host.restarts for host in status.hosts.values()} == {None}


def test_a_cassandra_node_whose_heartbeat_stands_still_is_down():
    before = {"a": (10, "NORMAL,-1"), "b": (10, "NORMAL,-1"), "c": (10, "BOOT,-1")}
    after = {
        "a": (12, "NORMAL,-1"),
        "b": (10, "NORMAL,-1"),
        "c": (11, "BOOT,-1"),
        "new": (1, "NORMAL,-1"),
    }
    assert states(before, after) == {"a": "UN", "b": "DN", "c": "UJ", "new": "UN"}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (172799, "47 h"),
        (172800, "2 days"),
    ],
)
def test_an_age_is_told_in_the_unit_that_fits(seconds, text):
    assert age(seconds) == text


def with_disks(snapshot: Snapshot, host: str, disks: dict[str, float]) -> Snapshot:
    facts = snapshot.hosts[host]
    assert isinstance(facts, HostFacts)
    return on(snapshot, "hosts", host, replace(facts, disks=disks))


def test_a_full_disk_is_a_problem_with_its_runbook():
    snapshot = healthy()
    assert verdict(snapshot, "Disks").seen == "nobody tells"
    snapshot = with_disks(snapshot, "kafka-1", {"/data/kafka": 0.3})
    snapshot = with_disks(snapshot, "kafka-2", {"/data/kafka": 0.06})
    assert verdict(snapshot, "Disks").state == "healthy"
    assert verdict(snapshot, "Disks").seen == "6% left on the fullest"
    found = verdict(with_disks(snapshot, "kafka-2", {"/data/kafka": 0.041}), "Disks")
    assert found.state == "degraded"
    assert found.problems == ["kafka-2: 4.1% left for /data/kafka; runbooks/disk-full.md"]


def test_folders_on_a_full_disk_are_told_in_one_line_for_each_host():
    disks = {"/data/datanode": 0.041, "/data/nodemanager": 0.04}
    assert verdict(with_disks(healthy(), "worker-1", disks), "Disks").problems == [
        "worker-1: 4.0% left for /data/datanode, /data/nodemanager; runbooks/disk-full.md"
    ]


def shown(status) -> str:
    console = Console(record=True, width=250)
    console.print(render(status, PLAN.cluster))
    return console.export_text()
