"""Windows, page views, unique visitors; and that windows close."""

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from millrace_jobs.inputs.checkpoint import Batch, Checkpoint
from millrace_jobs.kinds import TRAFFIC_KEY, TRAFFIC_VALUE
from millrace_jobs.query.late_events import JudgedBatch, late_events
from millrace_jobs.transforms import parse
from millrace_jobs.transforms.traffic import (
    LATE_FOR,
    PageViewRule,
    Sketches,
    is_page_view,
    page_error,
    traffic,
)
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.jobs.samples import STREAM, at, event, millis

RULE = PageViewRule(
    kind="page_view",
    methods=["GET"],
    statuses=[200, 206, 304],
    asset_extensions=["css", "js", "png"],
)
HOUR = 3600
TASKS = 1
TRACKED = 96
CHARACTERS = 40
SKETCHES = Sketches(lg_k=12, pages=TRACKED, page_characters=CHARACTERS)
Records = Callable[[list[bytes | None]], DataFrame]


@pytest.fixture(scope="session")
def totals(records: Records) -> Callable[..., dict[tuple[Any, ...], Row]]:
    """Rows of `traffic` over these events, by window and start."""

    def compute(*values: bytes) -> dict[tuple[Any, ...], Row]:
        events = parse.valid(records(list(values)).transform(parse.classify, STREAM), STREAM)
        rows = traffic(events, RULE, HOUR, SKETCHES, TASKS).collect()
        return {(row.window, row.window_start): row for row in rows}

    return compute


def test_page_view_rule(records: Records) -> None:
    cases = [
        (event(), True),
        (event(url="/"), True),
        (event(url="/a.css/"), True),  # a folder of that name
        (event(url="/page?next=/a.css"), True),
        (event(url="/article#a.js"), True),
        (event(url="/report.pdf"), True),
        (event(status=304), True),
        (event(status=206), True),
        (event(url="/a.css"), False),
        (event(url="/A.PNG?v=3"), False),
        (event(url="/jquery.min.js"), False),
        (event(status=301), False),
        (event(status=404), False),
        (event(status=500), False),
        (event(status=204), False),
        (event(method="POST"), False),
        (event(method="HEAD"), False),
        (event(method="get"), False),  # methods are case-sensitive
        (event(kind="click"), False),
    ]
    events = parse.valid(
        records([value for value, _ in cases]).transform(parse.classify, STREAM), STREAM
    )
    found = {r.offset: r.view for r in events.withColumn("view", is_page_view(RULE)).collect()}
    assert [found[i] for i in range(len(cases))] == [expected for _, expected in cases]


def test_an_event_counts_in_its_minute_its_hour_and_for_its_page(totals: Any) -> None:
    rows = totals(event(url="/a?x=1", status=200, bytes=7))
    assert set(rows) == {
        ("1m", at("2015-05-17 10:05:00")),
        ("1h", at("2015-05-17 10:00:00")),
    }
    minute = rows["1m", at("2015-05-17 10:05:00")]
    assert minute.window_end == at("2015-05-17 10:06:00")
    assert (minute.requests, minute.page_views, minute.bytes) == (1, 1, 7)
    assert views(minute) == {}
    assert views(rows["1h", at("2015-05-17 10:00:00")]) == {"/a": 1}


def test_windows_are_half_open(totals: Any) -> None:
    rows = totals(
        event(event_time="2015-05-17T10:59:59.999Z"), event(event_time="2015-05-17T11:00:00.000Z")
    )
    assert set(rows) == {
        ("1m", at("2015-05-17 10:59:00")),
        ("1m", at("2015-05-17 11:00:00")),
        ("1h", at("2015-05-17 10:00:00")),
        ("1h", at("2015-05-17 11:00:00")),
    }


def test_counts_add_up(totals: Any) -> None:
    statuses = [100, 200, 204, 301, 304, 404, 500, 599]
    rows = totals(*(event(status=status, bytes=status) for status in statuses))
    hour = rows["1h", at("2015-05-17 10:00:00")]
    assert hour.requests == len(statuses)
    assert hour.bytes == sum(statuses)
    assert hour.page_views == 2  # 200 and 304
    classes = (hour.status_2xx, hour.status_3xx, hour.status_4xx, hour.status_5xx)
    assert (*classes, hour.status_other) == (2, 2, 1, 2, 1)


