"""Jobs of one file: what is made of them, what is refused, and what they compute."""

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import date, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.declared import job as declared_job
from millrace_jobs.declared import loader
from millrace_jobs.declared.loader import InvalidJob
from millrace_jobs.output import Output, Sessions, bucket
from millrace_jobs.query.context import JobContext
from millrace_jobs.query.limits import BeyondLimit
from millrace_jobs.sinks.batch_commit import BatchIdentity
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.jobs.running import output_of
from tests.jobs.samples import STREAM, at, event, settings_of

Records = Callable[[list[bytes | None]], DataFrame]
MINUTE: dict[str, Any] = {
    "checkpoint": "test",
    "tasks": 1,
    "watermark_seconds": 3600,
    "buckets": 4,
    "keep_days": 7,
    "approximate_columns": ["visitors"],
    "approximate_error": 0.01,
    "session_gap_seconds": 0,
    "session_pages": "",
}


def context(spark: SparkSession, job: str, settings: Any) -> JobContext:
    return SimpleNamespace(job=job, spark=spark, streams=[STREAM], settings=settings)  # type: ignore[return-value]


@pytest.fixture
def describe(spark: SparkSession) -> Callable[..., Output]:
    """What is made of a function or of a query."""

    def of(rows: loader.Rows | str, **settings: Any) -> Output:
        mine = settings_of("test", like="status_by_minute", **MINUTE | settings)
        return output_of(spark, rows, [STREAM], mine)

    return of


def by_url(events: DataFrame, _: dict[str, Any]) -> DataFrame:
    return events.groupBy(F.window("event_time", "1 minute"), "url").agg(F.count("*").alias("n"))


def test_keys_and_values_are_read_off_the_plan(describe: Any) -> None:
    output = describe(by_url)
    assert output.key == {"url": "string"}
    assert output.values == {"n": "bigint"}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT window(event_time, '1 minute') AS window, url AS page, count(*) AS n FROM events"
        " GROUP BY window(event_time, '1 minute'), url",
        "SELECT window(event_time, '1 minute') AS window, url AS page, count(*) AS n FROM events"
        " GROUP BY 1, 2",
        "SELECT window, page, n FROM (SELECT window(event_time, '1 minute') AS window, url AS page,"
        " count(*) AS n FROM events GROUP BY ALL)",
    ],
)
def test_a_query_names_its_keys_as_it_likes(describe: Any, text: str) -> None:
    output = describe(text)
    assert output.key == {"page": "string"}
    assert output.values == {"n": "bigint"}


