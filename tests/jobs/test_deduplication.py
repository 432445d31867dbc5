"""A stream whose producers send events again: each counts once, live and in a recount."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.declared import job as declared_job
from millrace_jobs.recount import run as recount
from millrace_jobs.recount.declared_rows import DeclaredRows
from millrace_jobs.sinks import archive
from millrace_jobs.transforms import parse
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.jobs import running
from tests.jobs.running import Events, Query, late_counts, records
from tests.jobs.samples import EVENT, at, settings_of, stream

STREAM = replace(stream("events"), deduplicate_by="event_id")
SETTINGS = settings_of("mine", like="status_by_minute", watermark_seconds=600)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

Rows = dict[datetime, int]


def by_minute(events: DataFrame, _: dict[str, Any]) -> DataFrame:
    return events.groupBy(F.window("event_time", "1 minute")).agg(F.count("*").alias("n"))


def job_of(spark: SparkSession, **changes: Any) -> declared_job.Declared:
    return running.job_of(spark, "mine", [STREAM], SETTINGS, by_minute, **changes)


def sent(name: str, seconds: float) -> dict[str, Any]:
    moment = (NOON + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
    return EVENT | {"event_id": name, "event_time": moment}


def counts(frame: DataFrame) -> Rows:
    return {row.window_start: row.n for row in frame.collect()}


class Run:
    """The job's query over one folder; ``rows`` are as a table would have them."""

    def __init__(self, spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.rows: Rows = {}
        self._start = lambda: Query(
            spark, folder, patch, job_of(spark), lambda frame: self.rows.update(counts(frame))
        )
        self.query = self._start()

    def restart(self) -> None:
        self.query.query.stop()
        self.query = self._start()

    @property
    def kept(self) -> int:
        """Events in the state."""
        return int(self.query.batches[-1].stateOperators[-1].numRowsTotal)


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    run = Run(spark, tmp_path, monkeypatch)
    yield run
    run.query.query.stop()


def test_an_event_counts_once_whenever_it_is_sent_again(run: Run) -> None:
    run.query.send([sent("a", 0), sent("a", 0), sent("b", 1)])
    assert run.rows == {at("2026-01-01 12:00:00"): 2}
    run.query.send([sent("b", 1), sent("c", 2)])
    assert run.rows == {at("2026-01-01 12:00:00"): 3}
    run.restart()
    run.query.send([sent("a", 0), sent("d", 3)])
    assert run.rows == {at("2026-01-01 12:00:00"): 4}


BATCHES: list[tuple[Events]] = [
    ([sent("a", 0), sent("a", 0), sent("b", 700)],),  # the watermark is 100 from here on
    ([sent("b", 700), sent("c", 90), sent("c", 90), sent("d", 110)],),
    ([sent("a", 0), sent("d", 110), sent("e", 3000)],),
    ([sent("b", 700), sent("f", 2390), sent("g", 3001)],),  # the watermark is 2400
]


def test_what_the_state_forgot_is_older_than_the_watermark(
    spark: SparkSession, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for (events,) in BATCHES:
        run.query.send(events)
    assert run.rows == {
        at("2026-01-01 12:00:00"): 1,  # a
        at("2026-01-01 12:11:00"): 1,  # b
        at("2026-01-01 12:01:00"): 1,  # d; c was late
        at("2026-01-01 12:50:00"): 2,  # e, g
    }  # fmt: skip
    assert run.kept == 2  # e and g
    # Late by their own time: f's minute was still open. A copy that came in time is not late.
    assert run.query.dropping == [1, 2, 3]
    counted, starts = late_counts(monkeypatch, job_of(spark), run.query, BATCHES)
    assert [n for _, n in sorted(counted.items())] == [2, 1, 2]
    assert at("2026-01-01 12:01:00") in starts


@pytest.mark.extended
def test_a_recount_leaves_out_what_the_archive_has_twice(
    spark: SparkSession, tmp_path: Path, run: Run
) -> None:
    events = [sent("a", 0), sent("a", 0), sent("b", 1), sent("a", 2)]  # the last is another event
    run.query.send(events[:2])
    run.query.send(events[1:])
    found = records(spark, events, STREAM.topic).transform(parse.classify, STREAM)
    folder = str(tmp_path / "archive")
    archive.append(parse.valid(found, STREAM), STREAM.event_time, folder, "a", 0, 1, 1, 48)
    assert spark.read.format("delta").load(folder).count() == len(events)
    rows = [{"window_start": start, "n": n} for start, n in run.rows.items()]

    def select(statement: str, values: Any) -> list[Any]:
        if job.output.table not in statement or values[1]:
            return []
        return [SimpleNamespace(_asdict=lambda row=row: row) for row in rows]

    job = job_of(
        spark,
        tables=SimpleNamespace(select=select, scan=select, select_one=lambda *_: None),
        config=SimpleNamespace(kafka="", archive_of=lambda _: folder),
    )
    answer = recount.recount(
        DeclaredRows(job), at("2026-01-01 12:00:00"), at("2026-01-01 12:01:00")
    )
    assert (answer.checked, answer.lost, answer.extra, answer.wrong) == (1, 0, 0, 0)
    assert run.rows == {at("2026-01-01 12:00:00"): 3}


def test_a_job_keeps_to_a_checkpoint_of_events_that_count_once(spark: SparkSession) -> None:
    raw = running.job_of(spark, "mine", [stream("events")], SETTINGS, by_minute)
    assert job_of(spark).output.state == [*raw.output.state, "events once by event_id"]


@pytest.mark.extended
def test_streams_are_joined_without_repeats(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [
        replace(stream("impressions"), deduplicate_by="impression_id"),
        replace(stream("clicks"), deduplicate_by="click_id"),
    ]
    job = running.job_of(spark, "attribution", streams, settings_of("attribution"))
    rows: dict[datetime, tuple[int, ...]] = {}

    def write(frame: DataFrame) -> None:
        for row in frame.collect():
            rows[row.window_start] = (row.impressions, row.clicks, row.matched)

    def shown(name: str, seconds: float) -> dict[str, Any]:
        moment = sent(name, seconds)["event_time"]
        return {"impression_id": name, "campaign": "spring", "event_time": moment}

    def clicked(name: str, seconds: float) -> dict[str, Any]:
        return shown(name, seconds) | {"click_id": f"{name} at {seconds}"}

    batches = [
        ([shown("a", 0), shown("a", 0)], [clicked("a", 1), clicked("a", 1)]),
        ([shown("a", 0), shown("b", 2)], [clicked("a", 1), clicked("b", 3), clicked("a", 4)]),
        ([shown("c", 900)], [clicked("c", 910)]),  # the watermark is 300 from here on
        ([shown("b", 2), shown("d", 910)], [clicked("b", 3), clicked("d", 920)]),
    ]
    query = Query(spark, tmp_path, monkeypatch, job, write)
    for batch in batches:
        query.send(*batch)
    query.query.stop()
    assert rows == {at("2026-01-01 12:00:00"): (2, 3, 3), at("2026-01-01 12:15:00"): (2, 2, 2)}
