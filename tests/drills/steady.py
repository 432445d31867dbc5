"""What drills begin with, and the load that they run under beside everything else on a machine."""

from operator import not_

from millrace.common.waiting import wait_until
from millrace.plan import Plan
from millrace.status import health

STEADY_SECONDS = 600
RATE = 200  # events a second: a test machine of two slow cores keeps up with it
FLOOR_SECONDS = 5  # no test of a drill asks for its goals


def wait_until_steady(plan: Plan) -> None:
    """A standby may still be starting after the test before."""
    assert wait_until(lambda: health.problems(plan), STEADY_SECONDS, 5, done=not_) == []
