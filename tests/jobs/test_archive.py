"""The archive job's batches, and the archive's upkeep."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from millrace_gateway.books import commits
from millrace_jobs import upkeep
from millrace_jobs.inputs.checkpoint import Batch
from millrace_jobs.programs import archive as job
from millrace_jobs.sinks import archive
from millrace_jobs.stream import Field, Stream
from millrace_jobs.transforms import parse
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.jobs.samples import NAMES, RECEIVED, STREAM, event, settings_of

OLD_AFTER = 48  # hours
Records = Callable[[list[bytes | None]], DataFrame]
Write = Callable[[list[bytes | None], int], list[str]]


def test_upkeep_is_of_the_archive_of_each_stream() -> None:
    settings = {
        "archive": settings_of("archive", keep_days=30),
        "traffic": settings_of("traffic", keep_days=30),
        "archive_clicks": settings_of("archive_clicks", "archive", stream="clicks", keep_days=7),
    }
    deployed: Any = SimpleNamespace(
        jobs=["archive", "traffic", "archive_clicks"],
        settings=settings,
        streams={"events": "events", "clicks": "clicks"},
        archive_of=lambda one: f"/archive/{one}",
    )
    assert list(upkeep.archives(deployed)) == [
        ("/archive/events", timedelta(days=30)),
        ("/archive/clicks", timedelta(days=7)),
    ]


@pytest.mark.parametrize(("writers", "shuffles"), [(1, 0), (4, 1)])
def test_a_single_writer_reads_and_writes_in_one_stage(
    records: Records, writers: int, shuffles: int
) -> None:
    classified = records([event(), event()]).repartition(2).transform(parse.classify, STREAM)
    events = archive.with_partitions(parse.valid(classified, STREAM), STREAM.event_time, OLD_AFTER)
    before, after = (
        frame._jdf.queryExecution().executedPlan().toString().count("Exchange")
        for frame in (events, events.transform(archive.dealt, writers, 2))
    )
    assert after - before == shuffles
    dealt = events.transform(archive.dealt, writers, 2)
    assert dealt.rdd.getNumPartitions() == writers
    assert dealt.count() == 2


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "events")


@pytest.fixture
def driver(spark: SparkSession, records: Records, table: str) -> Callable[..., Write]:
    """Starts a driver, or the job ``again`` on the driver that there is.

    Gives a function that has it write a batch and tells the dead letters.
    """
    reasons: list[str] = []
    told: list[int] = []
    jobs: list[job.Archive] = []

    class DeadLetters:
        def write(self, malformed: DataFrame, *_: Any) -> None:
            reasons.extend(row.reason for row in malformed.collect())

    class Positions:
        def tell(self, read: Any) -> None:
            told.append(read["events"]["0"])

        def tell_last(self, _: Any) -> None:
            pass

    def start(again: bool = False) -> Write:
        context = SimpleNamespace(
            job="archive",
            spark=spark,
            config=SimpleNamespace(kafka="", archive_of=lambda _: table, names=NAMES),
            stream=STREAM,
            settings=settings_of("archive", shuffle_partitions=1, writers_per_hour=1),
            tables=None,
            checkpoint_id=lambda: "checkpoint",
            version=lambda batch: batch,
            skipped=(),
            lease=SimpleNamespace(confirm=lambda: None, verify=lambda: None),
            checkpoint=SimpleNamespace(
                batch=lambda n: Batch({"events": {"0": n - 1}}, {"events": {"0": n}})
            ),
        )
        if not again:
            jobs.append(job.Archive(context, DeadLetters(), Positions()))  # type: ignore[arg-type]
        archive_job = jobs[-1]
        archive_job.on_lead()

        def write(values: list[bytes | None], batch: int) -> list[str]:
            reasons.clear()
            archive_job.write(records(values), batch)
            assert told[-1] == batch  # how far it has read
            return list(reasons)

        write.job = archive_job  # type: ignore[attr-defined]
        return write

    return start


def test_a_rehearsal_leaves_the_archive_alone(
    spark: SparkSession, table: str, records: Records, driver: Callable[..., Write], tmp_path: Path
) -> None:
    write = driver()
    write.job.rehearse(records([event()]), 0, str(tmp_path))  # before there is one
    write([event()], 0)
    for batch in (1, 2):
        write.job.rehearse(records([event(), b"garbage"]), batch, str(tmp_path))
    assert spark.read.format("delta").load(table).count() == 1
    assert spark.read.format("delta").load(f"{tmp_path}/checkpoint").count() == 3
    assert write([b"garbage"], 1) == ["not JSON"]  # to the dead letters, and only this one


def test_each_record_goes_one_way(
    spark: SparkSession, table: str, driver: Callable[..., Write]
) -> None:
    write = driver()
    assert write([event(), event()], 0) == []
    assert write([event(), b"garbage", event()], 1) == ["not JSON"]
    assert write([b"garbage"], 2) == ["not JSON"]
    assert write([], 3) == []
    assert spark.read.format("delta").load(table).count() == 4


def test_a_commit_says_what_its_batch_read(table: str, driver: Callable[..., Write]) -> None:
    """The books read no more than this: also of a batch that had no event."""
    write = driver()
    write([event(), b"garbage", event()], 0)
    write([b"garbage"], 1)
    for batch, rows in ((0, 2), (1, 0)):
        found = commits.parse(batch, Path(f"{table}/_delta_log/{batch:020}.json").read_text())
        assert found is not None
        assert (found.checkpoint, found.batch) == ("checkpoint", batch)
        assert found.read == {0: (batch - 1, batch)}
        assert sum(file.rows for file in found.files) == rows
        for file in found.files:
            assert Path(table, unquote(file.path)).stat().st_size == file.bytes


@pytest.mark.parametrize("again", [False, True])
def test_a_batch_that_was_begun_before_is_finished(
    spark: SparkSession, table: str, driver: Callable[..., Write], again: bool
) -> None:
    batch = [event(), b"garbage"]
    driver()(batch, 0)
    # As if the first one had died, or failed, between Delta's commit and the dead letters.
    assert driver(again)(batch, 0) == ["not JSON"]
    assert spark.read.format("delta").load(table).count() == 1


def _append(
    table: str, records: Records, times: list[str], batch: int, received: datetime = RECEIVED
) -> None:
    values: list[bytes | None] = [event(event_time=time) for time in times]
    arrived = records(values).withColumn("timestamp", F.lit(received))
    events = parse.valid(arrived.transform(parse.classify, STREAM), STREAM)
    archive.append(events, "event_time", table, "test", batch, 4, 2, OLD_AFTER)


def _files(spark: SparkSession, table: str) -> dict[int, int]:
    rows = spark.read.format("delta").load(table).selectExpr("event_hour", "_metadata.file_name")
    by_hour = rows.distinct().groupBy("event_hour").agg(F.count("*").alias("files")).collect()
    return {row.event_hour: row.files for row in by_hour}


THAT_DAY = datetime(2015, 5, 17, 12)


def test_few_tasks_share_an_hour(spark: SparkSession, records: Records, table: str) -> None:
    """One would bound the archive to what one core writes; all would leave too many files."""
    times = ["2015-05-17T10:05:03Z"] * 8 + ["2015-05-17T11:05:03Z"] * 8
    _append(table, records, times, 0, THAT_DAY)
    assert _files(spark, table) == {10: 2, 11: 2}


def test_what_is_old_when_it_comes_has_one_place_and_is_found(
    spark: SparkSession, records: Records, table: str
) -> None:
    """Random times since 2000: a file for each hour would be as many as there are events."""
    now = datetime(2026, 1, 1, 10, 30)
    old = [now - timedelta(hours=OLD_AFTER, seconds=1) - timedelta(days=97) * n for n in range(16)]
    recent = [now - timedelta(hours=OLD_AFTER), now - timedelta(hours=1)]
    times = [f"{time.isoformat()}Z" for time in (*old, *recent)]
    _append(table, records, times, 0, now)
    assert _files(spark, table) == {archive.OLD: 2, 10: 1, 9: 1}
    for time in (*old, *recent):
        end = time + timedelta(seconds=1)
        [found] = archive.read(spark, table, STREAM, time, end).collect()
        assert found.event_time == time
    upkeep.compact(spark, table, datetime(2026, 1, 2, tzinfo=UTC))
    assert _files(spark, table) == {archive.OLD: 1, 10: 1, 9: 1}


WITH_COUNTRY = replace(STREAM, fields=(*STREAM.fields, Field("country", "text", required=False)))


def _append_of(stream: Stream, table: str, records: Records, value: bytes, batch: int) -> None:
    events = parse.valid(records([value]).transform(parse.classify, stream), stream)
    archive.append(events, "event_time", table, "test", batch, 1, 1, OLD_AFTER)


def test_a_new_field_is_a_new_column_and_one_that_is_taken_back_stays_one(
    spark: SparkSession, records: Records, table: str
) -> None:
    def countries(stream: Stream) -> list[Any]:
        day = datetime(2015, 5, 17)
        events = archive.read(spark, table, stream, day, day + timedelta(days=1))
        return sorted(row.asDict().get("country", "no field") or "" for row in events.collect())

    _append_of(STREAM, table, records, event(), 0)
    assert countries(WITH_COUNTRY) == [""]  # before anything was appended with it
    _append_of(WITH_COUNTRY, table, records, event(country="at"), 1)
    _append_of(STREAM, table, records, event(), 2)
    assert countries(WITH_COUNTRY) == ["", "", "at"]
    assert countries(STREAM) == ["no field"] * 3


def test_another_type_is_refused_by_its_name(
    spark: SparkSession, records: Records, table: str
) -> None:
    _append_of(STREAM, table, records, event(), 0)
    others = {"status": "long", "bytes": "integer"}
    fields = [replace(one, type=others.get(one.name, one.type)) for one in STREAM.fields]
    changed = replace(STREAM, fields=tuple(fields))
    with pytest.raises(
        archive.OtherTypes, match="status as int, not bigint, bytes as bigint, not int:"
    ):
        _append_of(changed, table, records, event(), 1)
    assert spark.read.format("delta").load(table).count() == 1


def test_files_know_what_they_are_sought_by_and_nothing_else(table: str, records: Records) -> None:
    _append(table, records, ["2015-05-17T10:05:03Z"], 0)
    commit = Path(table, "_delta_log", f"{0:020}.json").read_text().splitlines()
    [added] = [action["add"] for line in commit if "add" in (action := json.loads(line))]
    stats = json.loads(added["stats"])
    assert stats["numRecords"] == 1
    assert set(stats["minValues"]) == {"event_time", "partition", "offset", "timestamp"}


def test_compaction_merges_the_hours_that_are_over(
    spark: SparkSession, records: Records, table: str
) -> None:
    for batch in range(3):
        times = ["2015-05-17T10:05:03Z", "2015-05-17T11:05:03Z"]
        _append(table, records, times, batch, THAT_DAY)
    upkeep.compact(spark, table, datetime(2015, 5, 17, 11, 30, tzinfo=UTC))
    assert _files(spark, table) == {10: 1, 11: 3}
    assert spark.read.format("delta").load(table).count() == 6


def test_expiry_goes_by_when_events_were_received(
    spark: SparkSession, records: Records, table: str
) -> None:
    _append(table, records, ["2015-05-17T10:05:03Z"], 0)
    received = RECEIVED.replace(tzinfo=UTC)
    keep = timedelta(days=30)
    upkeep.expire(spark, table, keep, received + timedelta(days=29))
    assert spark.read.format("delta").load(table).count() == 1
    upkeep.expire(spark, table, keep, received + timedelta(days=31))
    assert spark.read.format("delta").load(table).count() == 0


def test_expiry_does_not_wait_for_the_archive_to_pause(
    spark: SparkSession, records: Records, table: str
) -> None:
    """Each append of now would have it begin anew, and they never end."""
    _append(table, records, ["2015-05-17T10:05:03Z", "2015-05-18T10:05:03Z"], 0)
    later = RECEIVED + timedelta(days=31)
    with ThreadPoolExecutor() as pool:
        expiry = pool.submit(
            upkeep.expire, spark, table, timedelta(days=30), later.replace(tzinfo=UTC)
        )
        batch = 0
        while not expiry.done():
            batch += 1
            _append(table, records, ["2015-05-19T10:05:03Z"], batch, later)
    expiry.result()
    assert batch > 0
    assert spark.read.format("delta").load(table).count() == batch


@pytest.mark.extended
def test_who_loses_a_race_tries_again(spark: SparkSession, records: Records, table: str) -> None:
    """Both touch the same files; the archive's job goes on appending meanwhile."""
    for batch in range(3):
        _append(table, records, ["2015-05-17T10:05:03Z"], batch)
    later = RECEIVED + timedelta(days=31)
    operations = [
        lambda: upkeep.compact(spark, table, datetime(2015, 5, 18, tzinfo=UTC)),
        lambda: upkeep.expire(spark, table, timedelta(days=30), later.replace(tzinfo=UTC)),
    ]
    with ThreadPoolExecutor() as pool:
        done = [pool.submit(upkeep.insist, operation, "upkeep") for operation in operations]
        while not all(one.done() for one in done):
            batch += 1
            _append(table, records, ["2015-05-19T10:05:03Z"], batch, later)
    assert [one.result() for one in done] == [None, None]
    assert spark.read.format("delta").load(table).count() == batch - 2


