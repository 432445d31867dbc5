"""A killed driver's session ends at once, not with its time-out."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import millrace_jobs
import pytest
from kazoo.client import KazooClient

from millrace.cluster import inside
from millrace.cluster.zookeeper import insisting
from millrace.config import load_names
from millrace.plan import Plan
from tests.e2e.support import wait_until

SESSION_SECONDS = 30.0
ZNODES = load_names().zookeeper
NODE = f"{ZNODES.applications}/guarded/drivers/application_1_1-1"
DRIVER = f"""
import subprocess, sys, time
from millrace_shared.names import ZookeeperNames
from millrace_jobs.leadership.coordination import Coordination
from millrace_jobs.leadership.watchdog import Watchdog
from millrace_jobs.leadership.identity import Identity

jvm = subprocess.Popen(["sleep", "60"])
identity = Identity("application_1_1", 1, "nowhere", "0", jvm.pid, 1)
znodes = ZookeeperNames(*sys.argv[2:])
driver = Coordination(sys.argv[1], znodes, "guarded", identity, {SESSION_SECONDS})
driver.end_with_process(Watchdog(sys.argv[1], {SESSION_SECONDS}, jvm.pid))
driver.announce("standby")
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def servers(plan: Plan) -> str:
    return ",".join(inside.addresses(plan, "zookeeper", "client"))


@pytest.fixture
def zookeeper(plan: Plan) -> Iterator[KazooClient]:
    with insisting(plan) as client:
        yield client
        client.delete(f"{ZNODES.applications}/guarded", recursive=True)


def test_a_killed_drivers_session_ends_at_once(servers: str, zookeeper: KazooClient) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, servers, *ZNODES.model_dump().values()],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(millrace_jobs.__file__).parents[1])},
    )
    assert driver.stdout
    with driver:
        assert driver.stdout.readline() == "ready\n"
        # The server that is asked may hear of it a moment later than the one that was told.
        wait_until(lambda: zookeeper.exists(NODE), SESSION_SECONDS, "the driver is announced")
        driver.send_signal(signal.SIGKILL)
    wait_until(lambda: not zookeeper.exists(NODE), SESSION_SECONDS / 3, "the session has ended")
