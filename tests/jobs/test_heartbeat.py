"""What is told of a job while it runs, and late events that are counted."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.inputs.checkpoint import Batch
from millrace_jobs.query import heartbeat
from millrace_jobs.query.heartbeat import Heartbeat, JobRow
from millrace_jobs.query.late_events import JudgedBatch
from millrace_jobs.query.write_version import write_version
from millrace_jobs.sinks.cassandra import WriteFailed
from millrace_jobs.transforms.traffic import LATE_FOR

from tests.jobs.fakes import FakeJob, FakeTables
from tests.jobs.samples import millis, settings_of


class FakeLateEvents:
    windows = LATE_FOR

    def __init__(self) -> None:
        self.counted: list[int] = []
        self.watermarks_ms: list[int] = []
        self.ends: list[Any] = []
        self.readings = 0
        self.error: Exception | None = None

    def count(self, _: str, batches: list[JudgedBatch]) -> int:
        if self.error:
            raise self.error
        self.readings += 1
        self.counted += [batch.number for batch in batches]
        self.watermarks_ms += [batch.watermark_ms for batch in batches]
        self.ends += [batch.records.end for batch in batches]
        return 10 * len(batches)


def batch(number: int, watermark: str = "1970-01-01T00:00:00.000Z", dropped: int = 0) -> Any:
    """Spark's progress of a batch that reads two topics, and drops so many rows in its join."""
    return SimpleNamespace(
        batchId=number,
        eventTime={"watermark": watermark, "max": "2015-05-17T10:30:00.000Z"},
        stateOperators=[SimpleNamespace(numRowsDroppedByWatermark=rows) for rows in (0, dropped)],
        inputRowsPerSecond=7.0,
        durationMs={"addBatch": 400, "triggerExecution": 500},
        sources=[
            SimpleNamespace(
                startOffset=offsets(topic, number), endOffset=offsets(topic, number + 1)
            )
            for topic in ("events", "clicks")
        ],
    )


def offsets(topic: str, batches: int) -> str | None:
    """After so many batches of ten records, as Spark's progress has them."""
    return json.dumps({topic: {"0": 10 * batches}}) if batches else None


def known(**changes: Any) -> JobRow:
    """The job's row, as the driver before left it."""
    return JobRow(**{"epoch": 4, "checkpoint": "query"} | changes)


def follow(
    batches: list[Any],
    row: JobRow = JobRow(),  # noqa: B008  # frozen
    committed: int = -1,
    leads_for: float = heartbeat.CATCH_UP_SECONDS,
) -> tuple[Heartbeat, FakeTables, FakeLateEvents]:
    tables, late = FakeTables(), FakeLateEvents()
    context = SimpleNamespace(
        job="traffic",
        epoch=5,
        version=lambda batch: write_version(5, batch),
        settings=settings_of("traffic", trigger_seconds=2, watermark_seconds=3600),
        tables=tables,
        config=SimpleNamespace(version="v1"),
        checkpoint=SimpleNamespace(
            oldest=lambda: 3,
            batch=lambda number: Batch({}, {}),
            watermark_ms=lambda number: 1000 * number,
        ),
    )
    query: Any = SimpleNamespace(id="query", _jsq=None)
    following = Heartbeat(context, query, FakeJob(late_events=late), row, committed)
    following._reports = Told(batches)  # type: ignore[assignment]
    following._began -= leads_for
    return following, tables, late


class Told:
    """Reports of these batches."""

    def __init__(self, reports: list[Any]) -> None:
        self.unread = reports
        self.has_any = bool(reports)

    def tell(self, report: Any) -> None:
        self.unread.append(report)
        self.has_any = True

    def news(self) -> list[Any]:
        news, self.unread = self.unread, []
        return news


def test_only_batches_of_which_spark_dropped_something_are_read_again() -> None:
    watermark = "2015-05-17T10:06:00.000Z"
    batches = [batch(0), batch(1, watermark, dropped=1), batch(2, watermark), batch(3, watermark)]
    following, tables, late = follow(batches)
    following.follow()
    assert late.counted == [1]
    assert late.ends == [{"events": {"0": 20}, "clicks": {"0": 20}}]
    row = tables.rows[-1]
    assert (row['"batch"'], row["epoch"], row["version"]) == (3, 5, "v1")
    assert row["watermark"].isoformat() == "2015-05-17T10:06:00+00:00"
    assert row["max_event_time"].isoformat() == "2015-05-17T11:06:00+00:00"  # an hour ahead of it


def test_what_a_driver_has_done_adds_up_from_when_it_began_to_lead() -> None:
    following, tables, _ = follow([batch(8), batch(9, *LATE)], known(batch=7), committed=7)
    following.follow()
    assert tables.work == {"job": "traffic", "batches": 2, "batch_ms": 1000, "late_events": 10}


def test_whoever_sizes_batches_hears_of_each_and_of_none() -> None:
    idle = batch(1)
    idle.durationMs = {"triggerExecution": 4}
    following, *_ = follow([batch(0), idle])
    heard: list[Any] = []
    following.pacing = SimpleNamespace(take_in=heard.append)  # type: ignore[assignment]
    following.follow()
    assert heard == [batch(0), idle]


