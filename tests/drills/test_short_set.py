"""What every change must survive: a leader, a driver and a NameNode lost, and a hand-over.

Nothing here is asserted by the clock: a busy machine misses goals, but nothing may lose an event.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from rich.console import Console

from millrace.common.paths import stack_name
from millrace.drill.report import Gaps, Report
from millrace.drill.runbook import load_runbook
from millrace.drill.runner import RunbookDrill, Stage, perform
from millrace.drill.timeline import Episode
from millrace.ledger.door import Door
from millrace.plan import load_plan
from tests.drills.steady import RATE, wait_until_steady

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class ShortSet:
    """One runbook's fault after the other under one load: its start and its audit take minutes."""

    drills: Sequence[str]
    name: str = "short-set"
    title: str = "What every change must survive"
    faults: list[int] = field(default_factory=list)
    goal: Gaps = field(default_factory=dict)
    through: Door = "kafka"
    alerts: None = None

    def episodes(self, stage: Stage) -> Iterator[Episode]:
        for drill in self.drills:
            wait_until_steady(stage.plan)  # a standby may still be starting after the one before
            runbook = load_runbook(drill)
            own = replace(stage, folder=stage.folder / drill)
            yield from RunbookDrill(runbook, 1).episodes(own)


def performed(*drills: str) -> Report:
    plan = load_plan(stack_name())
    wait_until_steady(plan)
    return perform(plan, ShortSet(drills), RATE, Console())


@pytest.mark.parametrize(
    "drills",
    [
        ("kafka-leader-killed", "driver-killed", "upgrade"),
        pytest.param(("namenode-host-lost",), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_nothing_is_lost_or_counted_twice(drills: tuple[str, ...]) -> None:
    report = performed(*drills)
    assert report.all_failures == []
    assert len(report.runs) == len(drills)
    assert report.audit is not None
    assert (report.audit.lost, report.audit.duplicated, report.audit.wrong) == (0, 0, 0)
    # The planes were watched, and the load went through them.
    assert {"produce", "process", "read"} <= report.worst.keys()
