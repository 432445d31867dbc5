"""From observations to a verdict. Pure, so that every state of a cluster can be tested."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from millrace.alerts import SEVERITIES
from millrace.plan import Plan

HEALTHY, DEGRADED, DOWN = "healthy", "degraded", "down"
MOST_EVENTS = 8  # that are told
# A line of the status -> the component of configs/alerts that tells since when it is as it is.
ALERTS = {
    "ZooKeeper": "zookeeper",
    "Kafka controllers": "kafka",
    "Kafka brokers": "kafka",
    "Cassandra": "cassandra",
    "Redis": "redis",
    "HDFS": "hdfs",
    "DataNodes": "hdfs",
    "JournalNodes": "hdfs",
    "Failover controllers": "hdfs",
    "YARN": "yarn",
    "NodeManagers": "yarn",
    "Applications": "jobs",
    "Insight API": "api",
    "Disks": "cluster",
    "Monitoring": "cluster",
}


@dataclass(frozen=True)
class Component:
    """One line of the status: what it is, how it is, what was seen, and since when Prometheus sees
    what is wrong, by alert (ISO 8601)."""

    name: str
    state: str
    seen: str
    problems: list[str] = field(default_factory=list)
    since: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """The cluster's state. ``resident`` is bytes over all hosts, ``at`` seconds since 1970.

    ``alerts`` are those that fire; None while nobody knows. They don't make the state: many go on
    for minutes after what they tell of has ended. ``events`` are the last, the newest first; None
    while nobody knows, or was asked.
    """

    state: str
    components: list[Component]
    hosts: dict[str, dict[str, Any]]
    applications: list[dict[str, Any]]
    progress: list[dict[str, Any]]
    alerts: list[dict[str, Any]] | None
    events: list[dict[str, Any]] | None
    at: float
    resident: int
    endpoints: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(
    plan: Plan, observed: dict[str, Any], events: list[dict[str, Any]] | None = None
) -> Status:
    """The status of a plan's cluster, from what ``collect`` observed."""
    seen = _Seen(plan, observed["hosts"], observed["drivers"])
    components = [
        _quorum(seen, "zookeeper", "ZooKeeper"),
        _quorum(seen, "kafka_controller", "Kafka controllers"),
        _kafka(seen, observed["kafka"]),
        _cassandra(seen, observed["cassandra"]),
        _redis(seen),
        _namenodes(seen),
        _pair(seen, "resourcemanager", "YARN"),
        _plain(seen, "journalnode", "JournalNodes"),
        _plain(seen, "datanode", "DataNodes"),
        _plain(seen, "nodemanager", "NodeManagers"),
        _plain(seen, "zkfc", "Failover controllers"),
        applications(plan, seen.drivers, observed["at"]),
        *(
            _job(plan, job, lag, seen.trouble(job), is_disabled=job in observed["disabled"])
            for job, lag in observed["lag"].items()
        ),
        _plain(seen, "job_gateway", "Job gateways"),
        _upkeep(plan, observed["upkeep"], observed["at"]),
        _ready(seen, "insight_api", "Insight API"),
        _ready(seen, "collector", "Collector"),
        _disks(seen),
        _monitoring(seen),
    ]
    active = seen.alerts() or []
    states = {component.state for component in components}
    return Status(
        state=next(s for s in (DOWN, DEGRADED, HEALTHY) if s in states),
        components=[_dated(component, active) for component in components],
        hosts={name: _host(plan, name, answer) for name, answer in observed["hosts"].items()},
        applications=seen.applications(),
        progress=seen.progress(),
        alerts=seen.alerts("firing"),
        events=events if events is None else events[:MOST_EVENTS],
        at=observed["at"],
        resident=sum(answer.get("resident", 0) for answer in observed["hosts"].values()),
        endpoints=_reachable_endpoints(plan),
    )


