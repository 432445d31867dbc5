"""The verdict on every state a cluster may be in."""

import pytest

from millrace.alerts import load_alerts
from millrace.common.console import Console
from millrace.drill.runbook import load_runbooks
from millrace.plan import load_plan
from millrace.status import health
from millrace.status.render import render
from millrace.status.ring import states
from millrace.status.verdict import ALERTS, age, judge, moment

PLAN = load_plan("local")
UP = {"active": True, "restarts": 0}


def healthy() -> dict:
    """What `collect` observes on a cluster where all is well."""
    ring = {host.address: "UN" for host in PLAN.hosts_of("cassandra")}
    apps = [
        {"id": "application_1_1", "name": name, "state": "RUNNING", "elapsedTime": 61_000}
        for name in PLAN.applications
    ]
    says = {
        "zookeeper": lambda first: {"role": "leader" if first else "follower"},
        "kafka_controller": lambda first: {"role": "leader" if first else "follower"},
        "redis": lambda first: {"role": "master" if first else "replica", "link": "up"},
        "redis_sentinel": lambda first: {"quorum": True},
        "namenode": lambda first: {
            "role": "active" if first else "standby",
            "live_datanodes": 3,
            "missing_blocks": 0,
        },
        "resourcemanager": lambda first: (
            {"role": "active", "applications": apps} if first else {"role": "standby"}
        ),
        "insight_api": lambda first: {"ready": True, "progress": {"jobs": []}},
        "collector": lambda first: {"ready": True},
        "prometheus_server": lambda first: {"targets": 80, "silent": 0, "alerts": []},
        "alertmanager": lambda first: {"peers": 2},
    }
    hosts = {
        host.name: {
            "resident": 2**28,
            "services": {
                name: UP | says.get(name, lambda first: {})(host.index == 1)
                for name in host.services
            },
        }
        for host in PLAN.hosts
    }
    kafka = {"brokers": 3, "partitions": 12, "under_replicated": 0, "leaderless": 0}
    drivers = [
        {"application": name, "state": state, "host": host, "rehearsed_at": 1_800_000_000.0}
        for name in PLAN.applications
        for state, host in (("leading", "worker-1"), ("standby", "worker-2"))
    ]
    return {
        "hosts": hosts,
        "kafka": kafka,
        "cassandra": ring,
        "drivers": drivers,
        "lag": {job: {"records": 0, "overdue": 0} for job in PLAN.jobs},
        "disabled": set(),
        "upkeep": {"since": 1_800_000_060.0 - 5 * 3600, "host": "edge-1", "error": ""},
        "at": 1_800_000_060.0,
    }


def verdict(observed: dict, name: str):
    return next(c for c in judge(PLAN, observed).components if c.name == name)


def test_a_healthy_cluster_is_healthy():
    status = judge(PLAN, healthy())
    assert status.state == "healthy"
    assert [c.problems for c in status.components if c.problems] == []
    assert status.resident == len(PLAN.hosts) * 2**28


@pytest.mark.parametrize(
    ("host", "service", "says", "component", "state"),
    [
        ("coord-1", "zookeeper", {"role": "follower"}, "ZooKeeper", "down"),
        ("coord-2", "zookeeper", {"role": "leader"}, "ZooKeeper", "down"),
        ("coord-3", "kafka_controller", {"error": "x"}, "Kafka controllers", "degraded"),
        ("master-1", "namenode", {"role": "standby"}, "HDFS", "down"),
        ("master-2", "namenode", {"error": "URLError"}, "HDFS", "degraded"),
        ("master-1", "namenode", {"missing_blocks": 2}, "HDFS", "down"),
        ("master-2", "resourcemanager", {"role": "active"}, "YARN", "down"),
        ("redis-2", "redis", {"role": "master"}, "Redis", "down"),
        ("redis-2", "redis", {"link": "down"}, "Redis", "degraded"),
        ("coord-1", "redis_sentinel", {"quorum": False}, "Redis", "degraded"),
        ("worker-1", "datanode", {"active": False}, "DataNodes", "degraded"),
        ("edge-1", "insight_api", {"error": "URLError", "ready": False}, "Insight API", "degraded"),
        ("edge-2", "collector", {"error": "HTTPError", "ready": False}, "Collector", "degraded"),
        ("edge-2", "prometheus_server", {"error": "URLError"}, "Monitoring", "degraded"),
        ("edge-2", "alertmanager", {"peers": 1}, "Monitoring", "degraded"),
        ("kafka-3", "node_exporter", {"active": False}, "Monitoring", "degraded"),
    ],
)
def test_a_sick_service_shows(host, service, says, component, state):
    observed = healthy()
    observed["hosts"][host]["services"][service] |= says
    if "error" in says:
        observed["hosts"][host]["services"][service].pop("role", None)
    assert verdict(observed, component).state == state
    assert judge(PLAN, observed).state in ("degraded", "down")


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
    observed = healthy()
    observed["drivers"] = [d for d in observed["drivers"] if d["state"] != driver]
    found = verdict(observed, "Applications")
    assert (found.state, found.problems) == (state, [problem])


