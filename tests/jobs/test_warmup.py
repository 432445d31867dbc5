"""The standby's rehearsal, on a query with state that always has more to read."""

import time
from pathlib import Path

import pytest
from millrace_jobs import warmup
from millrace_jobs.checkpoint import Checkpoint
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


def test_a_rehearsal_runs_its_batches_and_leaves_nothing(spark, scratch):
    job = Job(spark)
    warmup.rehearse(job, scratch)
    assert job.rehearsed == [warmup.RECORDS] * warmup.BATCHES
    assert not Path(scratch.location).exists()
    assert not spark.streams.active


def test_what_would_fail_when_leading_fails_the_rehearsal(spark, scratch):
    with pytest.raises(StreamingQueryException, match="no such table"):
        warmup.rehearse(Job(spark, fails=True), scratch)
    assert not Path(scratch.location).exists()


def test_an_idle_topic_has_nothing_to_rehearse_with(spark, scratch, tmp_path):
    (tmp_path / "empty").mkdir()

    class Idle(Job):
        def frame(self, records: int) -> DataFrame:
            lines = self.spark.readStream.text(str(tmp_path / "empty"))
            return lines.groupBy("value").count()

    job = Idle(spark)
    began = time.monotonic()
    warmup.rehearse(job, scratch)
    assert job.rehearsed == []
    assert time.monotonic() - began < warmup.SECONDS / 2