class _Seen:
    """What the hosts said, by service."""

    def __init__(
        self, plan: Plan, hosts: dict[str, dict[str, Any]], drivers: list[dict[str, Any]]
    ) -> None:
        self.plan = plan
        self.hosts = hosts
        self.drivers = drivers

    def answers(self, service: str) -> dict[str, dict[str, Any]]:
        """Host → the service's answer; a host that didn't answer has an error."""
        return {
            host.name: self.hosts[host.name]
            if "error" in self.hosts[host.name]
            else self.hosts[host.name]["services"][service]
            for host in self.plan.hosts_of(service)
        }

    def roles(self, service: str) -> Counter[str]:
        return Counter(a["role"] for a in self.answers(service).values() if "role" in a)

    def problems(self, service: str) -> Iterator[str]:
        for host, answer in self.answers(service).items():
            if "error" in answer:
                yield f"{host}: {answer['error']}"
            elif not answer["active"]:
                yield f"{host}: unit is not active"

    def applications(self) -> list[dict[str, Any]]:
        answers = self.answers("resourcemanager").values()
        return [app for answer in answers for app in answer.get("applications", [])]

    def trouble(self, job: str) -> str | None:
        """Why a job doesn't run, by the driver that leads."""
        told = (d.get("troubles", {}) for d in self.drivers if d["state"] == "leading")
        return next((troubles[job] for troubles in told if job in troubles), None)

    def alerts(self, *states: str) -> list[dict[str, Any]] | None:
        """What either Prometheus found, the worst first; both see all, so most is told by both.

        In any state: one that is pending has begun as well. Labels say which it is: its figures
        differ by when each of them looked.
        """
        answers = [a for a in self.answers("prometheus_server").values() if "alerts" in a]
        told = [a for answer in answers for a in answer["alerts"]]
        found = {
            json.dumps(a["labels"], sort_keys=True): a
            for a in sorted(told, key=lambda a: a["since"], reverse=True)
            if not states or a["state"] in states
        }
        ranked = sorted(found.values(), key=lambda a: (SEVERITIES.index(a["severity"]), a["since"]))
        return ranked if answers else None

    def progress(self) -> list[dict[str, Any]]:
        for answer in self.answers("insight_api").values():
            if "progress" in answer:
                found = answer["progress"]
                return found.get("jobs", []) if isinstance(found, dict) else found
        return []


def _dated(component: Component, alerts: list[dict[str, Any]]) -> Component:
    """With the alerts that tell of its part. Infos go on for long after what they tell of."""
    part = "jobs" if component.name.startswith("Job ") else ALERTS.get(component.name)
    if component.state == HEALTHY or part is None:
        return component
    mine = [a for a in alerts if a["component"] == part and a["severity"] != SEVERITIES[-1]]
    ages = sorted((a["since"], a["alert"]) for a in mine)
    return replace(component, since={name: since for since, name in reversed(ages)})


def _component(name: str, seen: str, problems: list[str], down: bool) -> Component:
    return Component(name, DOWN if down else DEGRADED if problems else HEALTHY, seen, problems)


def _quorum(seen: _Seen, service: str, name: str) -> Component:
    """One leader; the rest follow."""
    roles = seen.roles(service)
    leaders, followers = roles["leader"], roles["follower"]
    problems = list(seen.problems(service))
    if leaders > 1:
        problems.append(f"{leaders} hosts say that they lead")
    return _component(name, f"{leaders} leader, {followers} followers", problems, leaders != 1)


def _kafka(seen: _Seen, kafka: dict[str, Any]) -> Component:
    if "error" in kafka:
        return _component("Kafka brokers", "no answer", [kafka["error"]], down=True)
    problems = list(seen.problems("kafka_broker"))
    if kafka["under_replicated"]:
        problems.append(f"{kafka['under_replicated']} partitions have replicas out of sync")
    text = f"{kafka['brokers']} brokers, {kafka['partitions']} partitions"
    text += f", {kafka['under_replicated']} under-replicated"
    return _component("Kafka brokers", text, problems, down=kafka["leaderless"] > 0)


def _cassandra(seen: _Seen, nodes: dict[str, str]) -> Component:
    states = Counter(nodes.values())
    text = ", ".join(f"{count} × {state}" for state, count in sorted(states.items(), reverse=True))
    needed = seen.plan.replication.cassandra // 2 + 1
    problems = list(seen.problems("cassandra"))
    if states.total() - states["UN"]:
        problems.append(f"{states.total() - states['UN']} nodes are not up and normal")
    return _component("Cassandra", text or "no answer", problems, states["UN"] < needed)


def _redis(seen: _Seen) -> Component:
    roles = seen.roles("redis")
    problems = [*seen.problems("redis"), *seen.problems("redis_sentinel")]
    problems += [
        f"{host}: replica has lost its master"
        for host, answer in seen.answers("redis").items()
        if answer.get("link") == "down"
    ]
    problems += [
        f"{host}: this Sentinel sees no quorum"
        for host, answer in seen.answers("redis_sentinel").items()
        if answer.get("quorum") is False
    ]
    text = f"{roles['master']} master, {roles['replica']} replicas"
    return _component("Redis", text, problems, down=roles["master"] != 1)


def _namenodes(seen: _Seen) -> Component:
    component = _pair(seen, "namenode", "HDFS")
    active = [a for a in seen.answers("namenode").values() if a.get("role") == "active"]
    if not active:
        return component
    missing = active[0]["missing_blocks"]
    problems = component.problems + ([f"{missing} blocks are missing"] if missing else [])
    text = f"{component.seen}, {active[0]['live_datanodes']} live DataNodes"
    return _component("HDFS", text, problems, component.state == DOWN or missing > 0)