def test_a_batch_is_taken_in_once() -> None:
    following, _, late = follow([batch(1, *LATE)])
    following.follow()
    following.follow()
    assert late.counted == [1]


LATE = "2015-05-17T11:00:00Z", 1


def test_a_slow_clock_has_its_batches_read_again_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: now)
    following, tables, late = follow([])
    for number in range(12):
        now = float(number)
        following._reports.tell(batch(number, *LATE))  # type: ignore[attr-defined]
        following.follow()
    assert late.counted == list(range(11))
    assert late.readings == 3  # after 0, 5 and 10 s
    assert tables.rows[-1]['"batch"'] == 10  # the newest that is counted
    assert late.watermarks_ms[:2] == [0, millis("2015-05-17 11:00:00")]  # of the batch before


@pytest.mark.parametrize("error", [RuntimeError("offsets are gone"), WriteFailed("no quorum")])
def test_what_cant_be_counted_ends_nothing_and_is_told(error: Exception) -> None:
    following, tables, late = follow([batch(0, *LATE), batch(1, *LATE)])
    late.error = error
    following.follow()
    told, row = tables.rows
    assert (told["first_batch"], told["last_batch"], told["reason"]) == (0, 1, str(error))
    assert row['"batch"'] == 1


def test_what_the_checkpoint_has_forgotten_is_told() -> None:
    following, tables, late = follow([batch(9)], known(batch=0), committed=8)
    following.follow()
    assert late.counted == [3, 4, 5, 6, 7, 8]
    assert (tables.rows[0]["first_batch"], tables.rows[0]["last_batch"]) == (1, 2)
    assert tables.rows[-1]['"batch"'] == 9


def test_the_batch_to_come_of_an_idle_query_is_not_taken_for_one_that_ran() -> None:
    to_come = batch(1)
    to_come.durationMs = {"latestOffset": 3, "triggerExecution": 4}
    following, tables, late = follow([batch(0), to_come])
    following.follow()
    assert tables.rows[-1]['"batch"'] == 0
    following._reports.tell(batch(1, *LATE))  # type: ignore[attr-defined]
    following.follow()
    assert late.counted == [1]


def test_what_the_driver_before_left_uncounted_is_counted() -> None:
    following, tables, late = follow([], known(batch=4), committed=6)
    following.follow()
    assert late.counted == [5, 6]
    following.follow()
    assert tables.rows[-1]['"batch"'] == 6
    assert tables.rows[-1]["watermark"].timestamp() == 7
    assert tables.rows[-1]["max_event_time"].timestamp() == 3607


def test_nothing_is_counted_while_results_catch_up() -> None:
    following, tables, late = follow([batch(7, *LATE)], known(batch=4), committed=6, leads_for=0)
    following.follow()
    assert late.counted == []
    assert not {'"batch"', "checkpoint"} & tables.rows[-1].keys()  # whoever leads next counts them
    following._began -= heartbeat.CATCH_UP_SECONDS
    following.follow()
    assert late.counted == [5, 6, 7]
    assert late.readings == 1


def test_progress_goes_on_from_what_the_driver_before_wrote() -> None:
    row = known(batch=4, max_event_time=datetime(2015, 5, 18, tzinfo=UTC))
    following, tables, _ = follow([batch(5)], row)
    following.follow()
    assert tables.rows[-1]["max_event_time"].isoformat() == "2015-05-18T00:00:00+00:00"


def test_batches_of_another_checkpoint_dont_count_as_known() -> None:
    row = known(batch=400, checkpoint="older")
    following, _, late = follow([batch(5)], row, committed=4)
    following.follow()
    following.follow()
    assert late.counted == [3, 4]  # 3 is the oldest that the checkpoint still tells about


def test_heartbeats_are_in_order_and_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    due = heartbeat.HEARTBEAT_SECONDS
    clock = iter([0.0, 0.0, 0.4 * due, 1.2 * due])
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: next(clock))
    following, tables, _ = follow([])
    for _ in range(3):
        following.follow()
    assert tables.timestamps == [
        write_version(5, 0),
        write_version(5, 1),
    ]  # the second one came too soon


def test_an_idle_job_only_says_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    due = heartbeat.HEARTBEAT_SECONDS
    clock = iter([0.0, *(number * due for number in range(4))])
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: next(clock))
    following, tables, _ = follow([batch(0)])
    following.follow()
    following.follow()
    assert (tables.written["job_progress"], tables.written["job_work"]) == (2, 1)
    following._reports.tell(batch(1))  # type: ignore[attr-defined]
    following.follow()
    assert (tables.written["job_progress"], tables.written["job_work"]) == (3, 2)


def test_heartbeats_stay_in_their_epoch_however_long_a_driver_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([0.0, 49 * 86400.0, 50 * 86400.0])  # milliseconds fill 32 bits in 49.7 days
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: next(clock))
    following, tables, _ = follow([])
    following.follow()
    following.follow()
    assert tables.timestamps == sorted(tables.timestamps)
    assert all(timestamp < write_version(6, 0) for timestamp in tables.timestamps)
    assert len(tables.timestamps) == 2
