"""From a snapshot to a verdict. Pure, so that every state of a cluster can be tested.

A state is one of `STATES`. What nobody answered is never taken for down: a part is down when that
is known, whatever the silent ones are; else unknown as long as something it is judged by is silent,
since that may be worse than what is known; only then degraded or healthy. So it is with the whole
cluster, and another silence never makes a state better.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, TypeVar

from millrace.cluster.prometheus import Alert
from millrace.cluster.services import Application
from millrace.common.exits import Exit
from millrace.common.tables import iso, time_of
from millrace.config.alerts import SEVERITIES
from millrace.plan import CONTROLLER_ID_BASE, Plan
from millrace.status.snapshot import (
    Backlog,
    Coordination,
    Drivers,
    Event,
    Fault,
    HostFacts,
    Lag,
    Progress,
    Reply,
    Silence,
    Snapshot,
    Upkeep,
    known,
)
from millrace_shared.driver_record import DriverRecord, leader

T = TypeVar("T")

HEALTHY, DEGRADED, DOWN, UNKNOWN = "healthy", "degraded", "down", "unknown"
UP = "up"  # a host's state, which else is one of the last two
STATES = (DOWN, UNKNOWN, DEGRADED, HEALTHY)  # the first of its parts' is the cluster's
EXITS = {
    HEALTHY: Exit.OK,
    DEGRADED: Exit.UNHEALTHY,
    DOWN: Exit.UNHEALTHY,
    UNKNOWN: Exit.UNREACHABLE,
}
MOST_EVENTS = 8
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
    """One line of the status.

    ``seen`` is what was observed, ``problems`` what is wrong with it, ``unanswered`` what isn't
    known: who was asked, and what came instead. ``since`` is when Prometheus first saw what is
    wrong, by alert (ISO 8601). ``trouble`` is why a job doesn't run as it should, by its driver.
    """

    name: str
    state: str
    seen: str
    problems: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    since: dict[str, str] = field(default_factory=dict)
    trouble: str | None = None


@dataclass(frozen=True)
class HostLine:
    """A host and its services, each with its role, or up, down or unknown.

    ``state`` is up, down or unknown as well, ``why`` says so where it isn't up. ``restarts`` and
    ``resident`` (bytes) are None where nobody knows them.
    """

    zone: str
    address: str
    state: str
    why: str
    services: dict[str, str]
    restarts: int | None
    resident: int | None


@dataclass(frozen=True)
class AlertLine:
    """An alert that fires, with the runbook that helps; ``since`` is ISO 8601."""

    alert: str
    severity: str
    component: str
    since: str
    summary: str
    runbook: str


@dataclass(frozen=True)
class Status:
    """The cluster's state at ``at``, in seconds since 1970.

    ``alerts`` are those that fire; None while nobody knows. They don't make the state: many go on
    for minutes after what they tell of has ended. ``events`` are the last, the newest first; None
    while nobody knows. ``resident`` is bytes over all hosts; None unless all were asked.
    ``figures_age`` is how many seconds ago Prometheus got the oldest figure that was used.
    """

    state: str
    components: list[Component]
    hosts: dict[str, HostLine]
    applications: list[Application]
    progress: list[Progress]
    alerts: list[AlertLine] | None
    events: list[Event] | None
    at: float
    figures_age: float | None
    resident: int | None
    endpoints: dict[str, list[str]]

    @property
    def exit(self) -> Exit:
        """Where not one host answers, it may be this machine that is cut off."""
        if not any(host.state == UP for host in self.hosts.values()):
            return Exit.UNREACHABLE
        return EXITS[self.state]

    def as_json(self) -> dict[str, Any]:
        def dated(event: Event) -> dict[str, Any]:
            return asdict(event) | {"at": iso(time_of(event.at))}

        events = None if self.events is None else [dated(event) for event in self.events]
        return asdict(self) | {"at": iso(time_of(self.at)), "events": events}


def judge(plan: Plan, snapshot: Snapshot) -> Status:
    """Returns the status of a plan's cluster."""
    components = [
        _zookeeper(plan, snapshot),
        _controllers(plan, snapshot),
        _kafka(plan, snapshot),
        _cassandra(plan, snapshot),
        _redis(plan, snapshot),
        _hdfs(plan, snapshot),
        _yarn(plan, snapshot),
        _plain(plan, snapshot, "journalnode", "JournalNodes"),
        _plain(plan, snapshot, "datanode", "DataNodes"),
        _plain(plan, snapshot, "nodemanager", "NodeManagers"),
        _plain(plan, snapshot, "zkfc", "Failover controllers"),
        applications(plan, _drivers(snapshot), snapshot.at),
        *(_job(plan, job, snapshot) for job in snapshot.lags),
        _plain(plan, snapshot, "job_gateway", "Job gateways"),
        _upkeep(plan, snapshot),
        _plain(plan, snapshot, "edge_proxy", "Proxies"),
        _ready(plan, snapshot, "insight_api", snapshot.apis, "Insight API"),
        _ready(plan, snapshot, "collector", snapshot.collectors, "Collector"),
        _disks(plan, snapshot),
        _monitoring(plan, snapshot),
    ]
    alerts = _alerts(snapshot)
    residents = [facts.resident for facts in known(snapshot.hosts.values()) if facts.resident]
    return Status(
        state=worst(component.state for component in components),
        components=[_dated(component, alerts or []) for component in components],
        hosts={host: _host(plan, host, snapshot) for host in snapshot.hosts},
        applications=_applications(snapshot),
        progress=[] if isinstance(snapshot.progress, Silence | Fault) else list(snapshot.progress),
        alerts=None if alerts is None else _firing(alerts),
        events=None
        if isinstance(snapshot.events, Silence | Fault)
        else list(snapshot.events[:MOST_EVENTS]),
        at=snapshot.at,
        figures_age=snapshot.age,
        resident=sum(residents) if len(residents) == len(snapshot.hosts) else None,
        endpoints=_reachable_endpoints(plan),
    )


