"""What is late: no event by one that is ahead of its time, and what is says where it is missing."""

from pathlib import Path

import pytest
from millrace_jobs.inputs.checkpoint import Batch
from millrace_jobs.output import Window
from millrace_jobs.query.late_events import JudgedBatch, Touched, late_windows
from pyspark.sql import DataFrame, SparkSession

from tests.jobs.running import Query, job_of
from tests.jobs.samples import EVENT, STREAM, at, millis, settings_of

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


@pytest.mark.parametrize(
    ("window", "reach", "starts"),
    [
        (Window.plain(60), 0, ["12:05:00"]),
        (Window(180, 60), 0, ["12:03:00", "12:04:00", "12:05:00"]),
        (Window(180, 60, 20), 0, ["12:02:20", "12:03:20", "12:04:20"]),
        (Window.plain(60), 90, ["12:03:00", "12:04:00", "12:05:00", "12:06:00"]),
    ],
)
def test_a_late_event_is_missing_from_all_of_its_windows(
    spark: SparkSession, window: Window, reach: int, starts: list[str]
) -> None:
    late, in_time = at("2026-01-01 12:05:07"), at("2026-01-01 14:00:00")
    rows = [(late, 0, 0), (in_time, 0, 1)]
    events = spark.createDataFrame(rows, "event_time timestamp, partition int, offset bigint")
    batch = Batch({"events": {"0": 0}}, {"events": {"0": 2}})
    judged = [JudgedBatch(7, batch, millis("2026-01-01 13:00:00"))]
    found = late_windows(events, "event_time", window, Touched(window, reach), judged).collect()
    assert {row.number for row in found} == {7}
    assert sorted(f"{row.window_start:%H:%M:%S}" for row in found) == starts
