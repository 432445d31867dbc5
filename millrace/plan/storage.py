"""What HDFS and Cassandra hold once all is as old as its settings let it become. Pure.

How long each kind of data is kept stands in its own setting, and nowhere else; how much of it there
is in a day follows from the environment's load and the assumptions of configs/capacity.yaml.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import ceil

from millrace.config import MOST_GIBIBYTES, Environment
from millrace.config.jobs import ARCHIVE
from millrace.plan.capacity import SECONDS_PER_DAY, TB, Assumptions, load_assumptions
from millrace.plan.spark import SparkSettings

GIB = 2**30
HOUR = 3600
# Of minutes and of hours.
WINDOWS_PER_DAY = 1_440 + 24
TRAFFIC = "traffic"
# The jobs that are no file of somebody's, as every environment runs them.
PROGRAMS = (ARCHIVE, TRAFFIC)


@dataclass(frozen=True)
class Kept:
    """``bytes`` of one copy, and why so many."""

    what: str
    bytes: float
    because: str


@dataclass(frozen=True)
class Store:
    """What a store keeps: ``copies`` of each kind, on disks ``overhead`` times as large."""

    kinds: list[Kept]
    copies: int
    overhead: float = 1.0

    @property
    def one_copy(self) -> float:
        return sum(kind.bytes for kind in self.kinds)

    @property
    def bytes(self) -> float:
        """Of all copies, without what compaction takes meanwhile."""
        return self.one_copy * self.copies

    @property
    def said(self) -> str:
        return ", ".join(f"{kind.what} ({kind.because})" for kind in self.kinds)


@dataclass(frozen=True)
class Stored:
    """``events_per_second`` and ``bytes`` of the stream that all jobs read by default.

    Other streams have no stated load: their archives and their jobs' rows aren't counted.
    """

    events_per_second: float
    bytes: float
    settings: SparkSettings
    jobs: Collection[str]
    assume: Assumptions

    def in_hdfs(self, copies: int) -> Store:
        return Store([*self._archived(), *self._checkpoints()], copies)

    def in_cassandra(self, copies: int) -> Store:
        return Store([*self._results(), *self._rows()], copies, self.assume["compaction_overhead"])

    def _archived(self) -> Iterator[Kept]:
        """A file that was merged stays beside the merged one, and one that has expired, both for
        as many days."""
        if ARCHIVE not in self.jobs:
            return
        day = self._events_per_day * self.bytes * self.assume["archived_share"]
        days, replaced = self.settings.archive.keep_days, self.settings.defaults.replaced_days
        yield Kept("the archive", day * days, f"{days} days")
        yield Kept("its files that were merged", day * replaced, f"{replaced} days")
        yield Kept("its files that have expired", day * replaced, f"{replaced} days")

    def _checkpoints(self) -> Iterator[Kept]:
        versions = self.settings.defaults.state_versions
        for job in sorted(self.jobs):
            if state := self._state(job):
                yield Kept(f"the checkpoint of {job}", state * versions, f"{versions} snapshots")

    def _state(self, job: str) -> float:
        """Bytes of a job's state, at its largest."""
        if job == TRAFFIC:
            traffic = self.settings.traffic
            days = (traffic.watermark_seconds + HOUR) / SECONDS_PER_DAY
            return days * (self._windows_per_day + self._pages_per_day)
        if self.settings.keeps_rows(job):
            return (self.settings.job(job).max_keys or 0) * self.assume["state_bytes"]
        return 0.0

    def _results(self) -> Iterator[Kept]:
        """Windows and pages are as many, however many events they count."""
        if TRAFFIC in self.jobs:
            days = self.settings.traffic.keep_days
            yield Kept("windows", self._windows_per_day * days, f"{days} days")
            days = self.settings.traffic.pages_keep_days
            yield Kept("pages", self._pages_per_day * days, f"{days} days")
        if ARCHIVE in self.jobs:
            days = self.settings.archive.keep_days
            yield Kept("dead letters", self._letters_per_day * days, f"{days} days")

    def _rows(self) -> Iterator[Kept]:
        """Of jobs of one file."""
        for name in sorted(filter(self.settings.keeps_rows, self.jobs)):
            job = self.settings.job(name)
            if self.settings.streams_of(name) != [self.settings.common.stream]:
                continue
            rows = self._events_per_day * (job.rows_per_event or 0)
            days = job.keep_days or 0
            yield Kept(f"rows of {name}", rows * self.assume["result_bytes"] * days, f"{days} days")

    @property
    def _events_per_day(self) -> float:
        return self.events_per_second * SECONDS_PER_DAY

    @property
    def _windows_per_day(self) -> float:
        return WINDOWS_PER_DAY * (self.assume["result_bytes"] + self.assume["sketch_bytes"])

    @property
    def _pages_per_day(self) -> float:
        return 24 * self.settings.traffic.pages_tracked * self.assume["result_bytes"]

    @property
    def _letters_per_day(self) -> float:
        """As if each batch had letters of one reason: samples of them, and their count."""
        batches = SECONDS_PER_DAY / self.settings.archive.trigger_seconds
        rows = batches * (self.settings.common.dead_letter_samples + 1)
        return rows * self.assume["result_bytes"]


@dataclass(frozen=True)
class Room:
    """What a store has of disks: ``disk`` GiB on each host, of which ``reserved`` bytes aren't its.

    ``zones`` says how many of the hosts are in each.
    """

    zones: list[int]
    disk: int
    reserved: int = 0

    @property
    def hosts(self) -> int:
        return sum(self.zones)

    @property
    def left(self) -> int:
        """Hosts that are left when the largest zone is away."""
        return self.hosts - max(self.zones)

    @property
    def usable(self) -> float:
        """Bytes of one host."""
        return self.disk * GIB - self.reserved