def worst(states: Iterable[str]) -> str:
    """The state of the whole, from its parts'."""
    return min(states, key=STATES.index, default=HEALTHY)


@dataclass(frozen=True)
class _Members(Generic[T]):
    """A service's hosts: what some answered, and why others are known to be lost, or are silent."""

    total: int
    answers: dict[str, T] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)

    @property
    def majority_is_lost(self) -> bool:
        return len(self.lost) * 2 > self.total


def _members(
    plan: Plan, snapshot: Snapshot, service: str, replies: Mapping[str, Reply[T]]
) -> _Members[T]:
    """By the services' own replies. One that doesn't answer is lost if its host or unit is."""
    members: _Members[T] = _Members(len(replies))
    for host, reply in replies.items():
        facts = snapshot.hosts[host]
        if not isinstance(reply, Silence | Fault):
            members.answers[host] = reply
        elif isinstance(facts, Fault):
            members.lost[host] = facts.why
        elif isinstance(facts, HostFacts) and not _is_active(facts, service):
            members.lost[host] = f"{host}: {plan.services[service].unit} is not active"
        elif isinstance(reply, Fault):
            members.lost[host] = reply.why
        else:
            members.silent[host] = reply.why
    return members


def _units(plan: Plan, snapshot: Snapshot, service: str) -> _Members[bool]:
    """Judges a service that is asked nothing by whether its units are active."""
    unit = plan.services[service].unit if service in plan.services else service

    def reply(host: str) -> Reply[bool]:
        facts = snapshot.hosts[host]
        if isinstance(facts, Silence | Fault):
            return facts
        if service not in facts.units:
            return Silence(f"{host} doesn't say how {unit} is")
        return _is_active(facts, service) or Fault(f"{host}: {unit} is not active")

    replies = {host.name: reply(host.name) for host in plan.hosts_of(service)}
    return _members(plan, snapshot, service, replies)


