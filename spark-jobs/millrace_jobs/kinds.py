"""The kinds of jobs: which class runs a job, and what its checkpoint can't change.

The one place where a kind follows from a job's name and settings. Free of Spark, because the
gateway compares contracts on edge hosts: classes are named here, and imported by `Kind.load`.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millrace_jobs.stream import Stream

Settings = dict[str, Any]
Frozen = dict[str, Any]

# The columns of traffic's one aggregation. Spark reads state by them, in this order.
TRAFFIC_KEY = "period struct<start:timestamp,end:timestamp>, window string"
TRAFFIC_VALUE = (
    "count bigint, count bigint, sum bigint, count bigint, count bigint, count bigint,"
    " count bigint, count bigint, buf binary, buf binary"
)


def _nothing(_: Settings, __: Sequence[Stream]) -> Frozen:
    return {}


def _of_real_time(settings: Settings, _: Sequence[Stream]) -> Frozen:
    return {"trigger": settings["trigger"]}


def _of_declared(settings: Settings, streams: Sequence[Stream]) -> Frozen:
    frozen = ("window_seconds", "join_seconds", "buckets")
    kept = {name: settings[name] for name in frozen if name in settings}
    once = [f"{one.name} by {one.deduplicate_by}" for one in streams if one.deduplicate_by]
    return kept | ({"deduplicated": ", ".join(once)} if once else {})


def _of_traffic(settings: Settings, _: Sequence[Stream]) -> Frozen:
    return {
        # Sketches of two sizes don't merge.
        "hll_lg_k": settings["hll_lg_k"],
        "pages_tracked": settings["pages_tracked"],
        "state key": TRAFFIC_KEY,
        "state value": TRAFFIC_VALUE,
    }


@dataclass(frozen=True)
class Kind:
    """How jobs of one kind are run.

    Attributes:
        program: ``MODULE:CLASS`` of the `Job` that a driver runs.
        analysed: ``MODULE:CLASS`` of what `check` analyses; None where there is no declaration.
        archives: its rows are the events of a stream, in a Delta table.
        frozen: what of its settings and streams its checkpoint holds for good, by name.
    """

    program: str
    analysed: str | None = None
    archives: bool = False
    frozen: Callable[[Settings, Sequence[Stream]], Frozen] = _nothing

    def load(self) -> Any:
        """The class that a driver runs; a `Job` is made of a `JobContext`."""
        return _class(self.program)

    def load_analysed(self) -> Any:
        """The class that is analysed, made of an `AnalysisContext`. Raises TypeError for none."""
        if self.analysed is None:
            raise TypeError(f"{self.program} is no declared job")
        return _class(self.analysed)


ARCHIVE = Kind("millrace_jobs.programs.archive:Archive", archives=True)
TRAFFIC = Kind("millrace_jobs.programs.traffic:Traffic", frozen=_of_traffic)
DECLARED = Kind(
    "millrace_jobs.declared.job:Declared",
    analysed="millrace_jobs.declared.job:Computation",
    frozen=_of_declared,
)
REAL_TIME = Kind(
    "millrace_jobs.declared.real_time:RealTime",
    analysed="millrace_jobs.declared.real_time:Selection",
    frozen=_of_real_time,
)

PROGRAMS = {"archive": ARCHIVE, "traffic": TRAFFIC}  # every other job is declared in one file


def kind_of(job: str, settings: Settings) -> Kind:
    """The kind of a job. An archive is called ``archive``, or ``archive_STREAM``; no other job has
    a name like that."""
    if job.startswith("archive_"):
        return ARCHIVE
    if job in PROGRAMS:
        return PROGRAMS[job]
    return REAL_TIME if settings.get("trigger") == "real-time" else DECLARED


def _class(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
