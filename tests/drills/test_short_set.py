"""What every change must survive: a leader, a driver and a NameNode lost, and a hand-over.

Nothing here is asserted by the clock: a busy machine misses goals, but nothing may lose an event.
"""

import pytest
from rich.console import Console

from millrace.common.paths import stack_name
from millrace.drill.runbook import load_runbook
from millrace.drill.runner import run
from millrace.plan import load_plan
from tests.drills.steady import RATE, wait_until_steady

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    "drill",
    [
        "kafka-leader-killed",
        "driver-killed",
        "upgrade",
        pytest.param("namenode-host-lost", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_or_counted_twice(drill: str) -> None:
    plan = load_plan(stack_name())
    wait_until_steady(plan)  # a standby may still be starting after the test before
    report = run(plan, load_runbook(drill), 1, RATE, Console())
    assert report.all_failures == []
    assert report.audit is not None
    assert (report.audit.lost, report.audit.duplicated, report.audit.wrong) == (0, 0, 0)
    # The planes were watched, and the load went through them.
    assert {"produce", "process", "read"} <= report.worst.keys()