def _is_active(facts: HostFacts, service: str) -> bool:
    return service not in facts.units or facts.units[service].is_active


def _component(
    name: str, seen: str, problems: Iterable[str], unanswered: Iterable[str], *, is_down: bool
) -> Component:
    """``is_down`` is what is known, whatever the silent ones are."""
    found, silences = list(dict.fromkeys(problems)), list(dict.fromkeys(unanswered))
    state = DOWN if is_down else UNKNOWN if silences else DEGRADED if found else HEALTHY
    return Component(name, state, seen, found, silences)


def _zookeeper(plan: Plan, snapshot: Snapshot) -> Component:
    members = _members(plan, snapshot, "zookeeper", snapshot.zookeeper)
    return _quorum("ZooKeeper", members, dict(members.answers))


def _controllers(plan: Plan, snapshot: Snapshot) -> Component:
    """Judges controllers by the newest epoch that any of them knows; older words are outdated."""
    members = _members(plan, snapshot, "kafka_controller", snapshot.controllers)
    newest = max(members.answers.values(), key=lambda one: one.epoch, default=None)
    ids = {host: CONTROLLER_ID_BASE + plan.host(host).index for host in members.answers}
    leads = newest and newest.leader
    roles = {host: "leader" if node == leads else "follower" for host, node in ids.items()}
    return _quorum("Kafka controllers", members, roles)


def _quorum(name: str, members: _Members[Any], roles: Mapping[str, str]) -> Component:
    """Judges a quorum: one member leads, the others follow."""
    counts = Counter(roles.values())
    leaders = counts["leader"]
    problems = list(members.lost.values())
    if leaders > 1:
        problems.append(f"{leaders} hosts say that they lead")
    return _component(
        name,
        f"{leaders} leader, {counts['follower']} followers",
        problems,
        members.silent.values(),
        is_down=_is_not_one(leaders, members) or members.majority_is_lost,
    )


def _is_not_one(count: int, members: _Members[Any]) -> bool:
    """Returns whether it is known that not exactly one has the role: a silent one may have it."""
    return count > 1 or (count == 0 and not members.silent)


def _kafka(plan: Plan, snapshot: Snapshot) -> Component:
    units = _units(plan, snapshot, "kafka_broker")
    problems, silences = list(units.lost.values()), list(units.silent.values())
    kafka = snapshot.kafka
    if isinstance(kafka, Silence | Fault):
        return _component(
            "Kafka brokers",
            "no answer",
            problems,
            [kafka.why, *silences],
            is_down=units.majority_is_lost,
        )
    if kafka.under_replicated:
        problems.append(f"{kafka.under_replicated} partitions have replicas out of sync")
    if kafka.leaderless:
        problems.append(f"{kafka.leaderless} partitions have no leader")
    text = f"{kafka.brokers} brokers, {kafka.partitions} partitions"
    text += f", {kafka.under_replicated} under-replicated"
    return _component("Kafka brokers", text, problems, silences, is_down=kafka.leaderless > 0)


def _cassandra(plan: Plan, snapshot: Snapshot) -> Component:
    units = _units(plan, snapshot, "cassandra")
    problems, silences = list(units.lost.values()), list(units.silent.values())
    if isinstance(snapshot.ring, Silence | Fault):
        silences.append(snapshot.ring.why)
        return _component(
            "Cassandra", "no answer", problems, silences, is_down=units.majority_is_lost
        )
    states = Counter(snapshot.ring.values())
    text = ", ".join(f"{count} × {state}" for state, count in sorted(states.items(), reverse=True))
    needed = plan.replication.cassandra // 2 + 1
    if states.total() - states["UN"]:
        problems.append(f"{states.total() - states['UN']} nodes are not up and normal")
    return _component("Cassandra", text, problems, silences, is_down=states["UN"] < needed)