REFUSED = {
    "no column window": "SELECT status, count(*) AS n FROM events GROUP BY status",
    "0 aggregations": "SELECT window(event_time, '1 minute') AS window, url FROM events",
    "among its columns": "SELECT window(event_time, '1 minute') AS window, count(*) AS n"
    " FROM events GROUP BY window(event_time, '1 minute'), url",
    "campaign may be null": "SELECT window(event_time, '1 minute') AS window, campaign,"
    " count(*) AS n FROM events GROUP BY 1, 2",
    "are the framework's": "SELECT window(event_time, '1 minute') AS window, url AS bucket,"
    " count(*) AS n FROM events GROUP BY 1, 2",
    "'count\\(1\\)': no name that both": "SELECT window(event_time, '1 minute') AS window, count(1)"
    " FROM events GROUP BY 1",
    "'from', 'a\"b', 'größe', '_x': no name": "SELECT window(event_time, '1 minute') AS window,"
    ' url AS `from`, count(*) AS `a"b`, max(bytes) AS `größe`, min(bytes) AS `_x`'
    " FROM events GROUP BY 1, 2",
    "columns key, job are the framework's": "SELECT window(event_time, '1 minute') AS window,"
    " url AS key, count(*) AS job FROM events GROUP BY 1, 2",
    "a column may be": "SELECT window(event_time, '1 minute') AS window, collect_set(url) AS urls"
    " FROM events GROUP BY 1",
    "when a batch runs again": "SELECT window(event_time, '1 minute') AS window,"
    " max(current_timestamp()) AS seen FROM events GROUP BY 1",
    "is no query": "DROP TABLE events",
    "no such setting": "SELECT $nothing FROM events",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_could_not_be_kept_is_refused(describe: Any, reason: str) -> None:
    with pytest.raises(InvalidJob, match=reason):
        describe(REFUSED[reason])


def test_a_mistake_in_a_query_is_shown_with_its_place(describe: Any) -> None:
    with pytest.raises(Exception, match=r"UNRESOLVED_COLUMN[\s\S]*line 1") as error:
        describe(
            "SELECT window(event_time, '1 minute') AS window, stauts FROM events GROUP BY 1, 2"
        )
    assert "status" in str(error.value)  # what was meant


def test_a_name_that_is_no_job_is_refused() -> None:
    with pytest.raises(InvalidJob, match=r"neither nobody.py nor nobody.sql"):
        loader.load("nobody")


def test_a_sketch_is_said_to_be_one(describe: Any) -> None:
    assert describe(by_url).approximate == {"visitors": 0.01}


def test_state_tells_another_aggregation(describe: Any) -> None:
    def sums(events: DataFrame, _: dict[str, Any]) -> DataFrame:
        grouped = events.groupBy(F.window("event_time", "1 minute"), "url")
        return grouped.agg(F.sum("bytes").alias("n"))

    assert describe(by_url).state == describe(by_url).state
    assert describe(by_url).state != describe(sums).state


# -- Slots of sessions

WITH_GAP = {"session_gap_seconds": 1800, "session_pages": "pages"}


def slots(values: str) -> str:
    return (
        f"SELECT window, visitor_id, {values} FROM events"
        " GROUP BY window(event_time, '30 minutes'), visitor_id"
    )


MOMENTS = "count(*) AS pages, min(event_time) AS first, max(event_time) AS last"


def test_the_job_that_ships_has_slots_of_sessions(describe: Any) -> None:
    rows, _ = loader.load("sessions")
    assert describe(rows, **settings_of("sessions").given).sessions == Sessions(
        gap_seconds=1800,
        pages="pages",
        merges={
            "events": "sum",
            "pages": "sum",
            "first": "start",
            "last": "end",
            "entry_page": "first",
            "exit_page": "last",
        },
    )


def test_what_a_session_has_of_its_slots_is_read_off_the_plan(describe: Any) -> None:
    values = (
        f"{MOMENTS}, sum(bytes) FILTER (WHERE status < 400) AS bytes, max(status) AS worst,"
        " min_by(url, struct(event_time, event_id)) AS from_page"
    )
    renamed = (
        "SELECT window, visitor_id, pages, first AS begin, last, bytes, worst, from_page"
        f" FROM ({slots(values)})"
    )
    assert describe(renamed, **WITH_GAP).sessions.merges == {
        "pages": "sum",
        "begin": "start",
        "last": "end",
        "bytes": "sum",
        "worst": "max",
        "from_page": "first",
    }


def test_rows_without_a_gap_are_no_slots(describe: Any) -> None:
    assert describe(by_url).sessions is None


NO_SLOTS: dict[str, tuple[str, dict[str, Any]]] = {
    "are no slots of sessions": (MOMENTS, {"session_gap_seconds": 900}),
    "rate can't be merged": (f"{MOMENTS}, avg(bytes) AS rate", {}),
    "twice can't be merged": (f"{MOMENTS}, 2 * count(*) AS twice", {}),
    "page can't be merged": (f"{MOMENTS}, max_by(url, struct(bytes, event_id)) AS page", {}),
    "one can't be merged": (f"{MOMENTS}, min(status) FILTER (WHERE bytes > 0) AS one", {}),
    r"need max\(event_time\)": ("count(*) AS pages, min(event_time) AS first", {}),
    "session_pages 'urls'": (MOMENTS, {"session_pages": "urls"}),
    "seconds is said of every": (f"{MOMENTS}, count(*) AS seconds", {}),
}


@pytest.mark.parametrize("reason", NO_SLOTS)
def test_what_could_not_be_merged_is_refused(describe: Any, reason: str) -> None:
    values, settings = NO_SLOTS[reason]
    with pytest.raises(InvalidJob, match=reason):
        describe(slots(values), **WITH_GAP | settings)


OUTPUT = Output(
    job="test",
    table="job_test",
    summary="A test.",
    window_seconds=60,
    slide_seconds=60,
    offset_seconds=0,
    join_seconds=None,
    key={"url": "string"},
    values={"n": "bigint", "last": "timestamp"},
    approximate={},
    buckets=4,
    keep_seconds=86400,
    state=[],
)
ROW = {
    "window_start": datetime(2026, 1, 1, 0, 5),
    "url": "/a",
    "n": 3,
    "last": at("2026-01-01 00:05:07"),
}


def test_a_row_is_stored_by_day_and_bucket() -> None:
    stored = OUTPUT.row(ROW, 7)
    assert dict(zip(OUTPUT.columns, stored, strict=True)) == {
        "day": date(2026, 1, 1),
        "bucket": bucket(("/a",), 4),
        "window_start": datetime(2026, 1, 1, 0, 5),
        "url": "/a",
        "n": 3,
        "last": datetime(2026, 1, 1, 0, 5, 7),
        "version": 7,
    }


def test_a_null_in_a_key_is_no_row() -> None:
    with pytest.raises(ValueError, match="a null"):
        OUTPUT.row(ROW | {"url": None}, 7)


def test_a_record_is_json_under_its_key() -> None:
    record = OUTPUT.record(ROW, 7)
    assert record["key"] == "test|2026-01-01T00:05:00Z|/a"
    assert json.loads(json.dumps(record))["last"] == "2026-01-01T00:05:07Z"


def test_what_is_no_number_is_null_in_a_record() -> None:
    of_doubles = replace(OUTPUT, values={"rate": "double"})
    for rate in (math.nan, math.inf, -math.inf):
        record = of_doubles.record(ROW | {"rate": rate}, 7)
        assert json.loads(json.dumps(record, allow_nan=False))["rate"] is None


def test_the_table_has_its_key() -> None:
    statement = OUTPUT.create_table("millrace")
    assert 'PRIMARY KEY (("day", "bucket"), "window_start", "url")' in statement
    assert "default_time_to_live = 86400" in statement


def test_buckets_are_the_same_for_ever() -> None:
    assert [bucket((name, 5), 8) for name in ("a", "b", "c", "d")] == [6, 0, 5, 5]


def rows_of(
    records: Records, spark: SparkSession, job: str, *values: bytes
) -> list[dict[str, Any]]:
    """What a job that ships makes of these records."""
    one = declared_job.Computation(context(spark, job, settings_of(job)))
    found = one.transform([records(list(values))]).collect()
    return [row.asDict() for row in found]


def test_sessions(records: Records, spark: SparkSession) -> None:
    found = rows_of(
        records,
        spark,
        "sessions",
        event(event_id="2", event_time="2015-05-17T10:06:00Z", url="/b"),
        event(event_id="1", event_time="2015-05-17T10:05:00Z", url="/a"),
        event(event_id="3", event_time="2015-05-17T10:06:00Z", url="/c", kind="click"),
        event(event_id="4", event_time="2015-05-17T10:31:00Z", url="/d"),
        event(event_id="5", visitor_id="b2"),
    )
    [first] = [
        row
        for row in found
        if row["visitor_id"] == "a1" and row["window_start"] == at("2015-05-17 10:00:00")
    ]
    assert len(found) == 3
    assert (first["events"], first["pages"]) == (3, 2)
    assert (first["entry_page"], first["exit_page"]) == ("/a", "/c")  # the tie goes to the later id
    assert first["last"] == at("2015-05-17 10:06:00")


def test_status_by_minute(records: Records, spark: SparkSession) -> None:
    found = rows_of(
        records,
        spark,
        "status_by_minute",
        event(status=200, bytes=1),
        event(status=200, bytes=2),
        event(status=404, bytes=4),
    )
    assert {(row["status"], row["requests"], row["bytes"]) for row in found} == {
        (200, 2, 3),
        (404, 1, 4),
    }


@pytest.mark.parametrize("job", ["sessions", "status_by_minute"])
def test_jobs_that_ship_can_be_described(spark: SparkSession, job: str) -> None:
    settings = settings_of(job)
    rows, summary = loader.load(job)
    output = output_of(spark, rows, [STREAM], settings, job)
    assert summary.endswith(".")
    assert len(output.key) == 1


def described(results: Any = None, **facts: Any) -> declared_job.Declared:
    """A job with this output, and of its context only what is given."""
    own = {"job": "test", "lookups": [], "tables": None, "settings": settings_of("sessions")}
    context: Any = SimpleNamespace(**own | facts)
    one = declared_job.Declared(context, results=results or SimpleNamespace())
    vars(one)["output"] = OUTPUT  # read off no plan
    return one


def test_a_batch_is_stored_and_published_once_under_its_version(
    records: Records, spark: SparkSession
) -> None:
    calls: list[tuple[str, Any]] = []
    one = described(
        lease=SimpleNamespace(confirm=lambda: calls.append(("confirm", None))),
        spark=SimpleNamespace(streams=SimpleNamespace(get=lambda _: None)),
        identify=lambda batch: BatchIdentity("query", batch, 1000 + batch, {"events": {"0": 9}}),
        tables=SimpleNamespace(
            upsert=lambda table, columns, rows, version, partition_columns: calls.append(
                (table, (columns, rows, version, partition_columns))
            )
        ),
        results=SimpleNamespace(
            check=lambda *what: calls.append(("check", what)),
            publish=lambda *what: calls.append(("results", what)),
        ),
    )
    one.write(spark.createDataFrame([ROW]), 5)
    names = [name for name, _ in calls]
    assert names[:3] == ["check", "confirm", "confirm"]
    (_, published), (table, stored) = sorted(calls[3:], key=lambda call: call[0] != "results")
    checked = calls[0][1]
    columns = ['"day"', '"bucket"', '"window_start"', '"url"', '"n"', '"last"', '"version"']
    assert (table, stored) == ("job_test", (columns, [OUTPUT.row(ROW, 1005)], 1005, 2))
    assert checked == ("query", 5, {"events": {"0": 9}})
    assert published == (*checked, [OUTPUT.record(ROW, 1005)])

    calls.clear()
    one.context.settings = settings_of("sessions", max_rows=1)  # type: ignore[misc]
    with pytest.raises(BeyondLimit):
        one.write(spark.createDataFrame([ROW, ROW]), 6)
    assert not calls


def described_before(kept: dict[str, Any]) -> declared_job.Declared:
    """A job of which Cassandra has this description, by an earlier version."""
    row = SimpleNamespace(description=json.dumps(kept))
    return described(tables=SimpleNamespace(select_one=lambda *_: row))


@pytest.mark.parametrize(
    ("table", "state", "goes_on"),
    [
        ("job_test", OUTPUT.state, True),
        ("job_test", ["Aggregate [url], [sum(bytes)]"], False),
        ("job_before", ["Aggregate [url], [sum(bytes)]"], True),  # of another checkpoint
    ],
)
def test_a_checkpoint_of_another_aggregation_is_refused(
    table: str, state: list[str], goes_on: bool
) -> None:
    before = {
        "table": table,
        "state": state,
        "window_seconds": 60,
        "key": OUTPUT.key,
        "values": {"n": "bigint"},
    }
    one = described_before(before)
    with nullcontext() if goes_on else pytest.raises(InvalidJob, match="another checkpoint"):
        assert one._keep_state() is False  # another summary, or another table


def test_windows_of_another_length_are_refused() -> None:
    before = {
        "table": "job_test",
        "state": [],
        "window_seconds": 3600,
        "key": OUTPUT.key,
        "values": {"n": "bigint"},
    }
    one = described_before(before)
    with pytest.raises(InvalidJob, match="holds windows of 1h, this version has 1m"):
        one._keep_state()


@pytest.mark.parametrize("key", [{"page": "string"}, {"url": "string", "status": "int"}])
def test_a_key_by_other_names_is_refused(key: dict[str, str]) -> None:
    before = {"table": "job_test", "state": [], "window_seconds": 60, "key": key, "values": {}}
    one = described_before(before)
    with pytest.raises(InvalidJob, match="this version has url string; keep the names"):
        one._keep_state()


def test_a_column_of_another_type_is_refused() -> None:
    before = {
        "table": "job_test",
        "state": [],
        "window_seconds": 60,
        "key": OUTPUT.key,
        "values": {"n": "double"},
    }
    one = described_before(before)
    with pytest.raises(InvalidJob, match="has n as double, this version as bigint"):
        one._keep_state()


def test_a_table_gets_the_columns_that_it_lacks() -> None:
    assert OUTPUT.add_columns("k") == (
        'ALTER TABLE k."job_test" ADD IF NOT EXISTS'
        ' ("n" bigint, "last" timestamp, "version" bigint)'
    )


def test_a_table_that_is_described_is_not_made_again() -> None:
    made: list[Any] = []
    written: list[str] = []
    one = described(
        results=SimpleNamespace(take_over=lambda: None),
        streams=[STREAM],
        checkpoint=SimpleNamespace(reached=dict),
        lease=SimpleNamespace(confirm=lambda: None),
        version=lambda batch: batch,
        tables=SimpleNamespace(
            create=made.append,
            upsert=lambda _, __, rows, ___: written.append(rows[0][1]),
            select_one=lambda *_: SimpleNamespace(description=written[-1]) if written else None,
            select=lambda *_: [],
        ),
    )
    for _ in range(2):  # a first driver, and the one after it
        one.prepare()
        one.on_lead()
    assert made == [OUTPUT.create_table, OUTPUT.add_columns, OUTPUT.keep]
    assert len(written) == 1