def test_pages_are_counted_without_query(totals: Any) -> None:
    rows = totals(event(url="/a?1"), event(url="/a"), event(url="/b#x"), event(url="/c.css"))
    assert views(rows["1h", at("2015-05-17 10:00:00")]) == {"/a": 2, "/b": 1}


def test_pages_that_begin_alike_for_long_are_one(totals: Any) -> None:
    long = "/" + "ü" * (CHARACTERS - 1)
    rows = totals(event(url=long), event(url=f"{long}x"), event(url=f"{long}.css"))
    assert views(rows["1h", at("2015-05-17 10:00:00")]) == {long: 2}


def views(row: Row) -> dict[str, int]:
    return {page["item"]: page["count"] for page in row.pages}


def page_views(spark: SparkSession, pages: Column) -> DataFrame:
    """Each row of a range as a view of a page in one and the same hour."""
    return spark.range(0, 40_000, numPartitions=5).select(
        F.timestamp_seconds(F.lit(1431856800)).alias("event_time"),
        F.lit("someone").alias("visitor_id"),
        pages.alias("url"),
        F.lit("GET").alias("method"),
        F.lit("page_view").alias("kind"),
        F.lit(200).alias("status"),
        F.lit(1).cast("bigint").alias("bytes"),
    )


def hour_of(frame: DataFrame) -> Row:
    [hour] = traffic(frame, RULE, HOUR, SKETCHES, TASKS).where("window = '1h'").collect()
    return hour