def _redis(plan: Plan, snapshot: Snapshot) -> Component:
    servers = _members(plan, snapshot, "redis", snapshot.redis)
    sentinels = _members(plan, snapshot, "redis_sentinel", snapshot.sentinels)
    roles = Counter(server.role for server in servers.answers.values())
    problems = [*servers.lost.values(), *sentinels.lost.values()]
    problems += [
        f"{host}: replica has lost its master"
        for host, server in servers.answers.items()
        if not server.is_linked
    ]
    problems += [
        f"{host}: this Sentinel sees no quorum"
        for host, sees_quorum in sentinels.answers.items()
        if not sees_quorum
    ]
    return _component(
        "Redis",
        f"{roles['master']} master, {roles['replica']} replicas",
        problems,
        [*servers.silent.values(), *sentinels.silent.values()],
        is_down=_is_not_one(roles["master"], servers),
    )


def _hdfs(plan: Plan, snapshot: Snapshot) -> Component:
    members = _members(plan, snapshot, "namenode", snapshot.namenodes)
    component = _pair("HDFS", members, {h: one.role for h, one in members.answers.items()})
    active = [one for one in members.answers.values() if one.role == "active"]
    if not active:
        return component
    missing = active[0].missing_blocks
    return _component(
        component.name,
        f"{component.seen}, {active[0].live_datanodes} live DataNodes",
        component.problems + ([f"{missing} blocks are missing"] if missing else []),
        component.unanswered,
        is_down=component.state == DOWN or missing > 0,
    )


def _yarn(plan: Plan, snapshot: Snapshot) -> Component:
    members = _members(plan, snapshot, "resourcemanager", snapshot.resourcemanagers)
    return _pair("YARN", members, {h: one.role for h, one in members.answers.items()})


def _pair(name: str, members: _Members[Any], roles: Mapping[str, str]) -> Component:
    """Judges a pair: one member is active, one stands by."""
    counts = Counter(roles.values())
    problems = list(members.lost.values())
    if not counts["standby"] and not members.silent:
        problems.append("no standby to fail over to")
    return _component(
        name,
        f"{counts['active']} active, {counts['standby']} standby",
        problems,
        members.silent.values(),
        is_down=_is_not_one(counts["active"], members),
    )


def _plain(plan: Plan, snapshot: Snapshot, service: str, name: str) -> Component:
    """Hosts that do the same work; half of them must be there."""
    units = _units(plan, snapshot, service)
    return _component(
        name,
        f"{len(units.answers)} of {units.total} up",
        units.lost.values(),
        units.silent.values(),
        is_down=units.majority_is_lost,
    )


def _ready(
    plan: Plan, snapshot: Snapshot, service: str, replies: Mapping[str, Reply[bool]], name: str
) -> Component:
    """Judges a service each of whose hosts does all of the work."""
    members = _members(plan, snapshot, service, replies)
    return _component(
        name,
        f"{len(members.answers)} of {members.total} ready",
        members.lost.values(),
        members.silent.values(),
        is_down=len(members.lost) == members.total,
    )


def _drivers(snapshot: Snapshot) -> Reply[Drivers]:
    found = snapshot.coordination
    return found.drivers if isinstance(found, Coordination) else found


def applications(plan: Plan, reply: Reply[Drivers], now: float) -> Component:
    """Judges applications: each has a driver that leads and one that stands by.

    ``now`` is in seconds since 1970.
    """
    if isinstance(reply, Silence | Fault):
        return _component("Applications", "nobody tells", [], [reply.why], is_down=False)
    problems, texts, leaderless = [], [], False
    for name in plan.applications:
        mine = reply.get(name, [])
        leading = [driver.host for driver in mine if driver.state == "leading"]
        standbys = [driver for driver in mine if driver.state == "standby"]
        standby = [_standby(driver, now) for driver in standbys]
        texts.append(f"{name}: {_on(leading)} leads, {_on(standby)} stands by")
        if not leading:
            problems.append(f"no driver of '{name}' leads")
            leaderless = True
        elif not standby:
            problems.append(f"no driver of '{name}' stands by: {_newcomers(mine, now)}")
        elif together := [driver.host for driver in standbys if driver.host in leading]:
            problems.append(f"both drivers of '{name}' are on {together[0]}")
        elif cold := [driver.host for driver in standbys if _is_cold(plan, driver, now)]:
            problems.append(
                f"the standby of '{name}' on {cold[0]} doesn't rehearse and would take over slowly:"
                " runbooks/standby-cold.md"
            )
    return _component("Applications", "; ".join(texts), problems, [], is_down=leaderless)


