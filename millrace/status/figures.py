"""What Prometheus' figures say of hosts and of services that operators may not call. Pure.

Each Prometheus scrapes all targets for itself; of each target the one that has reached it last is
believed. A figure is as old as its scrape, so it is taken for an answer only where it says that all
is well: whatever it says against a host is asked of the host. On a busy machine a scrape may get no
answer in time; the one before counts as long as no later one met nobody.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from millrace.cluster.prometheus import Sample, Scraped, Target
from millrace.common.durations import parse_duration
from millrace.plan import DATA_ROOT, Host, Plan
from millrace.status.snapshot import Backlog, Controller, HostFacts, Lag, Reply, Unit, known

UNIT = "node_systemd_unit_state"
RESTARTS = "node_systemd_service_restart_total"
DISK_FREE = "node_filesystem_avail_bytes"
DISK_SIZE = "node_filesystem_size_bytes"
LEADER = "kafka_server_raft_metrics_current_leader"
EPOCH = "kafka_server_raft_metrics_current_epoch"
PEERS = "alertmanager_cluster_members"
NODES_DOWN = "cassandra_failuredetector_downendpointcount"
NODE_MODE = "cassandra_storageservice_operationmode"
LOOKED = "millrace_gateway_looked_timestamp_seconds"
LAG = "millrace_job_lag_records"
OVERDUE = "millrace_job_overdue_records"
BEHIND_SINCE = "millrace_job_behind_since_timestamp_seconds"
CATCH_UP = "millrace_job_catch_up_seconds"
NAMES = (
    *(UNIT, RESTARTS, DISK_FREE, DISK_SIZE, LEADER, EPOCH, PEERS, NODES_DOWN, NODE_MODE),
    *(LOOKED, LAG, OVERDUE, BEHIND_SINCE, CATCH_UP),
)
# All of it in one query; only units have a state.
SELECTOR = f'{{__name__=~"{"|".join(NAMES)}",state=~"active|"}}'
# A figure counts for so many scrapes: one may be lost, and the next is on its way.
SCRAPES = 3


@dataclass(frozen=True)
class Figures:
    """What was read, of those of which something recent says that they are well.

    ``doubts`` has the other hosts, and why, where that is more than that no Prometheus has figures.
    ``age`` is the oldest of what was used, in seconds.
    """

    hosts: Mapping[str, HostFacts] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)
    controllers: Mapping[str, Controller] = field(default_factory=dict)
    alertmanagers: Mapping[str, int] = field(default_factory=dict)
    ring: Mapping[str, str] = field(default_factory=dict)
    lags: Mapping[str, Lag] = field(default_factory=dict)
    backlogs: Mapping[str, Backlog] = field(default_factory=dict)
    age: float | None = None


def read(plan: Plan, replies: Mapping[str, Reply[Scraped]]) -> Figures:
    """The figures of all Prometheis that answered, by the edge host that each is on."""
    told = _Told(plan, known(replies.values()))
    hosts = {host.name: _host(plan, told, host) for host in plan.hosts}
    controllers = dict(_controllers(plan, told))
    if len({controller.leader for controller in controllers.values()}) != 1:
        controllers = {}  # an election is under way, or was between two scrapes
    gateway = _gateway(plan, told)
    return Figures(
        {name: facts for name, facts in hosts.items() if isinstance(facts, HostFacts)},
        {name: doubt for name, doubt in hosts.items() if isinstance(doubt, str)},
        controllers,
        {
            host.name: int(value)
            for host in plan.hosts_of("alertmanager")
            if (value := told.value("alertmanager", host.name, PEERS)) is not None
        },
        _ring(plan, told),
        _lags(plan, told, gateway) if gateway else {},
        _backlogs(told, gateway) if gateway else {},
        max(told.ages, default=None),
    )


class _Told:
    """Each target's figures, of the Prometheus that reached it last; none that are too old."""

    def __init__(self, plan: Plan, answers: Iterable[Scraped]) -> None:
        self._plan = plan
        self._longest = stale_seconds(plan)
        self._samples: dict[tuple[str, str], list[Sample]] = {}
        self._at: dict[tuple[str, str], float] = {}
        self._failed: dict[tuple[str, str], list[Target]] = {}
        for answer in answers:
            self._take(answer)

    @property
    def ages(self) -> list[float]:
        return [samples[0].age for samples in self._samples.values()]

    def _take(self, answer: Scraped) -> None:
        for target in answer.targets:
            if target.health != "up":
                self._failed.setdefault((target.job, target.host), []).append(target)
        for place, samples in _last_scrapes(answer).items():
            age, best = samples[0].age, self._samples.get(place)
            if age <= self._longest and (best is None or age < best[0].age):
                self._samples[place] = samples
                self._at[place] = answer.at

    def samples(self, service: str, host: str, name: str) -> list[Sample]:
        place = self._plan.services[service].unit, host
        if place not in self._samples or self._is_refused(place):
            return []
        return [sample for sample in self._samples[place] if sample.name == name]

    def value(self, service: str, host: str, name: str) -> float | None:
        return next((sample.value for sample in self.samples(service, host, name)), None)

    def at(self, service: str, host: str) -> float:
        """Returns when that was asked, by the clock of the Prometheus that has it."""
        return self._at[self._plan.services[service].unit, host]

    def _is_refused(self, place: tuple[str, str]) -> bool:
        """Returns whether a later scrape than the one that is believed met nobody."""
        age = self._samples[place][0].age
        failed = self._failed.get(place, [])
        return any(target.age < age and is_refusal(target.error) for target in failed)

    def doubt(self, host: Host) -> str:
        if not self._at:
            return ""  # no Prometheus has any figures: that is told once, of them
        place = self._plan.services["node_exporter"].unit, host.name
        newest = min(self._failed.get(place, []), key=lambda target: target.age, default=None)
        if newest is None:
            return "Prometheus has no recent figures of it"
        if newest.health == "unknown":
            return "Prometheus has not asked it yet"
        return f"Prometheus, {newest.age:.0f} s ago: {newest.error}"


