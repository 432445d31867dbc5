"""The operator's way to services where only edge hosts let this machine in."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from millrace.cluster import tunnel
from millrace.cluster.access import shared_socket
from millrace.cluster.insight_api import InsightApi
from millrace.plan import Plan
from millrace.providers import provider_of
from tests.waiting import PATIENCE_SECONDS, wait_until

# A host that is frozen keeps its connection until its silence is noticed, and lets nobody in until
# that times out.
NOBODY_SECONDS = 2  # after which nobody answers, where nobody is expected


@pytest.fixture(autouse=True)
def _only_by_an_edge_host(plan: Plan) -> None:
    if not plan.by_edge:
        pytest.skip("this environment's operators call the hosts straight")


def shared_connection(plan: Plan) -> int:
    """The process id of the SSH that holds the connection."""
    check = ["ssh", "-o", f"ControlPath={shared_socket(plan)}", "-O", "check", "any"]
    said = subprocess.run(check, capture_output=True, text=True).stderr
    return int(said.rpartition("pid=")[2].split(")")[0])


def answers(address: str, seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether ZooKeeper does; a forward takes a connection for a host that is dead as well."""
    host, _, port = address.partition(":")
    try:
        with socket.create_connection((host, int(port)), seconds) as link:
            link.settimeout(seconds)
            link.sendall(b"srvr")
            return b"Zookeeper version" in link.recv(200)
    except OSError:
        return False


def test_services_answer_at_their_mirrors_and_nowhere_else(plan: Plan) -> None:
    mirrors = tunnel.addresses(plan, "zookeeper", "client")
    assert [m.startswith("127.") for m in mirrors] == [True] * len(mirrors)
    assert all(map(answers, mirrors))
    at_home = plan.addresses("zookeeper", "client")
    assert not any(answers(address, NOBODY_SECONDS) for address in at_home)


def test_a_connection_that_dies_is_opened_again_for_a_command_that_goes_on(plan: Plan) -> None:
    [mirror, *_] = tunnel.addresses(plan, "zookeeper", "client")
    before = shared_connection(plan)
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: answers(mirror, NOBODY_SECONDS), 2 * PATIENCE_SECONDS, "a way in", 0.2)
    assert shared_connection(plan) != before


def test_another_edge_host_takes_the_place_of_one_that_hangs(plan: Plan) -> None:
    [mirror, *_] = tunnel.addresses(plan, "zookeeper", "client")
    entered = plan.host(shared_socket(plan).with_suffix(".lock").read_text())
    control = provider_of(plan).control(plan)
    control.freeze(entered)
    try:
        assert not answers(mirror, NOBODY_SECONDS)
        wait_until(
            lambda: answers(mirror, NOBODY_SECONDS), 2 * PATIENCE_SECONDS, "another way in", 0.2
        )
        assert InsightApi(plan).get("/v1/progress")
    finally:
        control.thaw(entered)


def test_two_commands_share_the_connection(plan: Plan) -> None:
    tunnel.enter(plan)
    before = shared_connection(plan)
    command = [sys.executable, "-m", "millrace.cli", "jobs"]
    subprocess.run(command, check=True, capture_output=True)
    assert shared_connection(plan) == before