def test_drivers_that_would_be_lost_together_show():
    observed = healthy()
    for driver in observed["drivers"]:
        driver["host"] = "worker-1"
    found = verdict(observed, "Applications")
    assert (found.state, found.problems) == (
        "degraded",
        ["both drivers of 'insights' are on worker-1"],
    )


@pytest.mark.parametrize(("lost", "state"), [(1, "degraded"), (2, "down")])
def test_cassandra_goes_on_with_a_majority(lost, state):
    observed = healthy()
    for address in list(observed["cassandra"])[:lost]:
        observed["cassandra"][address] = "DN"
    assert verdict(observed, "Cassandra").state == state


def test_one_dead_host_degrades_and_stops_nothing():
    for host in PLAN.hosts:
        if "leader" in str(healthy()["hosts"][host.name]) or host.index == 1:
            continue  # an election would have taken place
        observed = healthy()
        observed["hosts"][host.name] = {"error": "Connection timed out"}
        status = judge(PLAN, observed)
        assert status.state == "degraded", host.name
        assert any(host.name in p for c in status.components for p in c.problems)


def test_kafka_without_an_answer_is_down():
    observed = healthy() | {"kafka": {"error": "Broker: timed out"}}
    assert verdict(observed, "Kafka brokers").state == "down"


def test_a_disabled_job_may_fall_behind():
    observed = healthy()
    observed["lag"]["archive"] = {"records": 1200, "overdue": 1200}
    assert verdict(observed, "Job archive").state == "degraded"
    observed["disabled"] = {"archive"}
    found = verdict(observed, "Job archive")
    assert (found.state, found.seen) == ("healthy", "disabled, 1,200 records behind")
    assert judge(PLAN, observed).state == "healthy"


@pytest.mark.parametrize(
    ("lag", "state"),
    [
        ({"records": 10**6, "overdue": 0}, "healthy"),  # as many as there may be, if they are new
        ({"records": 5, "overdue": 1}, "degraded"),
        ({"error": "timed out"}, "down"),
    ],
)
@pytest.mark.parametrize("job", ["traffic", "archive"])
def test_a_job_that_falls_behind_shows(job, lag, state):
    observed = healthy()
    observed["lag"][job] = lag
    assert verdict(observed, f"Job {job}").state == state
    assert judge(PLAN, observed).state == state


def test_a_job_that_failed_shows_why():
    observed = healthy()
    observed["drivers"][0]["troubles"] = {"sessions": "more than 50 further records fail: no"}
    found = verdict(observed, "Job sessions")
    assert found.state == "degraded"
    assert found.problems == [
        "it has failed and is tried again: more than 50 further records fail: no"
    ]
    assert verdict(observed, "Job traffic").state == "healthy"


def test_who_is_to_stand_by_shows_since_when_it_warms_up():
    observed = healthy()
    (standby,) = (d for d in observed["drivers"] if d["state"] == "standby")
    standby |= {"state": "warming", "since": observed["at"] - 780}
    (problem,) = verdict(observed, "Applications").problems
    assert problem == "no driver of 'insights' stands by: worker-2's has been warming up for 13 min"


def test_without_a_standby_no_host_is_asked(monkeypatch):
    alone = [d for d in healthy()["drivers"] if d["state"] != "standby"]
    monkeypatch.setattr(health, "ask_drivers", lambda plan: alone)
    monkeypatch.setattr(health, "collect", lambda plan: pytest.fail("it asked"))
    assert health.problems(PLAN) == [
        "Applications: degraded, no driver of 'insights' stands by: none starts yet,"
        " `job-gateway status` on an edge host tells why"
    ]


def test_health_is_that_of_every_component(monkeypatch):
    observed = healthy()
    observed["lag"]["archive"] = {"records": 1_400_000, "overdue": 1_300_000}
    monkeypatch.setattr(health, "ask_drivers", lambda plan: observed["drivers"])
    monkeypatch.setattr(health, "collect", lambda plan: observed)
    [problem] = health.problems(PLAN)
    assert problem.startswith(
        "Job archive: degraded, it falls behind, or catches up: 1,300,000 wait"
    )