def test_what_is_no_conflict_is_not_tried_again() -> None:
    tries = []

    def fail() -> None:
        tries.append(1)
        raise ValueError(["[DELTA_CONCURRENT_APPEND] Files were added", "no space"][len(tries) - 1])

    with pytest.raises(ValueError, match="no space"):
        upkeep.insist(fail, "upkeep")
    assert len(tries) == 2


def test_what_ended_applications_left_goes_when_nobody_wants_it_any_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    names = {
        "application_1700000000000_0001": 8,  # days old
        "application_1700000000000_0002": 6,
        "application_1700000000000_0003": 9,  # still runs
        "container_e01_1700000000000_0001_01_000001": 8,
        "container_1700000000000_0003_01_000001": 9,
        "somebody-elses": 9,
    }
    for name, days in names.items():
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "below" / "file").write_text("")
        then = (now - timedelta(days=days)).timestamp()
        for path in (
            tmp_path / name / "below" / "file",
            tmp_path / name / "below",
            tmp_path / name,
        ):
            os.utime(path, (then, then))
    # A driver that is quiet has a young file in an old folder.
    folder = tmp_path / "application_1700000000000_0004"
    folder.mkdir()
    (folder / "log").write_text("")
    os.utime(folder, (then, then))
    running = {"application_1700000000000_0003"}
    removed = upkeep.forget(spark, f"{tmp_path}/*", running, now - timedelta(days=7))
    gone = {"application_1700000000000_0001", "container_e01_1700000000000_0001_01_000001"}
    assert {Path(path).name for path in removed} == gone
    assert {path.name for path in tmp_path.iterdir()} == (names.keys() - gone) | {folder.name}
    assert upkeep.forget(spark, f"{tmp_path}/nothing/*", running, now) == []
