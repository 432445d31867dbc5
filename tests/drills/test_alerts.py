"""An alert is proven by a fault: it fires, it resolves, and nothing else wakes anybody.

Whether that is in time is a goal, which the drill's report tells; a busy machine misses it.
"""

import pytest

from millrace.common.console import Console
from millrace.common.paths import stack_name
from millrace.drill.cluster import Cluster
from millrace.drill.options import DrillOptions
from millrace.drill.report import AlertOutcomes
from millrace.drill.runbook import load_runbook
from millrace.drill.runner import run
from millrace.plan import load_plan
from tests.drills.steady import FLOOR_SECONDS, RATE, wait_until_steady

pytestmark = [pytest.mark.cluster, pytest.mark.extended]


def outcomes_of(drill: str) -> AlertOutcomes:
    plan = load_plan(stack_name())
    wait_until_steady(plan)
    options = DrillOptions(times=1, rate=RATE, await_alerts=True, floor_seconds=FLOOR_SECONDS)
    report = run(Cluster(plan), load_runbook(drill), options, Console())
    assert report.all_failures == []
    (outcomes,) = report.alert_outcomes
    return outcomes


@pytest.mark.parametrize(
    ("drill", "alert"), [("datanode-lost", "DataNodeDown"), ("ledger-differs", "LedgerDiffers")]
)
def test_a_fault_is_told_and_so_is_its_end(drill: str, alert: str) -> None:
    outcomes = outcomes_of(drill)
    assert [what for what in outcomes.problems if not what.startswith(alert)] == []
    assert outcomes.fired[alert].resolved_after_seconds is not None


def test_where_nothing_is_broken_nobody_is_told() -> None:
    assert outcomes_of("no-fault").problems == []