def test_every_state_can_be_shown():
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    observed = healthy()
    observed["hosts"]["edge-2"] = {"error": "Connection timed out"}
    progress = observed["hosts"]["edge-1"]["services"]["insight_api"]["progress"]
    progress["jobs"] = [
        {"job": "archive", "batch": 2, "watermark": None},
        {"job": "traffic", "batch": 15, "watermark": "2026-11-21T03:36:00Z"},
    ]
    console.print(render(judge(PLAN, observed), PLAN.cluster))
    text = console.export_text()
    assert "unreachable" in text
    assert "edge-2: Connection timed out" in text
    assert "traffic: batch 15, watermark 2026-11-21T03:36:00Z" in text
    assert "archive: batch 2 " in text
    assert "None" not in text


def test_a_cassandra_node_whose_heartbeat_stands_still_is_down():
    before = {"a": (10, "NORMAL,-1"), "b": (10, "NORMAL,-1"), "c": (10, "BOOT,-1")}
    after = {
        "a": (12, "NORMAL,-1"),
        "b": (10, "NORMAL,-1"),
        "c": (11, "BOOT,-1"),
        "new": (1, "NORMAL,-1"),
    }
    assert states(before, after) == {"a": "UN", "b": "DN", "c": "UJ", "new": "UN"}


def test_the_nemesis_learns_which_components_are_not_whole(monkeypatch):
    observed = healthy()
    observed["kafka"]["under_replicated"] = 1
    observed["lag"]["archive"]["overdue"] = 10**6  # a backlog is no illness
    observed["drivers"] = [d for d in observed["drivers"] if d["state"] == "leading"]
    monkeypatch.setattr(health, "collect", lambda plan: observed)
    assert health.unhealthy(PLAN) == {"kafka", "spark"}


def test_every_part_is_a_line_of_the_status_and_a_component_of_runbooks():
    assert set(health.PARTS) <= {line.name for line in judge(PLAN, healthy()).components}
    assert set(health.PARTS.values()) <= {r.about.component for r in load_runbooks()}


def test_a_standby_tells_how_warm_it_is():
    observed = healthy()
    assert "worker-2 (rehearsed 60 s ago) stands by" in verdict(observed, "Applications").seen
    for driver in observed["drivers"]:
        driver |= {"rehearsed_at": None, "standing_by_since": observed["at"] - 3 * 3600}
    told = "worker-2 (for 3 h, never rehearsed) stands by"
    assert told in verdict(observed, "Applications").seen
    assert verdict(observed, "Applications").state == "healthy"


def test_a_standby_that_rehearses_no_more_is_cold():
    observed = healthy()
    observed["at"] += PLAN.spark.settings.common.cold_seconds + 60
    cold = verdict(observed, "Applications")
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
    observed = healthy()
    since = observed["at"] - hours * 3600
    observed["upkeep"] = {"since": since, "host": "edge-2", "error": error}
    found = verdict(observed, "Upkeep")
    assert found.state == ("degraded" if told else "healthy")
    assert [told in problem for problem in found.problems] == [True] * bool(told)


def test_a_new_cluster_waits_for_its_first_night():
    observed = healthy()
    for last in (None, {"since": observed["at"], "host": "", "error": ""}):
        observed["upkeep"] = last
        assert verdict(observed, "Upkeep").state == "healthy"


def alert(name: str, severity: str, since: str = "2026-01-01T00:00:00.123Z") -> dict[str, str]:
    what = {"summary": f"{name} of worker-1 [eth0]", "runbook": "driver-killed"}
    what |= {"state": "firing", "component": "jobs"}
    what |= {"labels": {"alertname": name, "severity": severity}}
    return {"alert": name, "severity": severity, "since": since} | what


def test_firing_alerts_are_told_once_the_worst_first_and_do_not_make_the_state():
    observed = healthy()
    told = {"edge-1": ["info", "critical"], "edge-2": ["critical", "warning"]}
    for host, severities in told.items():
        services = observed["hosts"][host]["services"]
        services["prometheus_server"]["alerts"] = [alert(s.title(), s) for s in severities]
    status = judge(PLAN, observed)
    assert status.alerts
    assert [a["severity"] for a in status.alerts] == ["critical", "warning", "info"]
    assert status.state == "healthy"
    assert "Critical of worker-1 [eth0]" in shown(status)
    assert "runbooks/driver-killed.md" in shown(status)


def test_no_alert_is_not_the_same_as_nobody_to_know():
    observed = healthy()
    assert "no alert fires" in shown(judge(PLAN, observed))
    for host in PLAN.hosts_of("prometheus_server"):
        for key in ("targets", "silent", "alerts"):
            del observed["hosts"][host.name]["services"]["prometheus_server"][key]
    status = judge(PLAN, observed)
    assert status.alerts is None
    assert "nobody knows" in shown(status)
    assert "0 of 2 Prometheus servers" in verdict(observed, "Monitoring").seen


