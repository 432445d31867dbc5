"""The standby's rehearsal, on a query with state that always has more to read."""

import time
from pathlib import Path

import pytest
from millrace_jobs import warmup
from millrace_jobs.checkpoint import Checkpoint
from millrace_jobs.warmup import Rehearsal
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession


class Job:
    """Counts what comes in, as the traffic job does, and keeps how it was rehearsed."""

    output_mode = "update"

    def __init__(self, spark: SparkSession, fails: bool = False) -> None:
        self.spark = spark
        self.fails = fails
        self.rehearsed: list[int] = []

    def frame(self, records: int) -> DataFrame:
        rows = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", records)
        return rows.load().groupBy("value").count()

    def rehearse(self, frame: DataFrame) -> None:
        if self.fails:
            raise RuntimeError("no such table")
        self.rehearsed.append(len(frame.collect()))


@pytest.fixture
def scratch(spark: SparkSession, tmp_path: Path) -> Checkpoint:
    return Checkpoint(spark, str(tmp_path / "scratch"))


def is_gone(scratch: Checkpoint) -> bool:
    deadline = time.monotonic() + 60
    while Path(scratch.location).exists() and time.monotonic() < deadline:
        time.sleep(warmup.POLL_SECONDS)
    return not Path(scratch.location).exists()


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "TRIGGER", "100 milliseconds")
    monkeypatch.setattr(warmup, "BATCHES", 4)


def test_a_rehearsal_runs_its_batches_and_leaves_nothing(spark, scratch):
    job = Job(spark)
    Rehearsal(job, scratch).wait()
    assert len(job.rehearsed) >= warmup.READY_BATCHES
    assert is_gone(scratch)
    assert job.rehearsed == [warmup.RECORDS] * warmup.BATCHES
    assert not spark.streams.active


def test_what_would_fail_when_leading_fails_the_rehearsal(spark, scratch):
    with pytest.raises(StreamingQueryException, match="no such table"):
        Rehearsal(Job(spark, fails=True), scratch).wait()
    assert is_gone(scratch)


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


def test_an_idle_topic_isnt_waited_for_but_rehearsed_with_once_it_has_records(idle, scratch):
    began = time.monotonic()
    Rehearsal(idle, scratch).wait()
    assert time.monotonic() - began < warmup.SECONDS / 2
    assert idle.rehearsed == []
    for number in range(warmup.BATCHES + 1):
        (idle.folder / f"{number}.txt").write_text("one\n")
    assert is_gone(scratch)
    assert len(idle.rehearsed) == warmup.BATCHES


def test_who_is_to_lead_ends_it(spark, idle, scratch):
    rehearsal = Rehearsal(idle, scratch)
    rehearsal.wait()
    rehearsal.end()
    assert is_gone(scratch)
    assert not spark.streams.active
