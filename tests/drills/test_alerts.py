"""An alert is proven by a fault: it fires in time, resolves, and nothing else wakes anybody."""

import pytest

from millrace.common.console import Console
from millrace.common.paths import stack_name
from millrace.drill.report import Told
from millrace.drill.runbook import load_runbook
from millrace.drill.runner import run
from millrace.plan import load_plan
from tests.drills.steady import RATE, wait_until_steady

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def told_of(drill: str) -> Told:
    plan = load_plan(stack_name())
    wait_until_steady(plan)
    report = run(plan, load_runbook(drill), 1, RATE, Console(), await_alerts=True)
    assert report.all_failures == []
    (told,) = report.told
    return told


def test_a_lost_datanode_is_told_and_so_is_its_return() -> None:
    told = told_of("datanode-lost")
    assert told.problems == []
    assert told.fired["DataNodeDown"].resolved_after_seconds is not None


def test_where_nothing_is_broken_nobody_is_told() -> None:
    assert told_of("no-fault").problems == []