def _pair(seen: _Seen, service: str, name: str) -> Component:
    """One active, one standby."""
    roles = seen.roles(service)
    problems = list(seen.problems(service))
    if not roles["standby"]:
        problems.append("no standby to fail over to")
    text = f"{roles['active']} active, {roles['standby']} standby"
    return _component(name, text, problems, roles["active"] != 1)


def _plain(seen: _Seen, service: str, name: str) -> Component:
    """Hosts that do the same work; more than half must be there."""
    answers = seen.answers(service)
    up = sum(answer.get("active", False) for answer in answers.values())
    return _component(
        name, f"{up} of {len(answers)} up", list(seen.problems(service)), up * 2 < len(answers)
    )


def applications(plan: Plan, drivers: list[dict[str, Any]], now: float) -> Component:
    """Each has a driver that leads and one that stands by; ``now`` in seconds since 1970."""
    problems, texts, leaderless = [], [], False
    for name in plan.applications:
        mine = [driver for driver in drivers if driver["application"] == name]
        leading = [driver["host"] for driver in mine if driver["state"] == "leading"]
        standbys = [driver for driver in mine if driver["state"] == "standby"]
        standby = [_standby(driver, now) for driver in standbys]
        texts.append(f"{name}: {_on(leading)} leads, {_on(standby)} stands by")
        if not leading:
            problems.append(f"no driver of '{name}' leads")
            leaderless = True
        elif not standby:
            problems.append(f"no driver of '{name}' stands by: {_newcomers(mine, now)}")
        elif together := [
            d["host"] for d in mine if d["state"] == "standby" and d["host"] in leading
        ]:
            problems.append(f"both drivers of '{name}' are on {together[0]}")
        elif cold := [d["host"] for d in standbys if _is_cold(plan, d, now)]:
            problems.append(
                f"the standby of '{name}' on {cold[0]} doesn't rehearse and would take over slowly:"
                " runbooks/standby-cold.md"
            )
    return _component("Applications", "; ".join(texts), problems, leaderless)


def _job(
    plan: Plan, job: str, lag: dict[str, Any], trouble: str | None, *, is_disabled: bool
) -> Component:
    """A job falls behind when records wait for it longer than its settings allow.

    One that is disabled is as it is meant to be.
    """
    name = f"Job {job}"
    if "error" in lag:
        return _component(name, "no answer", [lag["error"]], down=True)
    if is_disabled:
        return _component(name, f"disabled, {lag['records']:,} records behind", [], down=False)
    bound_seconds = plan.spark.settings.job(job).lag_seconds
    late = (
        f"it falls behind, or catches up: {lag['overdue']:,} wait for {bound_seconds} s or longer"
    )
    problems = [late] if lag["overdue"] else []
    if trouble:
        problems.insert(0, f"it has failed and is tried again: {trouble}")
    return _component(name, f"{lag['records']:,} records behind", problems, down=False)


def _upkeep(plan: Plan, last: dict[str, Any] | None, now: float) -> Component:
    """What grows is cut back once a day; ``now`` in seconds since 1970."""
    if last is None:
        return _component("Upkeep", "not looked for yet", [], down=False)
    hours = (now - last["since"]) / 3600
    problems = []
    if last["error"]:
        problems.append(
            f"it failed and is tried again within the hour: {last['error']}; "
            f"`journalctl -u upkeep` on {last['host']}"
        )
    if hours > plan.services["job_gateway"].settings["upkeep"]["overdue_hours"]:
        problems.append(
            f"not done for {hours:.0f} h, and disks fill: "
            "`systemctl list-timers upkeep.timer` on the edge hosts"
        )
    seen = f"done {hours:.0f} h ago" if last["host"] else "waits for its first night"
    return _component("Upkeep", seen, problems, down=False)


def _is_cold(plan: Plan, driver: dict[str, Any], now: float) -> bool:
    """One that has never rehearsed has had nothing to rehearse with."""
    rehearsed = driver.get("rehearsed_at")
    return rehearsed is not None and now - rehearsed > plan.spark.settings.common.cold_seconds


def _standby(driver: dict[str, Any], now: float) -> str:
    """With its age, and how warm it is."""
    began, rehearsed = driver.get("standing_by_since"), driver.get("rehearsed_at")
    facts = [f"for {age(now - began)}"] if began else []
    facts.append(f"rehearsed {age(now - rehearsed)} ago" if rehearsed else "never rehearsed")
    return f"{driver['host']} ({', '.join(facts)})"