def _last_scrapes(answer: Scraped) -> dict[tuple[str, str], list[Sample]]:
    """Returns the last scrapes by service and host; without series that have ended since."""
    found: dict[tuple[str, str], list[Sample]] = {}
    for sample in sorted(answer.samples, key=lambda sample: sample.age):
        scrape = found.setdefault((sample.job, sample.host), [])
        if not scrape or scrape[0].age == sample.age:
            scrape.append(sample)
    return found


def stale_seconds(plan: Plan) -> float:
    """From which age on a scrape says nothing of the present."""
    if "prometheus_server" not in plan.services:
        return 0.0
    settings = plan.services["prometheus_server"].settings["prometheus.yml"]
    return SCRAPES * parse_duration(settings["scrape_interval"])


def is_refusal(error: str) -> bool:
    """A scrape that met nobody, other than one that got no answer in time."""
    return any(word in error for word in ("refused", "no route", "unreachable", "host is down"))


def _host(plan: Plan, told: _Told, host: Host) -> HostFacts | str:
    """Or why there are none: of each host whose units aren't all known to be active."""
    units = {sample.labels["name"]: sample.value for sample in _of(told, host, UNIT)}
    restarts = {sample.labels["name"]: int(sample.value) for sample in _of(told, host, RESTARTS)}
    names = {service: f"{plan.services[service].unit}.service" for service in host.services}
    if not units.keys() >= set(names.values()):
        return told.doubt(host)
    if inactive := [name for name in names.values() if units[name] != 1]:
        return f"by Prometheus {', '.join(inactive)} was not active"
    return HostFacts(
        {service: Unit(is_active=True, restarts=restarts.get(n)) for service, n in names.items()},
        _disks(told, host),
    )


def _of(told: _Told, host: Host, name: str) -> list[Sample]:
    return told.samples("node_exporter", host.name, name)


def _disks(told: _Told, host: Host) -> dict[str, float]:
    """Returns for each disk with a service's data the share that is left."""
    sizes = {sample.labels["mountpoint"]: sample.value for sample in _of(told, host, DISK_SIZE)}
    free = {sample.labels["mountpoint"]: sample.value for sample in _of(told, host, DISK_FREE)}
    return {
        place: free[place] / size
        for place, size in sizes.items()
        if place.startswith(f"{DATA_ROOT}/") and size and place in free
    }


def _controllers(plan: Plan, told: _Told) -> Iterator[tuple[str, Controller]]:
    for host in plan.hosts_of("kafka_controller"):
        leader = told.value("kafka_controller", host.name, LEADER)
        epoch = told.value("kafka_controller", host.name, EPOCH)
        if leader is not None and epoch is not None:
            yield host.name, Controller(int(leader), int(epoch))


def _ring(plan: Plan, told: _Told) -> dict[str, str]:
    """Every node up and normal, by its own word and with no other one missing; else nothing."""
    nodes = plan.hosts_of("cassandra")
    is_whole = all(
        told.value("cassandra", node.name, NODES_DOWN) == 0
        and [s.labels.get("value") for s in told.samples("cassandra", node.name, NODE_MODE)]
        == ["NORMAL"]
        for node in nodes
    )
    return {node.address: "UN" for node in nodes} if is_whole else {}


def _gateway(plan: Plan, told: _Told) -> str | None:
    """The host of the gateway that has looked last; None when none has of late."""
    looks = {
        host.name: looked
        for host in plan.hosts_of("job_gateway")
        if (looked := told.value("job_gateway", host.name, LOOKED))
        and told.at("job_gateway", host.name) - looked <= stale_seconds(plan)
    }
    return max(looks, key=lambda name: looks[name], default=None)


def _lags(plan: Plan, told: _Told, host: str) -> dict[str, Lag]:
    records = _by_job(told, host, LAG)
    overdue = _by_job(told, host, OVERDUE)
    return {
        job: Lag(records[job], overdue[job])
        for job in plan.jobs
        if job in records and job in overdue
    }


def _backlogs(told: _Told, host: str) -> dict[str, Backlog]:
    """Of the past alone: whether a job is behind now is asked of Kafka."""
    seconds = _by_job(told, host, CATCH_UP)
    return {
        job: Backlog(since, seconds.get(job))
        for job, since in _by_job(told, host, BEHIND_SINCE).items()
    }


def _by_job(told: _Told, host: str, name: str) -> dict[str, int]:
    return {s.labels["name"]: int(s.value) for s in told.samples("job_gateway", host, name)}
