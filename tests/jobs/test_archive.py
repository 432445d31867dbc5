"""The archive job's batches, and the archive's upkeep."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs import maintenance
from millrace_jobs.checkpoint import Batch
from millrace_jobs.jobs import archive as job
from millrace_jobs.sinks import archive
from millrace_jobs.transforms import parse
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.jobs.samples import NAMES, RECEIVED, STREAM, event

pytestmark = pytest.mark.slow

Records = Callable[[list[bytes | None]], DataFrame]
Write = Callable[[list[bytes | None], int], list[str]]


def test_upkeep_is_of_the_archive_of_each_stream() -> None:
    settings = {
        "archive": {"stream": "events", "keep_days": 30},
        "archive_clicks": {"stream": "clicks", "keep_days": 7},
    }
    deployed: Any = SimpleNamespace(
        jobs=["archive", "traffic", "archive_clicks"],
        settings=settings,
        streams={"events": "events", "clicks": "clicks"},
        archive_of=lambda one: f"/archive/{one}",
    )
    assert list(maintenance.archives(deployed)) == [
        ("/archive/events", timedelta(days=30)),
        ("/archive/clicks", timedelta(days=7)),
    ]


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "events")


@pytest.fixture
def driver(records: Records, table: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Write]:
    """Starts a driver, or the job ``again`` on the driver that there is.

    Gives a function that has it write a batch and tells the dead letters.
    """
    reasons: list[str] = []
    told: list[int] = []
    jobs: list[job.Archive] = []

    class DeadLetters:
        def __init__(self, *_: Any) -> None:
            pass

        def write(self, malformed: DataFrame, *_: Any) -> None:
            reasons.extend(row.reason for row in malformed.collect())

    class Positions:
        def __init__(self, *_: Any) -> None:
            pass

        def tell(self, read: Any) -> None:
            told.append(read["events"]["0"])

        def tell_last(self, _: Any) -> None:
            pass

    monkeypatch.setattr(job, "DeadLetters", DeadLetters)
    monkeypatch.setattr(job, "Positions", Positions)

    def start(again: bool = False) -> Write:
        context = SimpleNamespace(
            job="archive",
            config=SimpleNamespace(kafka="", archive_of=lambda _: table, names=NAMES),
            stream=STREAM,
            settings={
                "dead_letter_request_bytes": 1,
                "kafka_connect_ms": 2000,
                "shuffle_partitions": 1,
                "writers_per_hour": 1,
            },
            tables=None,
            checkpoint_id=lambda: "checkpoint",
            version=lambda batch: batch,
            lease=SimpleNamespace(confirm=lambda: None, verify=lambda: None),
            checkpoint=SimpleNamespace(batch=lambda number: Batch({}, {"events": {"0": number}})),
        )
        if not again:
            jobs.append(job.Archive(context))  # type: ignore[arg-type]
        archive_job = jobs[-1]
        archive_job.lead()

        def write(values: list[bytes | None], batch: int) -> list[str]:
            reasons.clear()
            archive_job.write(records(values), batch)
            assert told[-1] == batch  # how far it has read
            return list(reasons)

        return write

    return start


def test_each_record_goes_one_way(
    spark: SparkSession, table: str, driver: Callable[..., Write]
) -> None:
    write = driver()
    assert write([event(), event()], 0) == []
    assert write([event(), b"garbage", event()], 1) == ["not JSON"]
    assert write([b"garbage"], 2) == ["not JSON"]
    assert write([], 3) == []
    assert spark.read.format("delta").load(table).count() == 4


@pytest.mark.parametrize("again", [False, True])
def test_a_batch_that_was_begun_before_is_finished(
    spark: SparkSession, table: str, driver: Callable[..., Write], again: bool
) -> None:
    batch = [event(), b"garbage"]
    driver()(batch, 0)
    # As if the first one had died, or failed, between Delta's commit and the dead letters.
    assert driver(again)(batch, 0) == ["not JSON"]
    assert spark.read.format("delta").load(table).count() == 1


def _append(table: str, records: Records, times: list[str], batch: int) -> None:
    values: list[bytes | None] = [event(event_time=time) for time in times]
    events = parse.valid(records(values).transform(parse.classify, STREAM), STREAM)
    archive.append(events, "event_time", table, "test", batch, writers=4, writers_per_hour=2)


def _files(spark: SparkSession, table: str) -> dict[int, int]:
    rows = spark.read.format("delta").load(table).selectExpr("event_hour", "_metadata.file_name")
    by_hour = rows.distinct().groupBy("event_hour").agg(F.count("*").alias("files")).collect()
    return {row.event_hour: row.files for row in by_hour}


def test_few_tasks_share_an_hour(spark: SparkSession, records: Records, table: str) -> None:
    """One would bound the archive to what one core writes; all would leave too many files."""
    _append(table, records, ["2015-05-17T10:05:03Z"] * 8 + ["2015-05-17T11:05:03Z"] * 8, 0)
    assert _files(spark, table) == {10: 2, 11: 2}


def test_compaction_merges_the_hours_that_are_over(
    spark: SparkSession, records: Records, table: str
) -> None:
    for batch in range(3):
        _append(table, records, ["2015-05-17T10:05:03Z", "2015-05-17T11:05:03Z"], batch)
    maintenance.compact(spark, table, datetime(2015, 5, 17, 11, 30, tzinfo=UTC))
    assert _files(spark, table) == {10: 1, 11: 3}
    assert spark.read.format("delta").load(table).count() == 6


def test_expiry_goes_by_when_events_were_received(
    spark: SparkSession, records: Records, table: str
) -> None:
    _append(table, records, ["2015-05-17T10:05:03Z"], 0)
    received = RECEIVED.replace(tzinfo=UTC)
    keep = timedelta(days=30)
    maintenance.expire(spark, table, keep, received + timedelta(days=29))
    assert spark.read.format("delta").load(table).count() == 1
    maintenance.expire(spark, table, keep, received + timedelta(days=31))
    assert spark.read.format("delta").load(table).count() == 0
