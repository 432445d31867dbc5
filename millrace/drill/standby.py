"""The standby driver's age: one that has just started is warmer than the one that a night meets."""

import time

from millrace.cluster.zookeeper import Drivers
from millrace.common.errors import OperatorError, UnhealthyError
from millrace.common.waiting import wait_until
from millrace.drill.cluster import Cluster

LOOK_EVERY_SECONDS = 15.0
# A standby may begin anew while it is waited for.
PATIENCE_SECONDS = 600.0


def standby_since(cluster: Cluster) -> float | None:
    """Returns when the youngest standby began to stand by (Unix seconds).

    None unless each application has one, and ZooKeeper says so.
    """
    try:
        return youngest(cluster.drivers())
    except OperatorError:
        return None


def youngest(applications: Drivers) -> float | None:
    """Returns when the youngest of the standbys began; None if an application has none."""
    standbys = [
        [driver.since for driver in mine if driver.state == "standby"]
        for mine in applications.values()
    ]
    return max(map(max, standbys)) if standbys and all(standbys) else None


def wait_until_idle(cluster: Cluster, seconds: float) -> None:
    """Waits until each standby has stood by for so long. Raises UnhealthyError if none ever has."""

    def idle() -> bool:
        since = standby_since(cluster)
        return since is not None and time.time() - since >= seconds

    if not wait_until(idle, seconds + PATIENCE_SECONDS, LOOK_EVERY_SECONDS):
        raise UnhealthyError(
            f"no standby driver has stood by for {seconds / 60:g} min",
            "nothing was injected; `millrace status` shows who stands by",
        )
