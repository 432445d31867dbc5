"""One event that is ahead of its time makes no other one late."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.jobs.running import Query, job_of
from tests.jobs.samples import EVENT, STREAM, at, settings_of

JOB = "status_by_minute"


def test_the_watermark_is_behind_the_clock(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: dict[object, int] = {}

    def write(frame: DataFrame) -> None:
        counted.update({row.window_start: row.requests for row in frame.collect()})

    settings = settings_of(JOB, watermark_seconds=60)
    query = Query(spark, tmp_path, monkeypatch, job_of(spark, JOB, [STREAM], settings), write)
    try:
        for moment in ("19:59:30", "20:59:00", "19:59:40"):  # all received at 20:00
            query.send([EVENT | {"event_time": f"2026-01-01T{moment}Z"}])
        assert query.dropping == []
        assert counted[at("2026-01-01 19:59:00")] == 2
        query.send([EVENT | {"event_time": "2026-01-01T19:57:59Z"}])
        assert query.dropping == [3]
    finally:
        query.query.stop()
