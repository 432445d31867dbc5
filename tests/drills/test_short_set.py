"""What every change must survive: a leader and a driver lost; slower, a NameNode and a hand-over.

Nothing here is asserted by the clock: a busy machine misses goals, but nothing may lose an event.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pytest

from millrace.common.console import Console
from millrace.common.paths import stack_name, stack_state
from millrace.drill.cluster import Cluster
from millrace.drill.options import DrillOptions
from millrace.drill.report import Gaps, Report
from millrace.drill.runbook import load_runbook
from millrace.drill.runner import RunbookDrill, perform
from millrace.drill.stage import Stage
from millrace.drill.timeline import Episode
from millrace.ledger import IngestPath
from millrace.plan import Plan, load_plan
from tests.drills.operations_page import Explained, explained
from tests.drills.steady import FLOOR_SECONDS, RATE, wait_until_steady

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class ShortSet:
    """One runbook's fault after the other under one load: its start and its audit take minutes."""

    drills: Sequence[str]
    meanwhile: Mapping[str, Callable[[], None]] = field(default_factory=dict)  # by drill
    name: str = "short-set"
    title: str = "What every change must survive"
    faults: list[int] = field(default_factory=list)
    goal: Gaps = field(default_factory=dict)
    through: IngestPath = "kafka"
    alerts: None = None

    def episodes(self, stage: Stage) -> Iterator[Episode]:
        with ThreadPoolExecutor() as pool:
            for drill in self.drills:
                wait_until_steady(stage.plan)  # a standby may still be starting
                runbook = load_runbook(drill)
                own = replace(stage, folder=stage.folder / drill)
                look = pool.submit(self.meanwhile.get(drill, lambda: None))
                yield from RunbookDrill(runbook, 1).episodes(own)
                look.result()


def performed(plan: Plan, drills: ShortSet) -> Report:
    wait_until_steady(plan)
    options = DrillOptions(rate=RATE, floor_seconds=FLOOR_SECONDS)
    return perform(Cluster(plan), drills, options, Console())


def nothing_lost_or_counted_twice(report: Report, faults: int) -> None:
    assert report.all_failures == []
    assert len(report.runs) == faults
    assert report.audit is not None
    assert (report.audit.lost, report.audit.duplicated, report.audit.wrong) == (0, 0, 0)
    # The planes were watched, and the load went through them.
    assert {"produce", "process", "read"} <= report.worst.keys()


@pytest.mark.extended
def test_nothing_is_lost_or_counted_twice_while_namenodes_and_versions_change() -> None:
    plan = load_plan(stack_name())
    drills = ShortSet(["namenode-host-lost", "upgrade"])
    nothing_lost_or_counted_twice(performed(plan, drills), 2)


def test_nothing_is_lost_or_counted_twice_and_the_page_explains_it() -> None:
    plan = load_plan(stack_name())
    picture = stack_state(plan.environment) / "operations-driver-killed.png"
    (application,) = plan.applications
    shown: list[Explained] = []
    look = {"driver-killed": lambda: shown.append(explained(plan, application, picture))}
    drills = ShortSet(["kafka-leader-killed", "driver-killed"], look)
    nothing_lost_or_counted_twice(performed(plan, drills), 2)
    (page,) = shown
    assert "DriverTakenOver" in page.alerts
    assert f"another driver leads {application}" in page.happened
    # The gap, and beside it what explains it.
    assert f"{application}: leading 1" in page.after_mark
    assert f"{application}: standby 0" in page.after_mark
    assert f"another driver leads {application}" in page.at_mark
    assert page.with_marks != page.without_marks
    assert not page.phone_scrolls_sideways
