"""What Kafka needs for a load. Pure arithmetic over the assumptions of configs/capacity.yaml."""

from dataclasses import dataclass
from math import ceil

from pydantic import Field

from millrace.common.paths import CONFIGS
from millrace.config import Model, Setting, read_yaml, validate

SECONDS_PER_DAY = 86_400
TB = 10**12
TIB = 2**40
MB = 10**6


class Measured(Model):
    """``record`` is one of docs/performance; the value may differ from its figure by ``margin``."""

    record: str
    margin: float = Field(gt=0, lt=1)


class Assumption(Setting):
    """``measured`` where it isn't assumed: a test compares it with what the bench recorded."""

    measured: Measured | None = None


class Assumptions(Model):
    summary: str
    assumptions: dict[str, Assumption] = Field(min_length=1)

    def __getitem__(self, key: str) -> float:
        value = self.assumptions[key].value
        assert isinstance(value, int | float)
        return value


@dataclass(frozen=True)
class Load:
    """``events_per_second`` mean over a day; ``bytes`` of one event as stored in Kafka."""

    events_per_second: float
    bytes: float
    retention_days: float
    replication: int


@dataclass(frozen=True)
class Capacity:
    """What the load needs of Kafka. Sizes in bytes, rates in bytes/s."""

    ingest: float
    raw: float
    brokers_for_disk: int
    brokers_for_network: int
    brokers: int
    partitions: int


def load_assumptions() -> Assumptions:
    path = CONFIGS / "capacity.yaml"
    return validate(Assumptions, read_yaml(path), path)


def size(load: Load, assume: Assumptions) -> Capacity:
    """Brokers and partitions for a load; never fewer than high availability needs.

    ``raw`` = events/s x bytes x seconds kept x replicas, exactly: head-room is added to machines,
    not to the figure.
    """
    ingest = load.events_per_second * load.bytes
    raw = ingest * SECONDS_PER_DAY * load.retention_days * load.replication
    for_disk = ceil(raw / (assume["broker_disk_tb"] * TB * assume["disk_fill"]))
    for_network = ceil(ingest * assume["headroom"] / (assume["broker_ingest_mb_per_s"] * MB))
    brokers = max(for_disk, for_network, load.replication, 3)
    return Capacity(
        ingest=ingest,
        raw=raw,
        brokers_for_disk=for_disk,
        brokers_for_network=for_network,
        brokers=brokers,
        partitions=_partitions(ingest * assume["headroom"], brokers, assume),
    )


def _partitions(peak: float, brokers: int, assume: Assumptions) -> int:
    """Enough for the peak, and the same number on each broker."""
    needed = ceil(peak / (assume["partition_mb_per_s"] * MB))
    return brokers * ceil(needed / brokers)