def _newcomers(drivers: list[dict[str, Any]], now: float) -> str:
    """Who is to stand by next, for whoever waits for it; why nobody is, the gateway tells."""
    warming = [driver for driver in drivers if driver["state"] == "warming"]
    told = [f"{d['host']}'s has been warming up for {age(now - d['since'])}" for d in warming]
    return ", ".join(told) or "none starts yet, `job-gateway status` on an edge host tells why"


def age(seconds: float) -> str:
    """``40 s``, ``8 min``, ``26 h``, ``3 days``: whole ones."""
    for unit, length, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if seconds < until:
            return f"{max(0.0, seconds) // length:.0f} {unit}"
    return f"{seconds // 86400:.0f} days"


def moment(text: str) -> float:
    """Seconds since 1970 of Prometheus' ISO 8601, in UTC."""
    return datetime.fromisoformat(text[:19]).replace(tzinfo=UTC).timestamp()


def _on(hosts: list[str]) -> str:
    return ", ".join(hosts) or "nobody"


def _ready(seen: _Seen, service: str, name: str) -> Component:
    """Of a service each of whose hosts does all of the work."""
    answers = seen.answers(service)
    ready = sum(answer.get("ready", False) for answer in answers.values())
    problems = list(seen.problems(service))
    return _component(name, f"{ready} of {len(answers)} ready", problems, not ready)


def _disks(seen: _Seen) -> Component:
    """The fullest decides: a broker or a node ends by its own disk, whatever others have left."""
    disks = {
        (host, service["disk"]["path"]): service["disk"]["free"]
        for host, answer in seen.hosts.items()
        for service in answer.get("services", {}).values()
        if "disk" in service
    }
    least = seen.plan.services["node_exporter"].settings["disks"]["least_free"]
    full = [place for place, free in disks.items() if free < least]
    problems = []
    for host, places in groupby(full, key=itemgetter(0)):
        paths = [path for _, path in places]
        free = min(disks[host, path] for path in paths)
        problems.append(f"{host}: {free:.1%} left for {', '.join(paths)}; runbooks/disk-full.md")
    text = f"{min(disks.values()):.0%} left on the fullest" if disks else "nobody tells"
    return _component("Disks", text, problems, down=False)


def _monitoring(seen: _Seen) -> Component:
    """Without it the service goes on, and nobody is told when it doesn't."""
    services = (
        "prometheus_server",
        "alertmanager",
        "node_exporter",
        "redis_exporter",
        "cloudwatch_agent",
    )
    problems = dict.fromkeys(p for service in services for p in seen.problems(service))
    prometheis = list(seen.answers("prometheus_server").values())
    asked = [answer for answer in prometheis if "targets" in answer]
    pair = seen.answers("alertmanager")
    for host, answer in pair.items():
        if answer.get("peers", len(pair)) < len(pair):
            problems[
                f"{host}: this Alertmanager knows of no other: what it tells, both may tell"
            ] = None
    text = f"{len(asked)} of {len(prometheis)} Prometheus servers"
    text += f", {sum('peers' in answer for answer in pair.values())} of {len(pair)} Alertmanagers"
    if asked:
        silent = min(answer["silent"] for answer in asked)
        text += f"; {silent} of {asked[0]['targets']} targets silent"
    return _component("Monitoring", text, [*problems], down=False)


def _host(plan: Plan, name: str, answer: dict[str, Any]) -> dict[str, Any]:
    host = plan.host(name)
    services = answer.get("services", {})
    return {
        "zone": host.zone,
        "address": host.address,
        "reachable": "error" not in answer,
        "resident": answer.get("resident", 0),
        "restarts": sum(service.get("restarts", 0) for service in services.values()),
        "services": {
            n: s.get("role", "up" if s["active"] else "down") for n, s in services.items()
        },
    }


def _reachable_endpoints(plan: Plan) -> dict[str, Any]:
    """Endpoints by address: whoever asks for the status doesn't know the hosts' names."""
    return {
        "insight_api": [f"http://{a}" for a in plan.addresses("insight_api", "http")],
        "collector": [f"http://{a}" for a in plan.addresses("collector", "http")],
        "kafka": plan.addresses("kafka_broker", "outside"),
        "zookeeper": plan.addresses("zookeeper", "client"),
        "cassandra": plan.addresses("cassandra", "native"),
        "sentinels": plan.addresses("redis_sentinel", "client"),
        "namenodes": [f"http://{a}" for a in plan.addresses("namenode", "http")],
        "resourcemanagers": [f"http://{a}" for a in plan.addresses("resourcemanager", "http")],
    }
