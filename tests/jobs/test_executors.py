"""How many executors a driver asks for, and when."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.standby import executors
from millrace_jobs.standby.executors import Executors, SparkStopped
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession


class Allocation:
    """A context whose executors come one with each look; they are counted with the driver."""

    def __init__(self, present: int) -> None:
        self.present = present
        self.asked: list[Any] = []
        self._jsc = SimpleNamespace(sc=lambda: self)
        self._jvm = SimpleNamespace(PythonUtils=SimpleNamespace(toScalaMap=dict))

    def requestTotalExecutors(self, *arguments: Any) -> None:
        self.asked.append(arguments)

    def getExecutorMemoryStatus(self) -> Any:
        self.present += 1
        there = " ".join(f"host-{number}:7000" for number in range(self.present))
        addresses = SimpleNamespace(mkString=lambda _: there)
        return SimpleNamespace(keySet=lambda: addresses)


def of(allocation: Allocation, number: int) -> Executors:
    session: Any = SimpleNamespace(sparkContext=allocation)
    return Executors(session, number)


def test_all_are_asked_for_once() -> None:
    allocation = Allocation(present=1)
    workers = of(allocation, 3)
    workers.complete()
    workers.complete()
    assert allocation.asked == [(3, 0, {})]


def test_it_waits_until_all_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "POLL_SECONDS", 0)
    allocation = Allocation(present=1)
    of(allocation, 3).wait(threading.Event())
    assert allocation.present == 4  # with the driver


def test_it_waits_for_none_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "SECONDS", 0)
    of(Allocation(present=0), 1000).wait(threading.Event())


def test_it_waits_no_longer_than_the_driver_stands_by() -> None:
    over = threading.Event()
    over.set()
    of(Allocation(present=0), 1000).wait(over)


@pytest.mark.parametrize("lost", [True, OSError("connection refused"), Py4JError("no JVM")])
def test_a_spark_that_has_ended_is_told_from_one_that_runs(lost: Any) -> None:
    allocation = Allocation(1)

    def is_stopped() -> Any:
        if isinstance(lost, Exception):
            raise lost
        return lost

    allocation.isStopped = is_stopped  # type: ignore[attr-defined]
    with pytest.raises(SparkStopped):
        of(allocation, 1).verify()
    allocation.isStopped = lambda: False  # type: ignore[attr-defined]
    of(allocation, 1).verify()
    allocation._jsc = None  # type: ignore[assignment]
    with pytest.raises(SparkStopped):
        of(allocation, 1).verify()


def test_spark_has_what_is_called(spark: SparkSession) -> None:
    """A local Spark allocates nothing, but has the methods; its driver is all that it counts."""
    workers = Executors(spark, 0)
    workers.complete()
    workers.wait(threading.Event())
    assert len(workers.addresses()) == 1
    workers.verify()