def _job(plan: Plan, job: str, snapshot: Snapshot) -> Component:
    """A job falls behind when records wait for it longer than its settings allow.

    One that is disabled is as it is meant to be. Why it doesn't run as it should its driver says.
    """
    name, lag, found = f"Job {job}", snapshot.lags[job], snapshot.coordination
    disabled = isinstance(found, Coordination) and job in found.disabled
    silences = [reply.why for reply in (lag, found) if isinstance(reply, Silence | Fault)]
    state, trouble = _work(_drivers(snapshot), job)
    seen = [f"{lag.records:,} records behind" if isinstance(lag, Lag) else "no answer"]
    if disabled:
        return _component(name, f"disabled, {seen[0]}", [], silences, is_down=False)
    if state in ("starting", "draining"):
        seen.append(state)
    problems = []
    if state == "isolating":
        seen.append("isolating the records that it fails by" + (f": {trouble}" if trouble else ""))
    elif trouble:
        problems.append(_failure(_leader_with(_drivers(snapshot), job), job, snapshot.at))
    if isinstance(lag, Lag) and lag.overdue:
        bound = plan.spark.settings.job(job).lag_seconds
        problems.append(
            f"it falls behind, or catches up: {lag.overdue:,} wait for {bound} s or longer"
            + _prospect(snapshot.backlogs.get(job), snapshot.at)
        )
    line = _component(name, ", ".join(seen), problems, silences, is_down=False)
    return replace(line, trouble=trouble)


def _prospect(backlog: Backlog | None, now: float) -> str:
    """Says since when a job is behind, and until when at today's rate."""
    if backlog is None:
        return ""
    since = f", since {age(max(0.0, now - backlog.since))}"
    if backlog.seconds is None:
        return f"{since}, and it isn't catching up: runbooks/overload.md"
    return f"{since}; it will be level in {age(backlog.seconds)}"


def _work(drivers: Reply[Drivers], job: str) -> tuple[str | None, str | None]:
    """Returns what a job does and why it doesn't run well, by the driver that leads."""
    leads = _leader_with(drivers, job)
    return (leads.jobs.get(job), leads.troubles.get(job)) if leads else (None, None)


def _leader_with(drivers: Reply[Drivers], job: str) -> DriverRecord | None:
    if isinstance(drivers, Silence | Fault):
        return None
    leading = filter(None, map(leader, drivers.values()))
    return next((leads for leads in leading if job in {*leads.jobs, *leads.troubles}), None)


def _failure(leads: DriverRecord | None, job: str, now: float) -> str:
    """Says why a job doesn't run, for how long, and what to do."""
    if leads is None:
        return "it has failed"
    since, runbook = leads.failed_since.get(job), leads.runbooks.get(job)
    ago = f" {age(now - since)} ago" if since is not None else ""
    page = f": runbooks/{runbook}.md" if runbook else ""
    return f"it has failed{ago} and is tried again: {leads.troubles.get(job)}{page}"


def _upkeep(plan: Plan, snapshot: Snapshot) -> Component:
    """Judges whether what grows is cut back once a day."""
    found = snapshot.coordination
    if not isinstance(found, Coordination):
        return _component("Upkeep", "nobody tells", [], [found.why], is_down=False)
    if found.upkeep is None:
        return _component("Upkeep", "not looked for yet", [], [], is_down=False)
    return _upkeep_of(plan, found.upkeep, snapshot.at)


