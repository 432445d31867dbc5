"""What HDFS and Cassandra hold once all is as old as its settings let it become. Pure.

How long each kind of data is kept stands in its own setting, and nowhere else; how much of it there
is in a day follows from the environment's load and the assumptions of configs/capacity.yaml.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import count
from math import ceil

from millrace.config import Environment
from millrace.config.jobs import ARCHIVE
from millrace.plan.capacity import SECONDS_PER_DAY, TB, Assumptions, load_assumptions
from millrace.plan.spark import SparkSettings

GIB = 2**30
HOUR = 3600
# Of minutes and of hours.
WINDOWS_PER_DAY = 1_440 + 24
# A gp3 volume's (EBS User Guide, "General Purpose SSD volumes").
MOST_DISK = 16_384
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
        return "; ".join(f"{kind.what} for {kind.because}" for kind in self.kinds)


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
    disk: float
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


def problems(
    environment: Environment, settings: SparkSettings, jobs: Collection[str], reserved: int
) -> Iterator[str]:
    """Says which disks on AWS can't hold what is kept, and what would.

    Args:
        reserved: bytes that HDFS leaves free on each disk.
    """
    if environment.aws is None or environment.load is None:
        return
    assume = load_assumptions()
    load = environment.load
    stored = Stored(load.events_per_second, load.bytes, settings, jobs, assume)
    hdfs = stored.in_hdfs(environment.replication.hdfs)
    results = stored.in_cassandra(environment.replication.cassandra)
    most = assume["cassandra_node_tb"] * TB
    fill = assume["disk_fill"]
    yield from _problem(
        environment,
        "datanode",
        reserved,
        hdfs,
        lambda room: hdfs_share(hdfs, room, fill),
        "or lower archive.keep_days in configs/components/spark.yaml",
    )
    if crowded := _nodes_problem(environment, results, most):
        yield crowded
    yield from _problem(
        environment,
        "cassandra",
        0,
        results,
        lambda room: cassandra_share(results, room, fill),
        "or lower keep_days of what takes most",
    )


def room_of(environment: Environment, service: str, reserved: int = 0) -> Room | None:
    """None where no group runs the service, or it has no disk: that is refused elsewhere."""
    group = group_of(environment, service)
    if environment.aws is None or group is None or service not in environment.aws.disks:
        return None
    hosts, zones = environment.groups[group].hosts, len(environment.zones)
    return Room(_dealt(hosts, zones), environment.aws.disks[service].size, reserved)


def group_of(environment: Environment, service: str) -> str | None:
    found = (name for name, group in environment.groups.items() if service in group.services)
    return next(found, None)


def _dealt(hosts: int, zones: int) -> list[int]:
    """Hosts of a group are dealt to the zones in turn."""
    return [hosts // zones + (zone < hosts % zones) for zone in range(min(hosts, zones))]


def _problem(
    environment: Environment,
    service: str,
    reserved: int,
    store: Store,
    share: Callable[[Room], float],
    otherwise: str,
) -> Iterator[str]:
    room = room_of(environment, service, reserved)
    if room is None or share(room) <= room.usable:
        return
    size = ceil((share(room) + reserved) / GIB)
    zones = len(environment.zones)
    rooms = (Room(_dealt(number, zones), room.disk, reserved) for number in count(room.hosts))
    remedies = [f"make it {size:,}"] if size <= MOST_DISK else []
    if room.usable > 0:
        enough = next(found.hosts for found in rooms if share(found) <= found.usable)
        remedies.append(f"give groups.{group_of(environment, service)} {enough} hosts")
    yield (
        f"aws.disks.{service}.size: {room.disk:,.0f} GiB; at the environment's load each of"
        f" {room.hosts} hosts needs {size:,} ({store.said}; {store.copies} copies):"
        f" {', '.join([*remedies, otherwise])}"
    )


def _nodes_problem(environment: Environment, store: Store, most: float) -> str | None:
    """What a node may hold, however large its disk is."""
    room = room_of(environment, "cassandra")
    if room is None or (data := _data_of_a_node(store, room)) <= most:
        return None
    zones = len(environment.zones)
    rooms = (Room(_dealt(number, zones), room.disk) for number in count(room.hosts))
    enough = next(found.hosts for found in rooms if _data_of_a_node(store, found) <= most)
    return (
        f"groups.{group_of(environment, 'cassandra')}.hosts: {room.hosts}, and each holds"
        f" {data / TB:,.1f} TB of {store.said}; more than {most / TB:g} TB (cassandra_node_tb in"
        f" configs/capacity.yaml) are slow to bring back: make it {enough}"
    )
