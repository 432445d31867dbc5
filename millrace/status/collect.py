"""Asks a cluster how it is: everybody at once, in one round with one deadline.

What operators may call is asked itself, at its own port. Units, disks and whatever nobody outside
the cluster may call is read from Prometheus' figures. A host is asked by SSH only where those are
missing or say that something is wrong with it; all hosts where no Prometheus answers, or when
fresh answers are wanted.
"""

import json
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from millrace.cluster import doors, kafka, probe, prometheus, services, tunnel, zookeeper
from millrace.cluster.doors import Credentials
from millrace.cluster.kafka import AdminClient, KafkaException
from millrace.cluster.ssh import run_on
from millrace.common.errors import OperatorError
from millrace.plan import DATA_ROOT, Endpoint, Host, Plan
from millrace.status import figures
from millrace.status.asking import Pending, Round
from millrace.status.snapshot import (
    Controller,
    Coordination,
    Drivers,
    Event,
    Fault,
    HostFacts,
    Kafka,
    Lag,
    Monitor,
    Progress,
    Reply,
    Silence,
    Snapshot,
    Unit,
    Upkeep,
    known,
)

T = TypeVar("T")
# Read when it is needed: a status is shown without it, too.
Access = Callable[[], Credentials]

SECONDS = 7.0  # for all of it; with a start and an end on full cores it is ten
FIGURES_SECONDS = 3.0  # then hosts are asked themselves
FRESH_SECONDS = 30.0  # to enter every host takes that long on full cores
LOOK_BACK = "6h"
# Of ssh, which ends with 255 as well when a host is too busy to let it in.
NO_WAY = ("connect to host", "connect failed", "TargetNotConnected")
# Of each service, the port at which each host is asked for itself. The programs behind the proxy
# are asked where it hands on to those of its own host alone.
PLACES = {
    "zookeeper": ("zookeeper", "client"),
    "redis": ("redis", "client"),
    "redis_sentinel": ("redis_sentinel", "client"),
    "namenode": ("namenode", "http"),
    "resourcemanager": ("resourcemanager", "http"),
    "insight_api": (doors.SERVICE, doors.OWN_INSIGHTS),
    "collector": (doors.SERVICE, doors.OWN_INTAKE),
    "prometheus_server": ("prometheus_server", "http"),
}


@dataclass(frozen=True)
class HostWord:
    """What a host says by SSH: of itself, and of its services that nobody outside may call."""

    facts: HostFacts
    controller: Reply[Controller] | None = None
    peers: Reply[int] | None = None


def collect(plan: Plan, *, fresh: bool = False) -> Snapshot:
    """A snapshot of the plan's cluster.

    Some of it is as old as Prometheus' last scrapes. Who acts on what was true after a fault, as
    drills and deployments do, wants it ``fresh``: then every host is asked itself.

    UnreachableError where hosts are reached by way of an edge host and none lets this machine in.
    """
    places = (at for place in PLACES.values() for at in plan.reachable(*place))
    tunnel.prepare(plan, list(places))
    asked = Round(FRESH_SECONDS if fresh else SECONDS)
    sooner = Round(FIGURES_SECONDS)
    longest = figures.stale_seconds(plan)
    scrapes = _each(
        sooner,
        plan,
        "prometheus_server",
        lambda at, left: prometheus.scraped(at, figures.SELECTOR, longest, left),
    )
    zookeepers = _each(asked, plan, "zookeeper", services.zookeeper_mode)
    redis = _each(asked, plan, "redis", services.redis)
    master = plan.names.redis.master
    sentinels = _each(
        asked, plan, "redis_sentinel", lambda at, left: services.sees_quorum(at, master, left)
    )
    namenodes = _each(asked, plan, "namenode", services.namenode)
    resourcemanagers = _each(asked, plan, "resourcemanager", services.resourcemanager)
    access = cache(partial(doors.credentials, plan))
    apis = _each(asked, plan, "insight_api", partial(_is_ready, access))
    collectors = _each(asked, plan, "collector", partial(_is_ready, access))
    progress = _each(asked, plan, "insight_api", partial(_progress, access))
    events = _each(asked, plan, "insight_api", partial(_events, access))
    coordination = asked.ask("ZooKeeper", lambda: _coordination(plan, asked.left))
    admin = kafka.connect(plan)
    brokers = asked.ask("Kafka", lambda: _kafka(admin, asked.left))

    if fresh:
        words = _ask_hosts(asked, plan, plan.hosts)  # they don't wait for Prometheus
        told, found = figures.read(plan, _replies(scrapes)), figures.Figures()
    else:
        told = found = figures.read(plan, _replies(scrapes))
        words = _ask_hosts(asked, plan, doubtful(plan, found))
    ring = None if found.ring else asked.ask("Cassandra", lambda: _ring(plan))
    # One that was behind may have caught up since.
    level = {job: lag for job, lag in found.lags.items() if not lag.overdue}
    lags = {
        job: asked.ask(f"Kafka, of {job}", partial(_lag, admin, plan, job, told.lags.get(job)))
        for job in plan.jobs
        if job not in level
    }
    said = _replies(words)
    return Snapshot(
        at=time.time(),
        hosts={host.name: _host(host.name, said, found) for host in plan.hosts},
        zookeeper=_replies(zookeepers),
        controllers=_of_hosts(
            plan, "kafka_controller", said, found.controllers, lambda word: word.controller
        ),
        redis=_replies(redis),
        sentinels=_replies(sentinels),
        namenodes=_replies(namenodes),
        resourcemanagers=_replies(resourcemanagers),
        apis=_replies(apis),
        collectors=_replies(collectors),
        monitors={host: _monitor(reply) for host, reply in _replies(scrapes).items()},
        alertmanagers=_of_hosts(
            plan, "alertmanager", said, found.alertmanagers, lambda word: word.peers
        ),
        kafka=brokers.reply(),
        ring=found.ring if ring is None else ring.reply(),
        coordination=coordination.reply(),
        backlogs=found.backlogs,
        lags={job: lags[job].reply() if job in lags else level[job] for job in plan.jobs},
        progress=_first(_replies(progress)),
        events=_first(_replies(events)),
        age=found.age,
    )


