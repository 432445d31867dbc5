"""The standby's rehearsal, on a query with state that always has more to read."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.inputs.checkpoint import Checkpoint
from millrace_jobs.query.executor_deaths import KillsExecutors
from millrace_jobs.standby import rehearsal as module
from millrace_jobs.standby.rehearsal import Rehearsal
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.clock import Clock
from tests.waiting import PATIENCE_SECONDS, wait_until

LONG = 2 * PATIENCE_SECONDS  # a Spark that begins, or a handful of batches


class Job:
    """Counts what comes in, as the traffic job does, and keeps how it was rehearsed."""

    output_mode = "update"

    def __init__(self, spark: SparkSession, fails_at: int | None = None) -> None:
        self.spark = spark
        self.fails_at = fails_at
        self.frames = 0
        self.rehearsed: list[int] = []

    def frame(self, records: int) -> DataFrame:
        self.frames += 1
        rows = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", records)
        return rows.load().groupBy("value").count()

    def rehearse(self, frame: DataFrame, batch: int, scratch: str) -> None:
        if len(self.rehearsed) == self.fails_at:
            self.fails_at = None
            raise RuntimeError("no such table")
        self.rehearsed.append(len(frame.collect()))


@pytest.fixture
def scratch(spark: SparkSession, tmp_path: Path) -> Checkpoint:
    return Checkpoint(spark, str(tmp_path / "scratch"))


def is_gone(scratch: Checkpoint) -> bool:
    place = Path(scratch.location)
    return wait_until(lambda: not place.exists(), LONG, "the rehearsal is over", every=0.1)


def returns(call: Callable[[], object]) -> bool:
    """Whether it does: it may hang for as long as it likes, and nobody would wait for it."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LONG)
    return not thread.is_alive()


class Pauses(threading.Event):
    """Takes no pause of ``seconds``, and writes each down."""

    def __init__(self, seconds: float, course: list[str]) -> None:
        super().__init__()
        self._seconds = seconds
        self._course = course

    def wait(self, timeout: float | None = None) -> bool:
        if timeout != self._seconds:
            return super().wait(timeout)
        self._course.append("pause")
        return self.is_set()


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIGGER", "100 milliseconds")
    monkeypatch.setattr(module, "REST_POLL_SECONDS", 0.1)
    monkeypatch.setattr(module, "WARM_BATCHES", 3)


@pytest.fixture
def rehearse(scratch: Checkpoint) -> Iterator[Callable[..., Rehearsal]]:
    """Begins a rehearsal that ends with the test."""
    begun: list[Rehearsal] = []

    def begin(job: Job, pause_seconds: float, **more: Any) -> Rehearsal:
        begun.append(Rehearsal(job, scratch, pause_seconds, **more))
        return begun[-1]

    yield begin
    for rehearsal in begun:
        rehearsal.end()
    assert is_gone(scratch)


def test_a_standby_rehearses_until_it_is_to_lead(spark, scratch, rehearse):
    job, course = Job(spark), []
    pauses = Pauses(3600, course)
    rehearsal = rehearse(job, 3600, after_batch=lambda: course.append("batch"), over=pauses)
    rehearsal.wait()
    assert len(job.rehearsed) >= module.READY_BATCHES
    wait_until(lambda: len(course) >= 7, LONG, "it goes on")
    assert course[:7] == ["batch"] * 3 + ["pause", "batch"] * 2  # rarely, once it is warm
    rehearsal.end()
    assert is_gone(scratch)
    assert set(job.rehearsed) == {module.RECORDS}
    assert not spark.streams.active


def test_a_standby_is_warm_after_some_batches(spark, rehearse):
    job, told = Job(spark), []
    rehearse(job, 0, when_warm=lambda: told.append(len(job.rehearsed)))
    wait_until(lambda: len(job.rehearsed) > 6, LONG, "it goes on")
    assert len(told) == 1
    assert told[0] >= 3


def test_who_leads_before_it_is_warm_is_no_standby(spark, scratch, rehearse, monkeypatch):
    monkeypatch.setattr(module, "WARM_BATCHES", 1000)
    job, told = Job(spark), []
    rehearsal = rehearse(job, 0, when_warm=lambda: told.append("warm"))
    rehearsal.wait()
    rehearsal.end()
    assert is_gone(scratch)
    assert told == []


def test_a_rehearsal_that_ends_executors_ends_and_rests(spark, rehearse, monkeypatch):
    job, course = Job(spark), []
    deaths = iter([KillsExecutors("a task has ended 2 executors")])
    monkeypatch.setattr(module, "killing", lambda *_: next(deaths, None))
    monkeypatch.setattr(module, "DEATHS_POLL_SECONDS", 0.0)
    rehearse(job, 0, over=Pauses(module.DEADLY_PAUSE_SECONDS, course))
    wait_until(lambda: course and len(job.rehearsed) >= 2, LONG, "it begins anew after a pause")
    assert course == ["pause"]


def test_once_it_could_lead_a_rehearsal_gives_way(spark, rehearse, monkeypatch):
    monkeypatch.setattr(module, "READY_BATCHES", 1)
    asked = []

    def gives_way() -> bool:
        asked.append(len(job.rehearsed))
        return len(asked) < 3

    job = Job(spark)
    rehearse(job, 0, gives_way=gives_way)
    wait_until(lambda: len(job.rehearsed) >= 2, LONG, "it goes on")
    assert asked[:3] == [1, 1, 1]  # and not before its first batch


