"""Cores for a load that nobody has measured."""

from collections.abc import Sequence

import pytest

from bench import extrapolation, report
from millrace.config import load_environment
from millrace.plan import load_plan
from tests.unit.bench.test_goals import COST

ENVIRONMENT, PLAN = load_environment("prod"), load_plan("prod")
SUSTAINED = {"machine": {"cores": 2}, "result": {"sustained_per_second": 40_000.0}}


def middle(values: Sequence[float]) -> str:
    return f"{sorted(values)[len(values) // 2]:.1f}"


def test_a_part_needs_its_cost_times_the_rate_and_has_what_the_plan_gives_it() -> None:
    """COST is 30 core-µs of executors an event, and three times as much of all, in the middle."""
    rows = {row[0]: row[1:] for row in extrapolation.rows(COST, ENVIRONMENT, PLAN, middle)}
    assert rows["executors"] == ["30.0", "3.0", "48 (12 executors of 4 cores)", "16.0"]
    workers = rows["workers: executors, drivers, HDFS, YARN"]
    assert workers == ["30.0", "3.0", "96 (6 hosts of 16 vCPUs)", "32.0"]
    assert PLAN.aws
    whole = rows["the whole service"]
    assert whole[:3] == ["90.0", "9.0", f"{PLAN.aws.vcpus} (all hosts)"]


def test_a_part_that_costs_nothing_has_no_limit() -> None:
    rows = {row[0]: row[1:] for row in extrapolation.rows(COST, ENVIRONMENT, PLAN, middle)}
    assert rows["brokers"][-1] == "inf"


def test_the_page_says_that_it_was_not_run() -> None:
    section = report.extrapolation_section(COST, SUSTAINED, ENVIRONMENT, PLAN)
    assert section.title == "100,000 events/s: an extrapolation"
    assert "has not been run at this rate" in section.notes[0]
    assert "100,000 ÷ 40,000 × 2 = 5.00 cores" in section.notes[1]


@pytest.mark.parametrize("record", [extrapolation.COST, extrapolation.SUSTAINED])
def test_its_records_are_there(record: str) -> None:
    assert (report.RECORDS / f"{record}.json").exists()
