"""A batch that fails by some of its records: they are found, put aside and left out."""

import json
import os
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import astuple
from math import ceil, log2
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.declared import job as declared_job
from millrace_jobs.declared.loader import Declaration
from millrace_jobs.inputs import sources
from millrace_jobs.inputs.checkpoint import EARLIEST
from millrace_jobs.inputs.place import Place
from millrace_jobs.leader import running
from millrace_jobs.quarantine import store
from millrace_jobs.quarantine.search import NotIsolatable, Quarantined, Range, Skip, find
from millrace_jobs.quarantine.store import Quarantine, in_a_line, is_of_values, without
from py4j.protocol import Py4JJavaError
from pyspark.errors import ArithmeticException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.jobs.samples import EVENT, RECEIVED, STREAM, settings_of

RECORD = "value binary, topic string, partition int, offset bigint, timestamp timestamp"

# -- The search


class Tried:
    """Fails by the records at these offsets, as a job without memory does."""

    def __init__(self, bad: set[tuple[int, int]]) -> None:
        self.bad = bad
        self.probes = 0

    def __call__(self, ranges: Sequence[Range]) -> list[str | None]:
        self.probes += len(ranges)
        return [self._try(one) for one in ranges]

    def _try(self, one: Range) -> str | None:
        inside = [n for p, n in self.bad if p == one.partition and one.start <= n < one.end]
        return f"error at {min(inside)}" if inside else None


PARTITIONS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(1, 5000)), min_size=1, max_size=4
)


@given(PARTITIONS, st.data())
def test_exactly_the_failing_records_are_found_by_a_bounded_number_of_probes(
    partitions: list[tuple[int, int]], data: st.DataObject
) -> None:
    ranges = [Range("t", p, start, start + n) for p, (start, n) in enumerate(partitions)]
    anywhere = st.sampled_from(ranges).flatmap(
        lambda one: st.tuples(st.just(one.partition), st.integers(one.start, one.end - 1))
    )
    bad = data.draw(st.sets(anywhere, max_size=8))
    tried = Tried(bad)
    found = find(ranges, tried, limit=8)
    assert found == {Place("t", p, n): f"error at {n}" for p, n in bad}
    longest = max(one.end - one.start for one in ranges)
    assert tried.probes <= len(ranges) + 2 * len(bad) * ceil(log2(longest))


@given(st.integers(1, 40), st.integers(50, 5000))
def test_what_fails_by_everything_is_given_up_early(limit: int, records: int) -> None:
    tried = Tried({(0, n) for n in range(records)})
    with pytest.raises(NotIsolatable, match=f"more than {limit} further records fail: error at"):
        find([Range("t", 0, 0, records)], tried, limit)
    assert tried.probes < 8 * limit


def test_a_batch_that_fails_only_as_a_whole_has_no_guilty_records() -> None:
    def overflow(ranges: Sequence[Range]) -> list[str | None]:
        return ["overflow" if one.end - one.start > 3 else None for one in ranges]

    assert find([Range("t", 0, 0, 10)], overflow, limit=5) == {}


# -- A job that fails, as a query over files in place of a topic

URLS = ["/a", "/b", "/c"]


def events(first: int, number: int, **bad: int) -> list[dict[str, Any]]:
    """Numbered from ``first``; ``bad`` are bytes by their number, as in ``n7=-1``."""
    numbers = range(first, first + number)
    return [
        EVENT | {"event_id": str(n), "url": URLS[n % 3], "bytes": bad.get(f"n{n}", n)}
        for n in numbers
    ]


RAISED = "[USER_RAISED_EXCEPTION] no such number: 666 SQLSTATE: P0001"


def picky(column: str) -> Column:
    no_such = F.raise_error(F.lit("no such number: 666")).cast("bigint")
    return F.when(F.col(column) == 666, no_such).otherwise(F.col(column))


