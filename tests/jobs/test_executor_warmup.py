"""An executor that joins a leading driver rehearses what the driver runs."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.standby import executor_warmup
from millrace_jobs.standby.executor_warmup import ExecutorWarmup
from millrace_jobs.standby.ready import ReadyJob

from tests.waiting import PATIENCE_SECONDS

JOBS: Any = [ReadyJob(SimpleNamespace(job=name), None, None) for name in ("traffic", "archive")]  # type: ignore[arg-type]


class Cluster:
    """Executors that come and go; what is rehearsed, each as long as ``busy`` says."""

    def __init__(self) -> None:
        self.there = {"driver:1", "worker-1:1", "worker-2:1"}
        self.rehearsed: list[tuple[str, int]] = []
        self.busy: Callable[[], object] = lambda: None
        self.number = 2

    def addresses(self) -> frozenset[str]:
        return frozenset(self.there)

    def rehearse_on_all(self, one: ReadyJob, number: int, over: threading.Event) -> None:
        self.rehearsed.append((one.name, number))
        self.busy()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(executor_warmup, "rehearse_on_all", cluster.rehearse_on_all)
    monkeypatch.setattr(executor_warmup, "LOOK_SECONDS", 0)
    return cluster


def of(cluster: Any) -> ExecutorWarmup:
    return ExecutorWarmup(cluster)


def ended() -> None:
    """What is being rehearsed."""
    for thread in threading.enumerate():
        if thread.name == "newcomers":
            thread.join(PATIENCE_SECONDS)


def test_one_that_joins_rehearses_all_that_runs(cluster: Cluster) -> None:
    watch = of(cluster)
    watch.look(JOBS)
    cluster.there.remove("worker-1:1")
    watch.look(JOBS)
    ended()
    assert cluster.rehearsed == []  # these had stood by, or are gone
    cluster.there.add("worker-3:1")
    watch.look(JOBS)
    ended()
    assert cluster.rehearsed == [("traffic", 2), ("archive", 2)]
    watch.look(JOBS)
    assert len(cluster.rehearsed) == 2


def test_who_joins_meanwhile_has_a_turn_of_its_own(cluster: Cluster) -> None:
    has_begun, is_done = threading.Event(), threading.Event()
    cluster.busy = lambda: (has_begun.set(), is_done.wait(PATIENCE_SECONDS))
    watch = of(cluster)
    for newcomer in ("worker-1:2", "worker-2:2"):
        cluster.there.add(newcomer)
        watch.look(JOBS[:1])
        assert has_begun.wait(PATIENCE_SECONDS)
    assert len(cluster.rehearsed) == 1
    is_done.set()
    ended()
    watch.look(JOBS[:1])
    ended()
    assert len(cluster.rehearsed) == 2


def test_nothing_more_is_rehearsed_once_the_driver_is_to_end(cluster: Cluster) -> None:
    watch = of(cluster)
    cluster.busy = watch.end
    cluster.there.add("worker-3:1")
    watch.look(JOBS)
    ended()
    assert cluster.rehearsed == [("traffic", 2)]


def test_a_look_is_rare(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_warmup, "LOOK_SECONDS", 3600)
    watch = of(cluster)
    watch.look(JOBS)
    cluster.there.add("worker-3:1")
    watch.look(JOBS)
    ended()
    assert cluster.rehearsed == []