def test_who_is_to_lead_waits_for_no_pause(spark, scratch, rehearse):
    job = Job(spark)
    rehearsal = rehearse(job, 3600)
    wait_until(lambda: len(job.rehearsed) == 3, LONG, "it is warm")
    rehearsal.end()
    assert is_gone(scratch)
    assert len(job.rehearsed) == 3


def test_a_brief_rehearsal_ends_by_itself(spark, scratch, rehearse, caplog):
    job = Job(spark)
    rehearse(job, 3600, batches=2).wait()
    assert is_gone(scratch)
    assert len(job.rehearsed) == 2
    assert not spark.streams.active
    assert [record for record in caplog.records if record.exc_info] == []


def test_who_is_to_lead_ends_all_rehearsals(spark, scratch, rehearse, monkeypatch):
    monkeypatch.setattr(module, "READY_BATCHES", 10**6)
    monkeypatch.setattr(module, "SECONDS", 3600)
    over = threading.Event()
    rehearsal = rehearse(Job(spark), 0, over=over)
    over.set()
    assert returns(rehearsal.wait)  # for no batch
    assert is_gone(scratch)


def test_who_is_warm_is_told_so_again(spark, rehearse, monkeypatch):
    clock, told, job = Clock(), [], Job(spark)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    rehearse(job, 0, when_warm=lambda: told.append("warm"))
    wait_until(lambda: len(job.rehearsed) > 6, LONG, "it goes on")
    assert told == ["warm"]
    clock.sleep(module.AGAIN_SECONDS)
    wait_until(lambda: len(told) == 2, LONG, "it is told again")


def test_a_round_ends_before_its_state_grows(spark, rehearse, monkeypatch):
    monkeypatch.setattr(module, "ROUND_BATCHES", 4)
    job = Job(spark)
    rehearse(job, 0)
    wait_until(lambda: len(job.rehearsed) > 5, LONG, "another round")
    assert job.frames >= 2


def test_what_would_fail_when_leading_fails_the_rehearsal(spark, scratch, rehearse, caplog):
    with pytest.raises(StreamingQueryException, match="no such table"):
        rehearse(Job(spark, fails_at=0), 5).wait()
    assert is_gone(scratch)
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "no such table"
    ]


def test_a_failure_while_standing_by_is_only_a_round_lost(spark, rehearse):
    job = Job(spark, fails_at=4)
    rehearse(job, 0.1).wait()
    wait_until(lambda: len(job.rehearsed) > 6, LONG, "another round")


def test_whatever_fails_is_tried_again_in_another_round(spark, rehearse):
    told: list[str] = []

    def tell() -> None:
        told.append("warm")
        if len(told) == 1:
            raise OSError("ZooKeeper is away")

    job = Job(spark)
    rehearse(job, 0.1, when_warm=tell).wait()
    wait_until(lambda: len(told) == 2 and len(job.rehearsed) > 6, LONG, "it goes on")
    assert len(spark.streams.active) == 1


class Idle(Job):
    """Reads a folder, in which there is nothing at first."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark)
        self.folder = folder
        folder.mkdir()

    def frame(self, records: int) -> DataFrame:
        lines = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.folder))
        return lines.groupBy("value").count()


@pytest.fixture
def idle(spark: SparkSession, tmp_path: Path) -> Idle:
    return Idle(spark, tmp_path / "topic")


def test_an_idle_topic_isnt_waited_for_but_rehearsed_with_once_it_has_records(
    idle, rehearse, monkeypatch
):
    monkeypatch.setattr(module, "SECONDS", 3600)
    told: list[str] = []
    assert returns(rehearse(idle, 2, when_warm=lambda: told.append("warm")).wait)
    wait_until(lambda: told, LONG, "it is as warm as it can get")
    assert idle.rehearsed == []
    for number in range(2):
        (idle.folder / f"{number}.txt").write_text("one\n")
    wait_until(lambda: len(idle.rehearsed) > 5, LONG, "the records are read again")


def test_a_topic_that_is_read_to_its_end_is_read_again(idle, rehearse, monkeypatch):
    """As rarely as a standby does: most of the time the query waits for its trigger."""
    monkeypatch.setattr(module, "TRIGGER", "1 second")
    for number in range(2):
        (idle.folder / f"{number}.txt").write_text("one\n")
    rehearse(idle, 2).wait()
    wait_until(lambda: len(idle.rehearsed) > 4, LONG, "the records are read again")


@pytest.mark.parametrize("records", [0, 1])
def test_a_brief_rehearsal_waits_for_no_records(spark, idle, scratch, rehearse, records):
    for number in range(records):
        (idle.folder / f"{number}.txt").write_text("one\n")
    rehearse(idle, 3600, batches=2).wait()
    assert is_gone(scratch)
    assert len(idle.rehearsed) == records
    assert not spark.streams.active


def test_who_is_to_lead_ends_it(spark, idle, scratch, rehearse):
    rehearsal = rehearse(idle, 0)
    rehearsal.wait()
    rehearsal.end()
    assert is_gone(scratch)
    assert not spark.streams.active
