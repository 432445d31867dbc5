"""From standing by to the end."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.declared.loader import InvalidJob
from millrace_jobs.driver import work
from millrace_jobs.standby.ready import ReadyJob, UnreadyJob
from pyspark.sql import SparkSession

from millrace_shared.driver_record import DriverRecord
from tests.jobs.fakes import FakeJob, workers
from tests.jobs.samples import settings_of


@pytest.mark.parametrize("lost", [True, False])
def test_who_lost_the_lease_waits_for_no_batch(monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    """A driver that was frozen would otherwise stay in its successor's standby's way."""
    drained: list[Any] = []
    waited: list[float] = []
    context: Any = SimpleNamespace(job="traffic", settings=settings_of("traffic"))
    one = ReadyJob(context, FakeJob(), None)  # type: ignore[arg-type]

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
        jobs=["traffic"],
        version="v1",
        lease_seconds=3,
        catch_up_seconds=45,
        settings={"traffic": settings_of("traffic")},
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


CONFIG: Any = SimpleNamespace(
    jobs=["archive", "traffic", "theirs"],
    version="v2",
    settings={
        "archive": settings_of("archive"),
        "traffic": settings_of("traffic"),
        "theirs": settings_of("archive"),
    },
)


def preparing(monkeypatch: pytest.MonkeyPatch, error: Exception, *others: DriverRecord) -> Any:
    """The jobs of a driver, one of which can't be prepared."""

    def prepare(name: str, *_: Any) -> ReadyJob:
        if name == "theirs":
            raise error
        context: Any = SimpleNamespace(job=name)
        return ReadyJob(context, FakeJob(), None)  # type: ignore[arg-type]

    monkeypatch.setattr(work, "prepare", prepare)
    driver: Any = SimpleNamespace(lease=None, others=lambda: [*others])
    return work.prepare_all(CONFIG, None, None, driver)  # type: ignore[arg-type]


LEADS = DriverRecord(
    "application_1_1", "worker-1", "leading", 1.0, version="v1", jobs={"theirs": "running"}
)


@pytest.mark.parametrize(
    ("error", "others"),
    [
        (RuntimeError("no quorum"), [LEADS]),
        (InvalidJob("another state"), []),
        (InvalidJob("another state"), [replace(LEADS, version="v2")]),
        (InvalidJob("another state"), [replace(LEADS, jobs={"theirs": "failed"})]),
        (InvalidJob("another state"), [replace(LEADS, jobs={})]),
        (InvalidJob("another state"), [replace(LEADS, state="standby")]),
    ],
)
def test_a_job_that_can_t_be_prepared_fails_alone(
    monkeypatch: pytest.MonkeyPatch, error: Exception, others: list[DriverRecord]
) -> None:
    found = preparing(monkeypatch, error, *others)
    assert [one.name for one in found] == ["traffic", "archive", "theirs"]  # results first
    *able, unable = found
    assert all(isinstance(one, ReadyJob) for one in able)
    assert isinstance(unable, UnreadyJob)
    with pytest.raises(type(error)):
        unable.prepare()


def test_a_version_that_can_t_go_on_with_a_job_replaces_none_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InvalidJob):
        preparing(monkeypatch, InvalidJob("another state"), LEADS)


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