def test_as_many_pages_as_are_tracked_are_exact(spark: SparkSession) -> None:
    hour = hour_of(page_views(spark, F.concat(F.lit("/"), F.col("id") % TRACKED)))
    truth = {f"/{n}": 40_000 // TRACKED + (n < 40_000 % TRACKED) for n in range(TRACKED)}
    assert views(hour) == truth
    assert page_error(hour.pages_error) == 0


def test_of_more_pages_than_are_tracked_the_most_viewed_are_listed(spark: SparkSession) -> None:
    """Half of the views are of one page, a tenth of another, the others of one page each."""
    place = F.col("id") % 10
    rare = F.concat(F.lit("/rare/"), F.col("id"))
    page = F.when(place < 5, "/hot").when(place == 5, "/warm").otherwise(rare)
    hour = hour_of(page_views(spark, page))
    error, found = page_error(hour.pages_error), views(hour)
    truth = {"/hot": 20_000, "/warm": 4_000}
    assert 0 < error <= 3.5 / 128 * hour.page_views
    assert truth.keys() <= found.keys()
    assert len(found) <= TRACKED
    for url, count in found.items():
        assert count - error <= truth.get(url, 1) <= count
    assert all(count - error > error for count in found.values())
    assert (hour.requests, hour.page_views) == (40_000, 40_000)


def test_the_state_of_an_hour_is_bounded(spark: SparkSession, tmp_path: Path) -> None:
    """As many rows in the state after a hundred pages as after ten thousand, batch after batch."""
    made = tmp_path / "events"
    truth: Counter[str] = Counter()
    written: list[Row] = []
    for batch in range(4):
        pages = ["/hot"] * 500 + [f"/{batch}/{n}" for n in range(10 ** min(batch + 1, 3) * 3)]
        truth.update(pages)
        rows = [(at("2015-05-17 10:00:00"), "someone", url) for url in pages]
        frame = spark.createDataFrame(rows, "event_time timestamp, visitor_id string, url string")
        frame.coalesce(1).write.mode("append").json(str(made))
    schema = "event_time timestamp, visitor_id string, url string"
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(made))
    events = source.selectExpr(
        "*", "'GET' AS method", "'page_view' AS kind", "200 AS status", "1L AS bytes"
    )
    query = (
        traffic(events, RULE, HOUR, SKETCHES, TASKS)
        .writeStream.outputMode("update")
        .foreachBatch(lambda frame, _: written.extend(frame.where("window = '1h'").collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    states = [p.stateOperators[0].numRowsTotal for p in query.recentProgress if p.numInputRows]
    query.stop()
    assert states == [2] * 4
    last = written[-1]
    error = page_error(last.pages_error)
    assert last.page_views == truth.total()
    assert 0 < error <= 3.5 / 128 * truth.total()
    assert all(n - error <= truth[url] <= n for url, n in views(last).items())
    assert views(last)["/hot"] == truth["/hot"]  # followed from the first view on


def test_unique_visitors_merge_over_windows_within_two_percent(spark: SparkSession) -> None:
    visitors = 20_000
    events = spark.range(3 * visitors).select(
        F.timestamp_seconds(F.lit(1431857100) + F.col("id") % 7200).alias("event_time"),
        (F.col("id") % visitors).cast("string").alias("visitor_id"),
        F.lit("/").alias("url"),
        F.lit("GET").alias("method"),
        F.lit("page_view").alias("kind"),
        F.lit(200).alias("status"),
        F.lit(1).cast("bigint").alias("bytes"),
    )
    minutes = traffic(events, RULE, HOUR, SKETCHES, TASKS).filter("window = '1m'")
    merged = minutes.agg(F.hll_sketch_estimate(F.hll_union_agg("visitors"))).first()
    assert merged is not None
    assert merged[0] == pytest.approx(visitors, rel=0.02)


class Stream:
    """A running `traffic` query that reads whatever files a test drops into a folder."""

    def __init__(self, spark: SparkSession, folder: Path, tasks: int = TASKS) -> None:
        self._spark = spark
        self._input = folder / "input"
        self._input.mkdir()
        self._files = 0
        self.checkpoint = folder / "checkpoint"
        self.written: dict[tuple[Any, ...], int] = {}
        events = (
            spark.readStream.schema(
                "event_time timestamp, visitor_id string, url string, method string, kind string,"
                " status int, bytes bigint"
            )
            .option("maxFilesPerTrigger", 1)
            .json(str(self._input))
        )
        self.query = (
            traffic(events, RULE, HOUR, SKETCHES, tasks)
            .writeStream.outputMode("update")
            .foreachBatch(self._write)
            .option("checkpointLocation", str(self.checkpoint))
            .start()
        )

    def _write(self, frame: DataFrame, _: int) -> None:
        rows = frame.collect()
        self.written |= {(row.window, row.window_start): row.requests for row in rows}

    def send(self, *batches: list[str]) -> None:
        """Events at these times, a batch for each list, then wait until they are taken in."""
        for times in batches:
            lines = [event(event_time=time).decode() for time in times]
            part = self._input / f".{self._files}"
            part.write_text("\n".join(lines))
            os.utime(part, (self._files, self._files))  # batches are taken in this order
            part.rename(self._input / f"{self._files}.json")
            self._files += 1
        self.query.processAllAvailable()


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Any:
    stream = Stream(spark, tmp_path)
    yield stream
    stream.query.stop()


@pytest.mark.parametrize(("tasks", "shuffles"), [(1, 0), (2, 1)])
def test_a_single_task_has_its_state_at_hand(
    spark: SparkSession, tmp_path: Path, tasks: int, shuffles: int
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", tasks)
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", False)
    stream = Stream(session, tmp_path, tasks)
    stream.send(["2015-05-17T10:05:03Z"])
    plan = stream.query._jsq.explainInternal(False)
    stream.query.stop()
    assert "StateStoreSave" in plan
    assert plan.count("Exchange") == shuffles


def test_closed_windows_leave_the_state_and_take_no_more_events(
    spark: SparkSession, stream: Stream
) -> None:
    stream.send(["2015-05-17T10:05:03Z", "2015-05-17T11:30:00Z"])
    stream.send(["2015-05-17T13:30:00Z"])  # one hour of watermark: closes 10:05 and 10-11 h
    state = stream.query.lastProgress.stateOperators[0]
    assert state.numRowsRemoved > 0
    stream.send(["2015-05-17T10:05:04Z", "2015-05-17T12:45:00Z"])
    assert stream.written["1m", at("2015-05-17 10:05:00")] == 1
    assert stream.written["1h", at("2015-05-17 10:00:00")] == 1
    assert stream.written["1h", at("2015-05-17 12:00:00")] == 1
    assert json.loads(stream.query.lastProgress.json)["eventTime"]["watermark"] > "2015-05-17T12:29"


def test_late_events_are_counted_exactly(spark: SparkSession, stream: Stream) -> None:
    # Batches in a row, so that the watermark that drops is the one of the batch before.
    batches = [
        ["2015-05-17T10:05:03Z"],
        ["2015-05-17T13:30:00Z"],
        ["2015-05-17T10:05:04Z", "2015-05-17T15:00:00Z", "2015-05-17T12:45:00Z"],
        ["2015-05-17T12:46:00Z", "2015-05-17T12:29:30Z", "2015-05-17T13:59:59Z"],
        ["2015-05-17T15:00:01Z", "2015-05-16T00:00:00Z", "2015-05-17T13:10:00Z"],
    ]
    stream.send(*batches)
    checkpoint = Checkpoint(spark, str(stream.checkpoint))
    late = {"1m": 0, "1h": 0}
    judged, records = [], []
    for number, times in zip(_data_batches(stream), batches, strict=True):
        end = {"events": {"0": len(records) + len(times)}}
        watermark_ms = checkpoint.watermark_ms(number)
        judged.append(JudgedBatch(number, Batch({}, end), watermark_ms))
        records += [(time, 0, len(records) + place) for place, time in enumerate(times)]
    events = spark.createDataFrame(records, "text string, partition int, offset bigint")
    events = events.withColumn("event_time", F.to_timestamp("text"))
    found = late_events(events, "event_time", LATE_FOR, judged).collect()
    for row in found:
        late = {window: late[window] + row[window] for window in late}
    counted = {
        window: sum(n for (w, _), n in stream.written.items() if w == window) for window in late
    }
    sent = sum(map(len, batches))
    assert {window: counted[window] + late[window] for window in late} == {"1m": sent, "1h": sent}
    assert late["1m"] > late["1h"] > 0
    assert _dropping(stream) == {row.number for row in found if row["1m"]}


def _dropping(stream: Stream) -> set[int]:
    """Batches that dropped rows: by that a driver knows that it has to count their late events."""
    return {
        progress.batchId
        for progress in stream.query.recentProgress
        if any(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
    }


def _data_batches(stream: Stream) -> list[int]:
    return [p.batchId for p in stream.query.recentProgress if p.numInputRows]


def test_lateness_is_by_batch_window_and_day(spark: SparkSession) -> None:
    times = ["2015-05-16 23:59:59", "2015-05-17 10:05:59", "2015-05-17 10:06:00"]
    # Each event twice: at the offsets 0 to 2 of a partition, and at 0 to 2 of another, a new one.
    rows = [(at(time), partition, n) for partition in (0, 1) for n, time in enumerate(times)]
    events = spark.createDataFrame(rows, "event_time timestamp, partition int, offset bigint")
    batches = [
        JudgedBatch(7, Batch({}, {"events": {"0": 1}}), millis("2015-05-17 00:00:00")),
        JudgedBatch(8, Batch({}, {"events": {"0": 3, "1": 3}}), millis("2015-05-17 10:06:00")),
    ]
    found = {
        (row.number, str(row.bucket)): (row["1m"], row["1h"])
        for row in late_events(events, "event_time", LATE_FOR, batches).collect()
    }
    assert found == {
        (7, "2015-05-16"): (1, 1),
        (8, "2015-05-16"): (1, 1),
        (8, "2015-05-17"): (2, 0),
    }


def test_the_contract_is_what_spark_writes_into_a_checkpoint(
    spark: SparkSession, stream: Stream
) -> None:
    stream.send(["2015-05-17T10:05:00Z"])
    state = spark.read.format("statestore").load(str(stream.checkpoint)).schema
    for column, declared in (("key", TRAFFIC_KEY), ("value", TRAFFIC_VALUE)):
        fields = state[column].dataType.fields
        assert ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in fields) == declared