def _upkeep_of(plan: Plan, last: Upkeep, now: float) -> Component:
    hours = (now - last.since) / 3600
    problems = []
    if last.error:
        problems.append(
            f"it failed and is tried again within the hour: {last.error}; "
            f"`journalctl -u upkeep` on {last.host}"
        )
    if hours > plan.services["job_gateway"].settings["upkeep"]["overdue_hours"]:
        problems.append(
            f"not done for {hours:.0f} h, and disks fill: "
            "`systemctl list-timers upkeep.timer` on the edge hosts"
        )
    seen = f"done {hours:.0f} h ago" if last.host else "waits for its first night"
    return _component("Upkeep", seen, problems, [], is_down=False)


def _is_cold(plan: Plan, driver: DriverRecord, now: float) -> bool:
    """One that has never rehearsed has had nothing to rehearse with."""
    rehearsed = driver.rehearsed_at
    return rehearsed is not None and now - rehearsed > plan.spark.settings.common.cold_seconds


def _standby(driver: DriverRecord, now: float) -> str:
    """Describes a standby with its age, and how warm it is."""
    began, rehearsed = driver.standing_by_since, driver.rehearsed_at
    facts = [f"for {age(now - began)}"] if began else []
    facts.append(f"rehearsed {age(now - rehearsed)} ago" if rehearsed else "never rehearsed")
    return f"{driver.host} ({', '.join(facts)})"


def _newcomers(drivers: Sequence[DriverRecord], now: float) -> str:
    """Describes the drivers that are to stand by next; the gateway says why there is none."""
    warming = [driver for driver in drivers if driver.state == "warming"]
    told = [f"{d.host}'s has been warming up for {age(now - d.since)}" for d in warming]
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


def _disks(plan: Plan, snapshot: Snapshot) -> Component:
    """The fullest decides: a broker or a node ends by its own disk, whatever others have left."""
    disks = {
        (host, path): free
        for host, facts in snapshot.hosts.items()
        if isinstance(facts, HostFacts)
        for path, free in facts.disks.items()
    }
    least = plan.services["node_exporter"].settings["disks"]["least_free"]
    full = [place for place, free in disks.items() if free < least]
    problems = []
    for host, places in groupby(full, key=itemgetter(0)):
        paths = [path for _, path in places]
        left = min(disks[host, path] for path in paths)
        problems.append(f"{host}: {left:.1%} left for {', '.join(paths)}; runbooks/disk-full.md")
    silent = [facts.why for facts in snapshot.hosts.values() if isinstance(facts, Silence)]
    text = f"{min(disks.values()):.0%} left on the fullest" if disks else "nobody tells"
    return _component("Disks", text, problems, silent, is_down=False)


def _monitoring(plan: Plan, snapshot: Snapshot) -> Component:
    """Without it the service goes on, and nobody is told when it doesn't."""
    monitors = _members(plan, snapshot, "prometheus_server", snapshot.monitors)
    pair = _members(plan, snapshot, "alertmanager", snapshot.alertmanagers)
    others = [
        _units(plan, snapshot, service)
        for service in ("node_exporter", "redis_exporter", "cloudwatch_agent")
    ]
    all_members: list[_Members[Any]] = [monitors, pair, *others]
    problems = [why for members in all_members for why in members.lost.values()]
    problems += [
        f"{host}: this Alertmanager knows of no other: what it tells, both may tell"
        for host, peers in pair.answers.items()
        if peers < pair.total
    ]
    text = f"{len(monitors.answers)} of {monitors.total} Prometheus servers"
    text += f", {len(pair.answers)} of {pair.total} Alertmanagers"
    if monitors.answers:
        fewest = min(monitors.answers.values(), key=lambda monitor: monitor.silent)
        text += f"; {fewest.silent} of {fewest.targets} targets silent"
    silent = [why for members in all_members for why in members.silent.values()]
    return _component("Monitoring", text, problems, silent, is_down=False)


