"""What every drill has around it: a load, planes that are watched, a cluster that heals."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from operator import not_
from pathlib import Path
from typing import Protocol

from millrace.common.waiting import wait_until
from millrace.drill.alerts import Expected
from millrace.drill.cluster import Cluster
from millrace.drill.display import Display
from millrace.drill.report import Gaps
from millrace.drill.timeline import Episode, Span
from millrace.drill.watch import Watch
from millrace.ledger import IngestPath
from millrace.plan import Plan

LONGEST_HEAL_SECONDS = 600.0  # from the end of an experiment until all is healthy
ASK_EVERY_SECONDS = 10.0  # a look at every host is work for the machine that is measured


class Drill(Protocol):
    """What is broken; what stands around it is the same for all drills. ``goal`` is seconds."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str:
        """Asked when the drill is over."""

    @property
    def faults(self) -> list[int]: ...
    @property
    def goal(self) -> Gaps: ...
    @property
    def through(self) -> IngestPath: ...
    @property
    def alerts(self) -> Expected | None:
        """By what it is to be told; None where nobody knows."""

    def episodes(self, stage: "Stage") -> Iterable[Episode]:
        """Breaks something, takes it back, waits until all is healthy; once or several times."""


@dataclass(frozen=True)
class Stage:
    """Where a drill breaks things: load flows, and every plane is watched."""

    cluster: Cluster
    folder: Path
    show: Display
    watch: Watch
    floor_seconds: float

    @property
    def plan(self) -> Plan:
        return self.cluster.plan

    def floor(self) -> Span:
        """Lets the time pass in which each plane's interruptions are those of the machine alone."""
        self.show.phase(f"floor, {self.floor_seconds:g} s with nothing broken")
        since = time.time()
        time.sleep(self.floor_seconds)
        return Span(since, time.time())


def wait_healthy(cluster: Cluster, show: Display) -> list[str]:
    """Waits until the cluster is in its steady state; else what is wrong in the end."""
    show.phase("until the cluster is healthy")
    problems = wait_until(cluster.problems, LONGEST_HEAL_SECONDS, ASK_EVERY_SECONDS, done=not_)
    return [f"not healed after {LONGEST_HEAL_SECONDS:g} s: {problem}" for problem in problems]
