"""The standby driver's age: one that has just started is warmer than the one that a night meets."""

import time
from collections.abc import Collection, Iterable
from typing import Any

from millrace.cluster.zookeeper import drivers
from millrace.common.errors import OperatorError
from millrace.common.waiting import wait_until
from millrace.plan import Plan

LOOK_EVERY_SECONDS = 15.0
# A standby may begin anew while it is waited for.
PATIENCE_SECONDS = 600.0


def standby_since(plan: Plan) -> float | None:
    """Returns when the youngest standby began to stand by (Unix seconds).

    None unless each application has one, and ZooKeeper says so.
    """
    try:
        return youngest(drivers(plan), plan.applications)
    except OperatorError:
        return None


def youngest(listed: Iterable[dict[str, Any]], applications: Collection[str]) -> float | None:
    """Returns when the youngest of these standbys began; None if an application has none."""
    standbys = [driver for driver in listed if driver["state"] == "standby"]
    if {driver["application"] for driver in standbys} != set(applications):
        return None
    return max((driver["since"] for driver in standbys), default=None)


def wait_until_idle(plan: Plan, seconds: float) -> None:
    """Waits until every standby has stood by for so long. Raises OperatorError if none ever has."""

    def idle() -> bool:
        since = standby_since(plan)
        return since is not None and time.time() - since >= seconds

    if not wait_until(idle, seconds + PATIENCE_SECONDS, LOOK_EVERY_SECONDS):
        raise OperatorError(
            f"no standby driver has stood by for {seconds / 60:g} min",
            "nothing was injected; `millrace status` shows who stands by",
        )
