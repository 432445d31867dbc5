"""The kinds of jobs: which class runs a job, and what its checkpoint can't change.

The one place where a kind follows from a job's name and settings. Free of Spark, because the
gateway compares contracts on edge hosts: classes are named here, and imported by `Kind.load`.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from millrace_jobs.settings import (
    MICRO_BATCH,
    ArchiveSettings,
    DeclaredSettings,
    JobSettings,
    RealTimeSettings,
    TrafficSettings,
)
from millrace_jobs.stream import Stream
from millrace_shared.strict import Misconfigured

S = TypeVar("S", bound=JobSettings)
Frozen = dict[str, Any]

# The columns of traffic's one aggregation. Spark reads state by them, in this order.
TRAFFIC_KEY = "period struct<start:timestamp,end:timestamp>, window string"
TRAFFIC_VALUE = (
    "count bigint, count bigint, sum bigint, count bigint, count bigint, count bigint,"
    " count bigint, count bigint, buf binary, buf binary"
)


def _nothing(_: JobSettings, __: Sequence[Stream]) -> Frozen:
    return {}


def _of_archive(_: ArchiveSettings, streams: Sequence[Stream]) -> Frozen:
    """A table's columns can be added to, but stay what they are."""
    return {f"fields of {one.name}": one.columns for one in streams}


def _of_real_time(settings: RealTimeSettings, _: Sequence[Stream]) -> Frozen:
    return {"trigger": settings.trigger}


def _of_declared(settings: DeclaredSettings, streams: Sequence[Stream]) -> Frozen:
    """What the query says is held to the checkpoint by whoever has Spark, before it stands by."""
    kept: Frozen = {"buckets": settings.buckets}
    if once := [f"{one.name} by {one.deduplicate_by}" for one in streams if one.deduplicate_by]:
        kept["deduplicated"] = ", ".join(once)
    return kept


def _of_traffic(settings: TrafficSettings, _: Sequence[Stream]) -> Frozen:
    return {
        # Sketches of two sizes don't merge.
        "hll_lg_k": settings.hll_lg_k,
        "pages_tracked": settings.pages_tracked,
        "state key": TRAFFIC_KEY,
        "state value": TRAFFIC_VALUE,
    }


@dataclass(frozen=True)
class Kind(Generic[S]):
    """How jobs of one kind are run.

    Attributes:
        program: ``MODULE:CLASS`` of the `Job` that a driver runs.
        settings: what such a job is told.
        analysed: ``MODULE:CLASS`` of what `check` analyses; None where there is no declaration.
        archives: its rows are the events of a stream, in a Delta table.
        frozen: what of its settings and streams its checkpoint holds for good, by name. Where that
            is a dictionary, more may be added, and what is left out stays reserved.
    """

    program: str
    settings: type[S]
    analysed: str | None = None
    archives: bool = False
    frozen: Callable[[S, Sequence[Stream]], Frozen] = _nothing

    @property
    def is_program(self) -> bool:
        """Whether its code is Millrace's own, and not that of a declaration."""
        return self.analysed is None

    def load(self) -> Any:
        """The class that a driver runs; a `Job` is made of a `JobContext`."""
        return _class(self.program)

    def load_analysed(self) -> Any:
        """The class that is analysed, made of an `AnalysisContext`. Raises TypeError for none."""
        if self.analysed is None:
            raise TypeError(f"{self.program} is no declared job")
        return _class(self.analysed)


ARCHIVE = Kind(
    "millrace_jobs.programs.archive:Archive", ArchiveSettings, archives=True, frozen=_of_archive
)
TRAFFIC = Kind("millrace_jobs.programs.traffic:Traffic", TrafficSettings, frozen=_of_traffic)
DECLARED = Kind(
    "millrace_jobs.declared.job:Declared",
    DeclaredSettings,
    analysed="millrace_jobs.declared.job:Computation",
    frozen=_of_declared,
)
REAL_TIME = Kind(
    "millrace_jobs.declared.real_time:RealTime",
    RealTimeSettings,
    analysed="millrace_jobs.declared.real_time:Selection",
    frozen=_of_real_time,
)

# Every other job is declared in one file.
PROGRAMS: dict[str, Kind[Any]] = {"archive": ARCHIVE, "traffic": TRAFFIC}


def kind_of(job: str, trigger: str = MICRO_BATCH) -> Kind[Any]:
    """The kind of a job. An archive is called ``archive``, or ``archive_STREAM``; no other job has
    a name like that."""
    if job.startswith("archive_"):
        return ARCHIVE
    if job in PROGRAMS:
        return PROGRAMS[job]
    return REAL_TIME if trigger == "real-time" else DECLARED


def read_settings(job: str, given: Mapping[str, Any]) -> JobSettings:
    """A job's settings, as its kind has them. Raises `Misconfigured`, which names job and setting.

    Args:
        given: a deployment's settings of all jobs, and of this one.
    """
    try:
        settings: JobSettings = kind_of(job, given.get("trigger", MICRO_BATCH)).settings.read(given)
    except Misconfigured as error:
        raise Misconfigured(f"settings of job {job}: {error}") from None
    return settings


def _class(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