def _alerts(snapshot: Snapshot) -> list[Alert] | None:
    """Returns what either Prometheus found, the worst first; both see all, so most is told by
    both.

    In any state: one that is pending has begun as well. Labels say which it is: its figures differ
    by when each of them looked.
    """
    monitors = known(snapshot.monitors.values())
    told = [alert for monitor in monitors for alert in monitor.alerts]
    told.sort(key=lambda alert: alert.since, reverse=True)
    told.sort(key=lambda alert: alert.state == "firing")
    found = {json.dumps(dict(alert.labels), sort_keys=True): alert for alert in told}
    ranked = sorted(found.values(), key=lambda a: (SEVERITIES.index(a.severity), a.since))
    return ranked if monitors else None


def _firing(alerts: Iterable[Alert]) -> list[AlertLine]:
    return [
        AlertLine(a.name, a.severity, a.component, a.since, a.summary, a.runbook)
        for a in alerts
        if a.state == "firing"
    ]


def _dated(component: Component, alerts: list[Alert]) -> Component:
    """With the alerts that tell of its part. Infos go on for long after what they tell of."""
    part = "jobs" if component.name.startswith("Job ") else ALERTS.get(component.name)
    if component.state == HEALTHY or part is None:
        return component
    mine = [a for a in alerts if a.component == part and a.severity != SEVERITIES[-1]]
    ages = sorted((a.since, a.name) for a in mine)
    return replace(component, since={name: since for since, name in reversed(ages)})


def _applications(snapshot: Snapshot) -> list[Application]:
    managers = known(snapshot.resourcemanagers.values())
    return [app for manager in managers for app in manager.applications]


def _host(plan: Plan, name: str, snapshot: Snapshot) -> HostLine:
    host, facts = plan.host(name), snapshot.hosts[name]
    if not isinstance(facts, HostFacts):
        state = "down" if isinstance(facts, Fault) else "unknown"
        return HostLine(host.zone, host.address, state, facts.why, {}, None, None)
    roles = _roles(plan, name, snapshot)
    restarts = [unit.restarts for unit in facts.units.values() if unit.restarts is not None]
    return HostLine(
        host.zone,
        host.address,
        UP,
        "",
        {
            service: roles.get(service, "up") if unit.is_active else "down"
            for service, unit in facts.units.items()
        },
        sum(restarts) if len(restarts) == len(facts.units) else None,
        facts.resident,
    )


def _roles(plan: Plan, host: str, snapshot: Snapshot) -> dict[str, str]:
    """Returns the roles of a host's services that have one and say so."""
    found: dict[str, str] = {}
    mode = snapshot.zookeeper.get(host)
    if isinstance(mode, str):
        found["zookeeper"] = mode
    pairs: dict[str, Mapping[str, Reply[Any]]] = {
        "redis": snapshot.redis,
        "namenode": snapshot.namenodes,
        "resourcemanager": snapshot.resourcemanagers,
    }
    for service, replies in pairs.items():
        if host in replies and (answers := known([replies[host]])):
            found[service] = answers[0].role
    controllers = known(snapshot.controllers.values())
    newest = max(controllers, key=lambda one: one.epoch, default=None)
    if host in snapshot.controllers and newest:
        leads = newest.leader == CONTROLLER_ID_BASE + plan.host(host).index
        found["kafka_controller"] = "leader" if leads else "follower"
    return found


def _reachable_endpoints(plan: Plan) -> dict[str, list[str]]:
    """Endpoints by address: whoever asks for the status doesn't know the hosts' names."""
    return {
        "insights": plan.doors("insights"),
        "intake": plan.doors("intake"),
        "kafka": plan.addresses("kafka_broker", "outside"),
        "zookeeper": plan.addresses("zookeeper", "client"),
        "cassandra": plan.addresses("cassandra", "native"),
        "sentinels": plan.addresses("redis_sentinel", "client"),
        "namenodes": [f"http://{a}" for a in plan.addresses("namenode", "http")],
        "resourcemanagers": [f"http://{a}" for a in plan.addresses("resourcemanager", "http")],
    }