def told_by_prometheus(observed: dict, *alerts: dict[str, str]) -> None:
    for host in PLAN.hosts_of("prometheus_server"):
        services = observed["hosts"][host.name]["services"]
        services["prometheus_server"]["alerts"] = list(alerts)


def test_a_problem_is_told_with_its_age_as_soon_as_it_is_seen():
    """By alerts of its own part, pending ones as well; not by infos, which look back."""
    observed = healthy() | {"at": moment("2026-01-01T00:08:00Z")}
    observed["cassandra"] = dict.fromkeys(observed["cassandra"], "UN")
    observed["cassandra"][next(iter(observed["cassandra"]))] = "DN"
    told_by_prometheus(
        observed,
        alert("NodeDown", "warning") | {"component": "cassandra", "state": "pending"},
        alert("Info", "info") | {"component": "cassandra"},
        alert("Other", "warning") | {"component": "kafka"},
    )
    assert verdict(observed, "Cassandra").since == {"NodeDown": "2026-01-01T00:00:00.123Z"}
    assert verdict(observed, "Kafka brokers").since == {}  # it is healthy
    status = judge(PLAN, observed)
    assert "NodeDown for 8 min" in shown(status)
    assert status.alerts is not None
    assert [a["alert"] for a in status.alerts] == ["Other", "Info"]


def test_an_alert_whose_figures_differ_by_prometheus_is_told_once_with_its_first_time():
    observed = healthy()
    first, second = PLAN.hosts_of("prometheus_server")
    for host, since in ((first, "2026-01-01T00:05:00Z"), (second, "2026-01-01T00:01:00Z")):
        told = alert("Late", "warning", since) | {"summary": f"{host.index}0 s"}
        observed["hosts"][host.name]["services"]["prometheus_server"]["alerts"] = [told]
    status = judge(PLAN, observed)
    assert status.alerts is not None
    assert [a["since"] for a in status.alerts] == ["2026-01-01T00:01:00Z"]


def test_of_several_times_of_an_alert_the_first_is_its_age():
    observed = healthy()
    observed["drivers"] = []
    told_by_prometheus(
        observed,
        alert("Gone", "critical", "2026-01-01T00:05:00Z") | {"summary": "b"},
        alert("Gone", "critical", "2026-01-01T00:01:00Z"),
    )
    assert verdict(observed, "Applications").since == {"Gone": "2026-01-01T00:01:00Z"}


def test_every_line_is_dated_by_alerts_that_there_are():
    lines = {line.name for line in judge(PLAN, healthy()).components}
    assert set(ALERTS) <= lines
    assert set(ALERTS.values()) | {"jobs"} <= set(load_alerts())


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


def test_a_full_disk_is_a_problem_with_its_runbook():
    observed = healthy()
    assert verdict(observed, "Disks").seen == "nobody tells"
    for host, free in (("kafka-1", 0.3), ("kafka-2", 0.06)):
        disk = {"path": "/data/kafka", "free": free}
        observed["hosts"][host]["services"]["kafka_broker"]["disk"] = disk
    assert verdict(observed, "Disks").state == "healthy"
    assert verdict(observed, "Disks").seen == "6% left on the fullest"
    disk["free"] = 0.041
    found = verdict(observed, "Disks")
    assert found.state == "degraded"
    assert found.problems == ["kafka-2: 4.1% left for /data/kafka; runbooks/disk-full.md"]


def test_folders_on_a_full_disk_are_told_in_one_line_for_each_host():
    observed = healthy()
    for service, free in (("datanode", 0.041), ("nodemanager", 0.04)):
        disk = {"path": f"/data/{service}", "free": free}
        observed["hosts"]["worker-1"]["services"][service]["disk"] = disk
    assert verdict(observed, "Disks").problems == [
        "worker-1: 4.0% left for /data/datanode, /data/nodemanager; runbooks/disk-full.md"
    ]


def test_the_last_events_are_told_and_that_nobody_knows_them():
    observed = healthy()
    events = [
        {"at": observed["at"] - 60 * number, "kind": "restart", "text": f"number {number} [x]"}
        for number in range(20)
    ]
    text = shown(judge(PLAN, observed, events))
    assert "restart: number 7 [x]" in text
    assert "number 8" not in text
    assert "7 min" in text
    assert "nothing happened" in shown(judge(PLAN, observed, []))
    assert "what happened lately nobody knows" in shown(judge(PLAN, observed))


def shown(status) -> str:
    console = Console(record=True, width=250)
    console.print(render(status, PLAN.cluster))
    return console.export_text()