def by_url(found: DataFrame, _: dict[str, Any]) -> DataFrame:
    """Fails by two kinds of records: by the one on purpose, by the other as it computes."""
    odd = F.lit(2**62).cast("bigint") * F.when(F.col("bytes") == 777, 4).otherwise(1)
    return found.groupBy(F.window("event_time", "1 minute"), "url").agg(
        F.count("*").alias("n"), F.sum(picky("bytes")).alias("total"), F.max(odd).alias("odd")
    )


class Memory:
    """Cassandra's tables, as far as quarantines use them."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}

    def upsert(self, table: str, columns: Sequence[str], rows: Any, _: int) -> None:
        assert table == "quarantine"
        for row in rows:
            self.rows[row[:4]] = dict(zip((c.strip('"') for c in columns), row, strict=True))

    def select(self, query: str, key: Any) -> list[Any]:
        assert ".quarantine WHERE job = ?" in query
        *names, start = (*key, 0) if len(key) < 4 else key
        return [
            SimpleNamespace(**row)
            for at, row in self.rows.items()
            if list(at[: len(names)]) == names and at[3] >= start
        ]


class Running:
    """The job over a folder's files, each of which is a batch."""

    def __init__(
        self, spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, rows: Any
    ) -> None:
        self.stored: dict[tuple[Any, ...], Any] = {}
        self.letters: dict[str, str] = {}
        self._folder, self._sent = folder, []
        (folder / "topic").mkdir()
        lease = SimpleNamespace(confirm=lambda: None, verify=lambda: None)
        context: Any = SimpleNamespace(
            skipped=(),
            job="theirs",
            lookups=[],
            spark=spark,
            streams=[STREAM],
            settings=settings_of("theirs", like="status_by_minute"),
            config=SimpleNamespace(
                kafka="",
                names=SimpleNamespace(
                    kafka=SimpleNamespace(topics=SimpleNamespace(dead_letters=""))
                ),
            ),
            tables=Memory(),
            lease=lease,
            checkpoint=SimpleNamespace(
                batch=lambda n: SimpleNamespace(of=lambda _: n, start={}),
                oldest=lambda: 0,
                reached=dict,
            ),
            checkpoint_id=lambda: "query",
            version=lambda batch: batch,
        )
        results: Any = SimpleNamespace()
        self.job = declared_job.Declared(context, Declaration(rows, ""), results)
        monkeypatch.setattr(sources, "stream", self._stream)
        monkeypatch.setattr(sources, "records", self._records)
        monkeypatch.setattr(store, "DeadLetters", lambda *_: SimpleNamespace(write=self._bury))

    def send(self, sent: list[dict[str, Any]]) -> None:
        first = sum(map(len, self._sent))
        batch = len(self._sent)
        self._sent.append(sent)
        part = self._folder / "topic" / f".{batch}"
        part.write_text("\n".join(json.dumps(_record(e, first + n)) for n, e in enumerate(sent)))
        os.utime(part, (batch, batch))
        part.rename(part.with_name(f"{batch}.json"))

    def run(self) -> Exception | None:
        """Until all is read or the query ends; what the sink raised then."""
        self.job.refresh()
        raised: list[Exception] = []
        frame = self.job.frame(1000)
        query = (
            frame.writeStream.outputMode("update")
            .foreachBatch(running.while_leading(self._write, self._lease, self._draining, raised))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except Exception:
            return raised[-1]
        return None

    _lease: Any = SimpleNamespace(confirm=lambda: None)
    _draining: Any = SimpleNamespace(is_set=lambda: False)

    def _write(self, frame: DataFrame, batch: int) -> None:
        for row in self.job._collect(frame, batch):
            self.stored[row.url] = (row.n, row.total)

    def _stream(self, spark: SparkSession, *_: Any, **__: Any) -> DataFrame:
        files = spark.readStream.schema(RECORD).option("maxFilesPerTrigger", 1)
        return files.json(str(self._folder / "topic"))

    def _records(
        self, spark: SparkSession, _: str, __: str, ___: Any, batch: int, *____: Any
    ) -> DataFrame:
        schema = f"{RECORD}, headers array<struct<key: string, value: binary>>"
        return spark.read.schema(schema).json(str(self._folder / "topic" / f"{batch}.json"))

    def _bury(self, letters: DataFrame, checkpoint: str, batch: int, version: int) -> None:
        assert (checkpoint, version) == ("query", batch)
        self.letters |= {f"{r.topic}-{r.partition}-{r.offset}": r.reason for r in letters.collect()}


def _record(event: dict[str, Any], number: int) -> dict[str, Any]:
    value = b64encode(json.dumps(event, separators=(",", ":")).encode()).decode()
    place = {"topic": STREAM.topic, "partition": number % 2, "offset": 100 + number // 2}
    return {"value": value, "timestamp": f"{RECEIVED.isoformat()}Z", **place}


def truth(sent: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    good = [e for e in sent if e["bytes"] not in (666, 777)]
    return {
        url: (len(mine), sum(e["bytes"] for e in mine))
        for url in URLS
        if (mine := [e for e in good if e["url"] == url])
    }


def test_a_job_goes_on_without_the_records_that_it_fails_by(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(spark, tmp_path, monkeypatch, by_url)
    batches = [events(0, 40), events(40, 90, n55=666, n56=777, n101=666), events(130, 20)]
    for batch in batches:
        running.send(batch)
    error = running.run()
    assert isinstance(error, Quarantined)
    assert store.in_a_line(error).startswith("batch 1 is run again without")
    assert running.letters == {
        "events-1-127": f"theirs: {RAISED}",
        "events-0-128": running.letters["events-0-128"],
        "events-1-150": f"theirs: {RAISED}",
    }
    assert "ARITHMETIC_OVERFLOW" in running.letters["events-0-128"]
    rows = running.job.context.tables.rows  # type: ignore[attr-defined]
    assert {(row["batch"], row["checkpoint"]) for row in rows.values()} == {(1, "query")}

    assert running.run() is None
    assert running.stored == truth([event for batch in batches for event in batch])


def test_a_job_that_fails_by_everything_is_left_as_it_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(spark, tmp_path, monkeypatch, by_url)
    few = settings_of(
        "theirs", like="status_by_minute", quarantine_records=5, quarantine_share=0.01
    )
    running.job.context.settings = few  # each that is found takes a second
    running.send(events(0, 90) + [EVENT | {"bytes": 666}] * 20)
    error = running.run()
    assert isinstance(error, NotIsolatable)
    assert f"more than 5 further records fail: {RAISED}" in str(error)
    assert not running.letters
    assert not running.job.refresh()


def test_a_sum_over_many_records_has_no_guilty_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sums(found: DataFrame, _: dict[str, Any]) -> DataFrame:
        large = F.lit(2**62).cast("bigint")
        return found.groupBy(F.window("event_time", "1 minute"), "url").agg(
            F.count("*").alias("n"), F.sum(large).alias("total")
        )

    running = Running(spark, tmp_path, monkeypatch, sums)
    running.send(events(0, 20))
    error = running.run()
    assert isinstance(error, NotIsolatable)
    assert "none of its records alone: [ARITHMETIC_OVERFLOW]" in str(error)


@pytest.mark.parametrize(
    ("events", "of_before", "most"),
    [
        (10, 0, 9),  # one of ten is no share that says anything
        (10, 9, 0),
        (10, 20, 0),
        (100_000, 0, 1000),
        (100_000, 100_000, 1000),  # and so it may go on
    ],
)
def test_a_share_of_a_batch_may_be_put_aside_or_a_few_of_several(
    events: int, of_before: int, most: int
) -> None:
    tables = Memory()
    offsets = [*range(3), *range(100, 100 + of_before)]
    for (
        offset
    ) in offsets:  # the first ones are of a batch that the checkpoint doesn't know any more
        skip = Skip(Place("events", 0, offset), RECEIVED, batch=7 if offset >= 100 else 6)
        tables.upsert("quarantine", store.COLUMNS, [store.row_of("theirs", skip)], 1)
    context: Any = SimpleNamespace(
        job="theirs",
        streams=[STREAM],
        tables=tables,
        checkpoint=SimpleNamespace(
            oldest=lambda: 7, batch=lambda _: SimpleNamespace(start={"events": {"0": 2}})
        ),
        settings=settings_of(
            "theirs",
            like="status_by_minute",
            quarantine_records=9,
            quarantine_share=0.01,
        ),
    )
    assert Quarantine(context, None)._most(events) == most  # type: ignore[arg-type]


def test_a_query_needs_only_what_is_put_aside_from_where_it_stands() -> None:
    tables = Memory()
    places = [Place(t, p, n) for t in ("events", "clicks") for p in (0, 1) for n in (1, 5)]
    for place in places:
        row = store.row_of("theirs", Skip(place, RECEIVED))
        tables.upsert("quarantine", store.COLUMNS, [row], 1)
    context: Any = SimpleNamespace(job="theirs", streams=[STREAM], tables=tables)
    for start, expected in [
        ({}, [("events", p, n) for p in (0, 1) for n in (1, 5)]),
        (
            {"events": {"0": 2, "1": EARLIEST}},
            [("events", 0, 5), ("events", 1, 1), ("events", 1, 5)],
        ),
        ({"events": {"0": 5, "1": 6}}, [("events", 0, 5)]),
    ]:
        found = store.skips_from(context, start)  # type: ignore[arg-type]
        assert [astuple(skip.place) for skip in found] == expected


def test_many_places_are_left_out_by_a_join(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LISTED", 1)
    test_only_the_places_that_are_put_aside_are_left_out(spark)


def test_only_the_places_that_are_put_aside_are_left_out(spark: SparkSession) -> None:
    rows = [("a", partition, offset) for partition in range(3) for offset in range(3)]
    records = spark.createDataFrame(rows, "topic string, partition int, offset bigint")
    places = [Place("a", 0, 1), Place("a", 0, 2), Place("a", 2, 0), Place("b", 1, 1)]
    skips = [Skip(place, RECEIVED) for place in places]
    left = {tuple(row) for row in without(records, "a", skips).collect()}
    assert left == set(rows) - {astuple(place) for place in places}


@pytest.mark.parametrize(
    "job",
    [
        "SELECT 1 / (id - 7) FROM range(9)",
        "SELECT cast(concat('x', id) AS int) FROM range(9)",
        "SELECT to_date(concat('x', id)) FROM range(9)",
        "SELECT array(1)[id] FROM range(9)",
        "SELECT raise_error('no') FROM range(9)",
        "SELECT parse_url(concat('http://[', id), 'HOST') FROM range(9)",
    ],
)
def test_what_a_value_does_is_told_from_what_a_host_does(spark: SparkSession, job: str) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.sql(job).write.format("noop").mode("overwrite").save()
    assert is_of_values(raised.value)
    assert "\n" not in in_a_line(raised.value)


def test_a_file_that_is_gone_is_no_value(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(9).write.parquet(str(tmp_path / "p"))
    frame = spark.read.parquet(str(tmp_path / "p"))
    for part in (tmp_path / "p").glob("*.parquet"):
        part.unlink()
    with pytest.raises((PySparkException, Py4JJavaError)) as raised:
        frame.write.format("noop").mode("overwrite").save()
    assert not is_of_values(raised.value)


def test_errors_are_told_in_a_line() -> None:
    assert in_a_line(ArithmeticException("[OVERFLOW] too large\n== SQL ==")) == (
        "[OVERFLOW] too large"
    )
    assert in_a_line(RuntimeError()) == "RuntimeError"