def doubtful(plan: Plan, found: figures.Figures) -> list[Host]:
    """Hosts that are asked themselves: no figure says that they, and what is on them, are well."""
    missing = set(found.doubts)
    missing |= {h.name for h in plan.hosts_of("kafka_controller")} - found.controllers.keys()
    pair = plan.hosts_of("alertmanager")
    missing |= {host.name for host in pair if found.alertmanagers.get(host.name, 0) < len(pair)}
    return [host for host in plan.hosts if host.name in missing]


def _each(
    asked: Round, plan: Plan, service: str, question: Callable[[Endpoint, float], T]
) -> dict[str, Pending[T]]:
    """A question to a service's every host, with the seconds that are left for it."""

    def ask(host: Host) -> T:
        return question(tunnel.on_host(plan, host, *PLACES[service]), asked.left)

    unit = {name: made.unit for name, made in plan.services.items()}
    return {
        host.name: asked.ask(f"{host.name}: {unit[service]}", partial(ask, host))
        for host in plan.hosts_of(service)
    }


def _replies(pending: Mapping[str, Pending[T]]) -> dict[str, Reply[T]]:
    return {name: one.reply() for name, one in pending.items()}


def _first(replies: Mapping[str, Reply[T]]) -> Reply[T]:
    """An answer of any of them; else why the first has none."""
    answers = known(replies.values())
    return (
        answers[0] if answers else next(iter(replies.values()), Silence("nobody is there to ask"))
    )


# -- What services say


def _monitor(reply: Reply[prometheus.Scraped]) -> Reply[Monitor]:
    if not isinstance(reply, prometheus.Scraped):
        return reply
    silent = sum(target.health == "down" for target in reply.targets)
    return Monitor(len(reply.targets), silent, reply.alerts)


def _is_ready(access: Access, at: Endpoint, left: float) -> bool:
    return services.is_ready(at, access(), left)


def _progress(access: Access, at: Endpoint, left: float) -> tuple[Progress, ...]:
    found = services.get_json(at, "/v1/progress", left, access())["jobs"]
    return tuple(Progress(job["job"], job["batch"], job.get("watermark")) for job in found)


def _events(access: Access, at: Endpoint, left: float) -> tuple[Event, ...]:
    """Take-overs, restarts, deployments and alerts, the newest first."""
    path = f"/v1/operations/events?range={LOOK_BACK}"
    found = services.get_json(at, path, left, access())["events"]
    return tuple(
        Event(datetime.fromisoformat(event["at"]).timestamp(), event["kind"], event["text"])
        for event in found
    )


# -- What ZooKeeper, Kafka and Cassandra say


def ask_drivers(plan: Plan) -> Reply[Drivers]:
    """Returns the drivers that are registered."""
    try:
        return zookeeper.drivers(plan)
    except OperatorError as error:
        return Silence(error.message)


def _coordination(plan: Plan, left: float) -> Coordination:
    found = zookeeper.coordination(plan, left)
    return Coordination(
        found.drivers,
        frozenset(found.disabled),
        Upkeep(**found.upkeep) if found.upkeep else None,
    )


