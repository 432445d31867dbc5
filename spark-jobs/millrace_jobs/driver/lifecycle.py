"""The whole life of a driver: one leads and one stands by, each with all the application's jobs.

A driver that can't go on ends with an error. The standby leads from the checkpoint within seconds,
and YARN starts a new driver, which stands by. So nothing here tries to repair anything.
"""

import logging
import time

from millrace_jobs.config import Config
from millrace_jobs.leadership.coordination import Coordination
from millrace_jobs.leadership.identity import Identity, identify
from millrace_jobs.leadership.watchdog import Watchdog
from millrace_shared.driver_record import DriverRecord

POLL_SECONDS = 0.5
BEHIND_SECONDS = 120.0  # that a driver's start waits at most for who leads and is behind
CHOOSY_ATTEMPTS = 3  # fewer than spark.yarn.maxAppAttempts: the last takes what it gets


class SharesHost(Exception):
    """The application's other driver is on the same host."""


def run(config: Config) -> None:
    """Find the place among the drivers; then work."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for chatty in ("cassandra", "kazoo", "py4j"):  # reconnections and calls are their own business
        logging.getLogger(chatty).setLevel(logging.ERROR)
    identity = identify(config.version)
    coordination = Coordination(
        config.zookeeper,
        config.names.zookeeper,
        config.application,
        identity,
        config.lease_seconds,
    )
    try:
        coordination.end_with_parent()
        coordination.end_with_process(
            Watchdog(config.zookeeper, config.lease_seconds, identity.jvm)
        )
        keep_apart(identity, coordination.others())
        coordination.announce("warming")
        coordination.keep_announced()
        let_catch_up(coordination, config.catch_up_seconds)
        # Spark's and Cassandra's clients take seconds to import, of a core that is needed before.
        from millrace_jobs.driver import work

        # When nobody leads, every second counts.
        rehearsing = any(driver.state == "leading" for driver in coordination.others())
        work.work(config, coordination, rehearsing=rehearsing)
    finally:
        coordination.close()


def keep_apart(identity: Identity, others: list[DriverRecord]) -> None:
    """Two drivers on one host would die together.

    YARN starts the next attempt of the same application elsewhere, if there is anywhere else.
    """
    neighbours = [driver.run for driver in others if driver.host == identity.host]
    if neighbours and identity.attempt <= CHOOSY_ATTEMPTS:
        raise SharesHost(f"{neighbours[0]} is on {identity.host} already")


def let_catch_up(coordination: Coordination, seconds: float) -> None:
    """Starting takes all cores of a small cluster; who has just taken over needs them more, and so
    does who says that its results are behind.

    Looks again and again: should that one die, too, nobody is to be waited for.
    """
    began = time.time()

    def needs_the_cores(driver: DriverRecord) -> bool:
        now = time.time()
        is_behind = driver.behind_since and now < began + BEHIND_SECONDS
        return driver.state == "leading" and bool(now < driver.since + seconds or is_behind)

    while any(map(needs_the_cores, coordination.others())):
        time.sleep(POLL_SECONDS)
