"""A snapshot of a cluster: what each part answered, at one moment.

Nothing is taken for an answer that is none: a part that was asked and said nothing in time is a
`Silence`, one that is known not to serve is a `Fault`. The verdict tells them apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from millrace.cluster.prometheus import Alert
from millrace.cluster.services import NameNode, Redis, ResourceManager
from millrace_shared.driver_record import DriverRecord

T = TypeVar("T")

Drivers = Mapping[str, Sequence[DriverRecord]]  # the living ones of each application


@dataclass(frozen=True)
class Silence:
    """Nobody knows. ``why`` names who didn't answer, and in what time."""

    why: str


@dataclass(frozen=True)
class Fault:
    """It is known not to serve: it refused, answered with an error, or no way leads to it."""

    why: str


Reply: TypeAlias = T | Silence | Fault


@dataclass(frozen=True)
class Unit:
    """A service's unit in systemd; ``restarts`` is None where nobody counts them."""

    is_active: bool
    restarts: int | None = None


@dataclass(frozen=True)
class HostFacts:
    """What systemd and the kernel of a host say.

    ``units`` by service; ``disks``, the share that is left by path; ``resident``, bytes of all
    processes, None where only Prometheus was asked.
    """

    units: Mapping[str, Unit]
    disks: Mapping[str, float] = field(default_factory=dict)
    resident: int | None = None


@dataclass(frozen=True)
class Controller:
    """Who leads the quorum of Kafka's controllers, by one of them; no node's id is below zero."""

    leader: int
    epoch: int


@dataclass(frozen=True)
class Kafka:
    """Brokers and partitions as a client sees them."""

    brokers: int
    partitions: int
    under_replicated: int
    leaderless: int


@dataclass(frozen=True)
class Lag:
    """Records that a job has before it, and those of them that wait for too long."""

    records: int
    overdue: int


@dataclass(frozen=True)
class Backlog:
    """Of a job with overdue records: since when there were some, in seconds since 1970, and in how
    many seconds none will wait at today's rate; None while they don't grow fewer."""

    since: float
    seconds: float | None


@dataclass(frozen=True)
class Upkeep:
    """When the last upkeep that succeeded began and where, and why the one after it failed."""

    since: float
    host: str = ""
    error: str = ""


@dataclass(frozen=True)
class Coordination:
    """What ZooKeeper knows of applications. ``upkeep`` is None before it was first looked for."""

    drivers: Drivers
    disabled: frozenset[str] = frozenset()
    upkeep: Upkeep | None = None


@dataclass(frozen=True)
class Monitor:
    """One Prometheus: its targets, those whose last scrape failed, and its alerts."""

    targets: int
    silent: int
    alerts: tuple[Alert, ...] = ()


@dataclass(frozen=True)
class Progress:
    """How far a job is, by its last committed batch."""

    job: str
    batch: int
    watermark: str | None = None


@dataclass(frozen=True)
class Event:
    """What happened, in seconds since 1970."""

    at: float
    kind: str
    text: str


@dataclass(frozen=True)
class Snapshot:
    """All observations. Those of one service on several hosts are by host, ``ring`` by address.

    ``at`` is when, in seconds since 1970; ``age`` how old the oldest of Prometheus' figures were
    that stand for an answer, None where none does. ``backlogs`` are of jobs that are known to be
    behind, by a gateway that has watched them.
    """

    at: float
    hosts: Mapping[str, Reply[HostFacts]]
    zookeeper: Mapping[str, Reply[str]]
    controllers: Mapping[str, Reply[Controller]]
    redis: Mapping[str, Reply[Redis]]
    sentinels: Mapping[str, Reply[bool]]
    namenodes: Mapping[str, Reply[NameNode]]
    resourcemanagers: Mapping[str, Reply[ResourceManager]]
    apis: Mapping[str, Reply[bool]]
    collectors: Mapping[str, Reply[bool]]
    monitors: Mapping[str, Reply[Monitor]]
    alertmanagers: Mapping[str, Reply[int]]
    kafka: Reply[Kafka]
    ring: Reply[Mapping[str, str]]
    coordination: Reply[Coordination]
    lags: Mapping[str, Reply[Lag]]
    backlogs: Mapping[str, Backlog] = field(default_factory=dict)
    progress: Reply[tuple[Progress, ...]] = ()
    events: Reply[tuple[Event, ...]] = Silence("nobody was asked")
    age: float | None = None


def known(replies: Iterable[Reply[T]]) -> list[T]:
    """Returns the replies that are answers."""
    return [reply for reply in replies if not isinstance(reply, Silence | Fault)]