def hdfs_share(store: Store, room: Room, fill: float) -> float:
    """Bytes that each host must have room for.

    All hosts' disks may be full up to ``fill``. When a zone is away for long, HDFS makes its copies
    anew on what is left; were there no room, it would take no more blocks.
    """
    shares = [store.bytes / (room.hosts * fill)]
    if room.left:
        shares.append(store.one_copy * min(store.copies, room.left) / room.left)
    return max(shares)


def cassandra_share(store: Store, room: Room, fill: float) -> float:
    """The same of Cassandra: each zone has a copy, if there are as many zones as copies, and
    compaction needs its own room."""
    return _data_of_a_node(store, room) * store.overhead / fill


def _data_of_a_node(store: Store, room: Room) -> float:
    if len(room.zones) == store.copies:
        return store.one_copy / min(room.zones)
    return store.bytes / room.hosts


@dataclass(frozen=True)
class Need:
    """What a store needs of the disks that its service has; ``otherwise`` is what would do, too.

    ``share`` says how many bytes each host needs, of any number of hosts.
    """

    service: str
    store: Store
    room: Room
    share: Callable[[Room], float]
    otherwise: str

    @property
    def size(self) -> int:
        """GiB of each host's disk."""
        return ceil((self.share(self.room) + self.room.reserved) / GIB)

    @property
    def fits(self) -> bool:
        return self.share(self.room) <= self.room.usable


def needs(
    environment: Environment, settings: SparkSettings, jobs: Collection[str], reserved: int
) -> Iterator[Need]:
    """What both stores need, where disks are planned.

    Args:
        reserved: bytes that HDFS leaves free on each disk.
    """
    if environment.aws is None or environment.load is None:
        return
    assume, load = load_assumptions(), environment.load
    fill = assume["disk_fill"]
    stored = Stored(load.events_per_second, load.bytes, settings, jobs, assume)
    hdfs = stored.in_hdfs(environment.replication.hdfs)
    results = stored.in_cassandra(environment.replication.cassandra)
    if room := _room(environment, "datanode", reserved):
        shorter = "lower archive.keep_days in configs/components/spark.yaml"
        yield Need("datanode", hdfs, room, partial(hdfs_share, hdfs, fill=fill), shorter)
    if room := _room(environment, "cassandra"):
        shorter = "lower the keep_days of what takes most"
        yield Need(
            "cassandra", results, room, partial(cassandra_share, results, fill=fill), shorter
        )


def problems(
    environment: Environment, settings: SparkSettings, jobs: Collection[str], reserved: int
) -> Iterator[str]:
    """Says which disks on AWS can't hold what is kept, and what would; arguments as of `needs`."""
    for need in needs(environment, settings, jobs, reserved):
        if not need.fits:
            yield _disk_problem(environment, need)
        if need.service == "cassandra":
            yield from _node_problems(environment, need)


def _room(environment: Environment, service: str, reserved: int = 0) -> Room | None:
    """None where no group runs the service, or it has no disk: that is refused elsewhere."""
    group = _group(environment, service)
    if environment.aws is None or group is None or service not in environment.aws.disks:
        return None
    zones = _dealt(environment.groups[group].hosts, len(environment.zones))
    return Room(zones, environment.aws.disks[service].size, reserved)


def _group(environment: Environment, service: str) -> str | None:
    found = (name for name, group in environment.groups.items() if service in group.services)
    return next(found, None)


def _dealt(hosts: int, zones: int) -> list[int]:
    """How many hosts of a group each zone has: they are dealt to the zones in turn."""
    return [hosts // zones + (zone < hosts % zones) for zone in range(min(hosts, zones))]


def _disk_problem(environment: Environment, need: Need) -> str:
    room, store = need.room, need.store
    remedies = [f"make it {need.size:,}"] if need.size <= MOST_GIBIBYTES else []
    if room.usable > 0:
        enough = _enough(environment, room, lambda more: need.share(more) <= more.usable)
        remedies.append(f"give groups.{_group(environment, need.service)} {enough} hosts")
    return (
        f"aws.disks.{need.service}.size: {room.disk:,} GiB; at the environment's load each of"
        f" {room.hosts} hosts needs {need.size:,} for {store.copies} copies of {store.said}:"
        f" {', or '.join([*remedies, need.otherwise])}"
    )


def _node_problems(environment: Environment, need: Need) -> Iterator[str]:
    """What a node may hold, however large its disk is."""
    most = load_assumptions()["cassandra_node_tb"] * TB
    data = _data_of_a_node(need.store, need.room)
    if data > most:
        enough = _enough(
            environment, need.room, lambda more: _data_of_a_node(need.store, more) <= most
        )
        yield (
            f"groups.{_group(environment, need.service)}.hosts: {need.room.hosts}, and each holds"
            f" {data / TB:,.1f} TB of {need.store.said}; a node with more than {most / TB:g} TB"
            " (cassandra_node_tb in configs/capacity.yaml) is slow to bring back:"
            f" make it {enough}, or {need.otherwise}"
        )


def _enough(environment: Environment, room: Room, fits: Callable[[Room], bool]) -> int:
    """The least number of hosts that is enough, with the disks that there are."""
    zones = len(environment.zones)
    rooms = (replace(room, zones=_dealt(hosts, zones)) for hosts in count(room.hosts))
    return next(each.hosts for each in rooms if fits(each))
