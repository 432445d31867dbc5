"""What a gateway does with its decisions."""

import logging
import os
from dataclasses import replace

import pytest
from millrace_gateway.daemon import Gateway
from millrace_gateway.decide import Intent, Order, Submission
from millrace_gateway.registry import LockLost

from tests.gateway.fakes import (
    NOW,
    ONE,
    PAIR,
    RUNNING_V2,
    TOLD_V2,
    TWO,
    UPGRADE,
    Cluster,
    Registry,
    spark_submit,
)
from tests.waiting import soon


def until_reaped(gateway: Gateway, registry: Registry) -> Submission:
    """Turns the gateway until its spark-submit has ended."""

    def ended() -> bool:
        gateway.turn()
        return registry.submissions["insights"].ended is not None

    soon(ended, "spark-submit has ended")
    return registry.submissions["insights"]


def test_a_submission_is_written_down_and_done_once(settings, tmp_path):
    registry, cluster = Registry(RUNNING_V2), Cluster()
    calls = tmp_path / "calls"
    goes_on = tmp_path / "goes-on"
    script = f"echo $* >> {calls}; until [ -e {goes_on} ]; do sleep 0.01; done"
    recording = spark_submit(tmp_path, script)
    gateway = Gateway(replace(settings, spark_submit=recording), registry, cluster)
    gateway.turn()
    assert registry.orders["insights"].state == "running"
    assert registry.submissions["insights"].gateway == "edge-1"
    soon(calls.exists, "it was called")
    gateway.turn()
    goes_on.touch()
    cluster.runs = PAIR
    assert until_reaped(gateway, registry).failures == 0
    assert calls.read_text().count("\n") == 1


def test_a_failing_spark_submit_is_told_and_counted(settings, tmp_path):
    registry = Registry(RUNNING_V2)
    failing = spark_submit(tmp_path, "echo java.io.IOException: no space; exit 1")
    gateway = Gateway(replace(settings, spark_submit=failing), registry, Cluster())
    gateway.turn()
    last = until_reaped(gateway, registry)
    assert last.failures == 1
    assert last.error.startswith("java.io.IOException: no space")
    gateway.turn()
    assert registry.statuses[-1]["phase"] == "backing-off"


def test_a_version_that_this_host_lacks_is_a_failure_that_names_the_file(settings):
    registry = Registry(Intent("running", "v9"))
    Gateway(settings, registry, Cluster()).turn()
    error = registry.submissions["insights"].error
    assert "insights-v9/millrace_jobs.zip is missing" in error
    assert "deploy-jobs.yml" in error


def test_one_log_line_and_one_status_for_each_change(settings, caplog):
    registry, cluster = Registry(RUNNING_V2), Cluster()
    registry.orders["insights"] = TOLD_V2
    cluster.runs = PAIR
    registry.told = [
        {"run": ONE, "host": "worker-1", "state": "leading", "since": NOW},
        {"run": TWO, "host": "worker-2", "state": "standby", "since": NOW},
    ]
    gateway = Gateway(settings, registry, cluster)
    with caplog.at_level(logging.INFO, "gateway"):
        for away in (False, False, True, True, False):
            cluster.away = away
            gateway.turn()
    assert [status["phase"] for status in registry.statuses] == ["running", "unknown", "running"]
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("one", "two", "killed"),
    [("draining", "standby", []), ("draining", "leading", [ONE]), ("leading", "leading", [ONE])],
)
def test_who_finishes_its_last_batches_is_not_killed_meanwhile(settings, one, two, killed):
    registry, cluster = Registry(RUNNING_V2), Cluster()
    registry.orders["insights"] = Order("stopped", "v1", NOW)
    cluster.runs = UPGRADE
    registry.told = [
        {"run": ONE, "host": "worker-1", "state": one, "since": NOW},
        {"run": TWO, "host": "worker-2", "state": two, "since": NOW + 1},
    ]
    Gateway(settings, registry, cluster, clock=lambda: NOW + 2).turn()
    assert cluster.killed == killed


@pytest.mark.parametrize(
    ("state", "host", "workers", "killed"),
    [
        ("standby", "worker-1", 3, [TWO]),
        ("standby", "worker-1", 1, []),
        ("standby", "worker-2", 3, []),
        ("warming", "worker-1", 3, [TWO]),  # to warm up first takes minutes
        ("draining", "worker-1", 3, []),
    ],
)
def test_who_is_to_stand_by_on_the_leaders_host_goes_if_there_is_another(
    settings, state, host, workers, killed
):
    registry, cluster = Registry(RUNNING_V2), Cluster()
    registry.orders["insights"] = TOLD_V2
    cluster.runs, cluster.workers = PAIR, workers
    registry.told = [
        {"run": ONE, "host": "worker-1", "state": "leading", "since": NOW},
        {"run": TWO, "host": host, "state": state, "since": NOW},
    ]
    Gateway(settings, registry, cluster, clock=lambda: NOW).turn()
    assert cluster.killed == killed


@pytest.mark.parametrize(
    ("state", "seconds", "killed"),
    [("warming", 901, [TWO]), ("warming", 899, []), ("standby", 10**6, [])],
)
def test_who_never_gets_warm_goes(settings, state, seconds, killed):
    registry, cluster = Registry(RUNNING_V2), Cluster()
    registry.orders["insights"] = TOLD_V2
    cluster.runs = PAIR
    registry.told = [
        {"run": ONE, "host": "worker-1", "state": "leading", "since": NOW - 10**6},
        {"run": TWO, "host": "worker-2", "state": state, "since": NOW - seconds},
    ]
    Gateway(settings, registry, cluster, clock=lambda: NOW).turn()
    assert cluster.killed == killed


def test_a_gateway_without_the_lock_does_nothing(settings):
    registry = Registry(RUNNING_V2)
    registry.leads = False
    with pytest.raises(LockLost):
        Gateway(settings, registry, Cluster()).turn()
    assert not registry.submissions


def test_what_a_restarted_gateway_had_begun_is_over(settings):
    registry = Registry(RUNNING_V2)
    registry.submissions["insights"] = Submission("v2", "edge-1", NOW)
    Gateway(settings, registry, Cluster(), clock=lambda: NOW).take_over()
    assert registry.submissions["insights"].ended is not None


def test_what_another_gateway_has_begun_may_still_arrive(settings):
    registry = Registry(RUNNING_V2)
    begun = registry.submissions["insights"] = Submission("v2", "edge-2", NOW)
    gateway = Gateway(settings, registry, Cluster(), clock=lambda: NOW)
    gateway.take_over()
    gateway.turn()
    assert registry.submissions["insights"] == begun


def test_a_gateway_that_leaves_takes_its_spark_submit_with_it(settings, tmp_path):
    registry = Registry(RUNNING_V2)
    child = tmp_path / "child"
    hanging = spark_submit(tmp_path, f"echo $$ > {child}; exec sleep 3600")
    gateway = Gateway(replace(settings, spark_submit=hanging), registry, Cluster())
    gateway.turn()
    soon(lambda: child.exists() and child.read_text(), "it has begun")
    gateway.leave()
    assert registry.submissions["insights"].ended is not None
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)
