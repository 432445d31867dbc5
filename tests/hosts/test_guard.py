"""A killed driver's session ends at once; that of an unguarded one ends with its time-out."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import millrace_jobs
import pytest
from kazoo.client import KazooClient

from millrace.cluster import tunnel
from millrace.cluster.zookeeper import retrying_client
from millrace.config import load_names
from millrace.plan import Plan
from tests.waiting import PATIENCE_SECONDS, wait_until

SESSION_SECONDS = 40.0  # maxSessionTimeout
ZNODES = load_names().zookeeper
DRIVERS = f"{ZNODES.applications}/guarded/drivers"
DRIVER = f"""
import subprocess, sys, time
from millrace_shared.names import ZookeeperNames
from millrace_jobs.leadership.coordination import Coordination
from millrace_jobs.leadership.watchdog import Watchdog
from millrace_jobs.leadership.identity import Identity

run, servers, is_guarded, *znodes = sys.argv[1:]
jvm = subprocess.Popen(["sleep", "60"])
identity = Identity(run, 1, "nowhere", "0", jvm.pid, 1)
driver = Coordination(servers, ZookeeperNames(*znodes), "guarded", identity, {SESSION_SECONDS})
if is_guarded == "guarded":
    driver.end_with_process(Watchdog(servers, {SESSION_SECONDS}, jvm.pid))
driver.announce("standby")
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def servers(plan: Plan) -> str:
    return ",".join(tunnel.addresses(plan, "zookeeper", "client"))


@pytest.fixture
def zookeeper(plan: Plan) -> Iterator[KazooClient]:
    with retrying_client(plan) as client:
        yield client
        client.delete(f"{ZNODES.applications}/guarded", recursive=True)


@contextmanager
def announced(
    servers: str, zookeeper: KazooClient, run: str, guarded: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A driver that stands by, and its node."""
    arguments = [run, servers, guarded, *ZNODES.model_dump().values()]
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(millrace_jobs.__file__).parents[1])},
    )
    assert driver.stdout
    with driver:
        try:
            assert driver.stdout.readline() == "ready\n"
            node = f"{DRIVERS}/{run}-1"
            # The server that is asked may hear of it a moment later than the one that was told.
            wait_until(lambda: zookeeper.exists(node), PATIENCE_SECONDS, f"{run} is announced")
            yield driver, node
        finally:
            driver.kill()


def test_a_killed_drivers_session_ends_before_that_of_one_killed_earlier(
    servers: str, zookeeper: KazooClient
) -> None:
    with (
        announced(servers, zookeeper, "application_1_1", "guarded") as (guarded, its_node),
        announced(servers, zookeeper, "application_1_2", "unguarded") as (unguarded, other_node),
    ):
        unguarded.send_signal(signal.SIGKILL)
        guarded.send_signal(signal.SIGKILL)
        wait_until(
            lambda: not zookeeper.exists(its_node), PATIENCE_SECONDS, "its session has ended", 0.2
        )
        assert zookeeper.exists(other_node), "both lasted until their time-out"
