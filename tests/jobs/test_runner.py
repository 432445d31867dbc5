"""From standing by to the end."""

from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.driver import work
from pyspark.sql import SparkSession

from tests.jobs.fakes import FakeJob, workers
from tests.jobs.samples import settings_of


@pytest.mark.parametrize("lost", [True, False])
def test_who_lost_the_lease_waits_for_no_batch(monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    """A driver that was frozen would otherwise stay in its successor's standby's way."""
    drained: list[Any] = []
    waited: list[float] = []
    context = SimpleNamespace(settings=settings_of("traffic"))
    one = SimpleNamespace(name="traffic", context=context, query=None, job=FakeJob())

    def acquire(within: float) -> bool:
        waited.append(within)
        return True

    lease = SimpleNamespace(is_lost=False, acquire=acquire, release=lambda: None)
    driver: Any = SimpleNamespace(
        lease=lease,
        announce=lambda state: None,
        is_disabled=lambda job: False,
        is_stop_desired=lambda version: False,
    )
    config: Any = SimpleNamespace(
        jobs=["traffic"], version="v1", lease_seconds=3, catch_up_seconds=45
    )

    def fail(*_: Any) -> None:
        lease.is_lost = lost
        raise RuntimeError

    monkeypatch.setattr(work, "Tables", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(work, "prepare", lambda *_: one)
    monkeypatch.setattr(work, "supervise", fail)
    monkeypatch.setattr(work, "drain", drained.append)
    with pytest.raises(RuntimeError):
        work.serve(config, None, workers([]), driver, rehearsing=False)  # type: ignore[arg-type]
    assert len(drained) == (0 if lost else 1)
    assert waited == [51]  # before it would rehearse beside another one that leads


def test_batches_send_hadoops_configuration_without_the_names_of_its_files(
    spark: SparkSession,
) -> None:
    java: Any = spark.sparkContext._jvm
    configuration = spark.sparkContext._jsc.hadoopConfiguration()

    def sent() -> int:
        written = java.java.io.ByteArrayOutputStream()
        configuration.write(java.java.io.DataOutputStream(written))
        return int(written.size())

    values, before = configuration.size(), sent()
    work._forget_sources(spark)
    assert sent() < 0.7 * before
    assert configuration.size() == values
    configuration.set("one.more", "value")
    assert configuration.get("one.more") == "value"