def _kafka(admin: AdminClient, left: float) -> Kafka:
    try:
        metadata = admin.list_topics(timeout=left)
    except KafkaException as error:
        raise OperatorError(kafka.reason(error)) from None
    partitions = [p for topic in metadata.topics.values() for p in topic.partitions.values()]
    return Kafka(
        brokers=len(metadata.brokers),
        partitions=len(partitions),
        under_replicated=sum(len(p.isrs) < len(p.replicas) for p in partitions),
        leaderless=sum(p.leader < 0 for p in partitions),
    )


def _lag(admin: AdminClient, plan: Plan, job: str, told: Lag | None) -> Lag:
    """What a job has before it now. How many of these wait for too long is known by the gateway
    alone, who has looked all along; a broker that is asked for it may end: see
    `millrace_gateway.lag.Ends`."""
    try:
        records = kafka.lag(admin, plan, job)
    except KafkaException as error:
        raise OperatorError(kafka.reason(error)) from None
    return Lag(records, min(records, told.overdue if told else 0))


def _ring(plan: Plan) -> dict[str, str]:
    from millrace.status.ring import ring  # half a second of processor time, seldom needed

    if not (found := ring(plan)):
        raise OperatorError("no node answers")
    return found


# -- What hosts say


def _ask_hosts(asked: Round, plan: Plan, hosts: Iterable[Host]) -> dict[str, Pending[HostWord]]:
    return {
        host.name: asked.ask(f"{host.name} by SSH", partial(_ask_host, asked, plan, host))
        for host in hosts
    }


def _ask_host(asked: Round, plan: Plan, host: Host) -> HostWord:
    wanted = {service: _question(plan, host, service) for service in host.services}
    command = ["sudo", "python3", "-", shlex.quote(json.dumps(wanted))]
    program = Path(probe.__file__).read_text()
    try:
        done = run_on(plan, host, command, stdin=program, timeout=asked.left)
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    if done.returncode == 0:
        return host_word(json.loads(done.stdout))
    reason = (done.stderr.strip() or "unreachable").splitlines()[-1]
    if any(words in done.stderr for words in NO_WAY):
        raise OSError(reason)
    raise OperatorError(reason)


def _question(plan: Plan, host: Host, name: str) -> dict[str, Any]:
    service = plan.services[name]
    return {
        "unit": service.unit,
        "ports": service.ports,
        "address": host.address,
        "data": f"{DATA_ROOT}/{service.unit}",
    }


def host_word(answer: dict[str, Any]) -> HostWord:
    """Reads what the probe printed."""
    said = answer["services"]
    facts = HostFacts(
        {name: Unit(service["active"], service["restarts"]) for name, service in said.items()},
        {s["disk"]["path"]: s["disk"]["free"] for s in said.values() if "disk" in s},
        answer["resident"],
    )
    return HostWord(
        facts,
        _said(said.get("kafka_controller"), lambda one: Controller(one["leader"], one["epoch"])),
        _said(said.get("alertmanager"), lambda one: int(one["peers"])),
    )


def _said(service: dict[str, Any] | None, read: Callable[[dict[str, Any]], T]) -> Reply[T] | None:
    if service is None:
        return None
    if "error" not in service:
        return read(service)
    error = service["error"]
    return Silence(error) if "timed out" in error else Fault(error)


def _host(
    name: str, said: Mapping[str, Reply[HostWord]], found: figures.Figures
) -> Reply[HostFacts]:
    """Judges a host by its own word, or else by figures that say that it is well."""
    word = said.get(name)
    if isinstance(word, HostWord):
        return word.facts
    if word is None or (isinstance(word, Silence) and name in found.hosts):
        return found.hosts[name]
    doubt = found.doubts.get(name)
    return replace(word, why=f"{word.why}; {doubt}") if doubt else word


def _of_hosts(
    plan: Plan,
    service: str,
    said: Mapping[str, Reply[HostWord]],
    by_figures: Mapping[str, T],
    read: Callable[[HostWord], Reply[T] | None],
) -> dict[str, Reply[T]]:
    """Returns what a service says that only its host may ask: by the host's word, or else by
    figures."""

    def reply(host: str) -> Reply[T]:
        word = said.get(host)
        if isinstance(word, HostWord) and (answer := read(word)) is not None:
            return _named(f"{host}: {plan.services[service].unit}", answer)
        if host in by_figures:
            return by_figures[host]
        return word if isinstance(word, Silence | Fault) else Silence(f"{host} doesn't say")

    return {host.name: reply(host.name) for host in plan.hosts_of(service)}


def _named(whom: str, reply: Reply[T]) -> Reply[T]:
    if isinstance(reply, Silence | Fault):
        return replace(reply, why=f"{whom}: {reply.why}")
    return reply
