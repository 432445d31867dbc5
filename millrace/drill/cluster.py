"""What a drill asks of the cluster that it breaks, and what it runs beside it."""

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from millrace.cluster import annotations, prometheus, zookeeper
from millrace.drill import watch
from millrace.drill.display import Display
from millrace.drill.report import Audit
from millrace.drill.watch import Loading, Watch
from millrace.plan import Plan
from millrace.status import health


@dataclass(frozen=True)
class Cluster:
    """The running one. A drill's own tests give it another. All raise OperatorError when nobody
    answers."""

    plan: Plan

    def problems(self) -> list[str]:
        """Why the cluster isn't in its steady state; empty when it is."""
        return health.problems(self.plan)

    def unhealthy(self) -> set[str]:
        """The components that aren't known to be whole."""
        return health.unhealthy(self.plan)

    def drivers(self) -> zookeeper.Drivers:
        return zookeeper.drivers(self.plan)

    def disabled(self) -> set[str]:
        """The jobs that are not meant to run."""
        return zookeeper.disabled(self.plan)

    def firing(self, seconds: float) -> list[prometheus.Series]:
        """What fired within the last so many seconds."""
        return prometheus.firing(self.plan, seconds)

    def last_drill(self) -> float | None:
        """When the last drill began, in seconds since 1970."""
        return annotations.last_drill(self.plan)

    def drill_began(self, name: str, at: float) -> None:
        annotations.drill_began(self.plan, name, at)

    def watching(
        self, load: Loading, show: Display, goals: Collection[str], settle_seconds: float
    ) -> AbstractContextManager[Watch]:
        """Load and samplers, which run inside the context."""
        return watch.watching(self.plan, load, show, goals, settle_seconds)

    def audited(self, ledger: Path) -> Audit:
        """What became of every event of the load."""
        return watch.audited(self.plan, ledger)
