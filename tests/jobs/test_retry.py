"""Records that were put aside are counted once their job can bear them, each once."""

from collections.abc import Callable
from dataclasses import astuple
from datetime import UTC, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.inputs.place import Place
from millrace_jobs.output import Output
from millrace_jobs.quarantine.search import Skip
from millrace_jobs.quarantine.store import left_out, row_of
from millrace_jobs.query.write_version import write_version
from millrace_jobs.recount.declared_rows import DeclaredRows
from millrace_jobs.recount.run import recount
from millrace_jobs.requests.retry import Retried, RetryRefused, retry, to_write, together
from millrace_jobs.sinks import archive
from millrace_jobs.transforms import parse
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace_shared.generations import Layer, Overlay
from tests.jobs.running import job_of, records
from tests.jobs.samples import EVENT, STREAM, at, settings_of

NOON = at("2026-01-01 12:00:00")
SETTINGS = settings_of("test", like="sessions", session_gap_seconds=0)
SKIP = Skip(Place("events", 0, 0), NOON)
OUTPUT = Output(
    job="test",
    table="job_test",
    summary="A test.",
    window_seconds=60,
    slide_seconds=60,
    offset_seconds=0,
    join_seconds=None,
    key={"url": "string"},
    values={"n": "bigint"},
    approximate={},
    buckets=1,
    keep_seconds=86400,
    state=[],
)

# -- Which windows, which rows


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=9))
def test_records_are_together_if_their_windows_overlap(ranges: list[tuple[int, int]]) -> None:
    ones = [
        Retried(
            [SKIP], NOON + start * timedelta.resolution, NOON + (start + n) * timedelta.resolution
        )
        for start, n in ranges
    ]
    found = list(together(ones))
    assert sum(len(one.skips) for one in found) == len(ones)
    for one, following in pairwise(found):
        assert one.end <= following.start
    for one in ones:
        assert sum(each.start <= one.start and one.end <= each.end for each in found) == 1


Counts = dict[str, int]


def rows(counts: Counts) -> list[dict[str, Any]]:
    return [{"window_start": NOON, "url": url, "n": n} for url, n in counts.items()]


def written(before: Counts, after: Counts, stored: Counts) -> Counts:
    found = to_write(OUTPUT, rows(before), rows(after), rows(stored))
    return {row["url"]: row["n"] for row in found}


URLS = st.sampled_from("abcd")


@given(
    st.dictionaries(URLS, st.integers(1, 9)), st.dictionaries(URLS, st.integers(1, 3)), st.data()
)
def test_whatever_was_written_before_all_is_counted_once_and_nothing_else_is_touched(
    before: Counts, retried: Counts, data: st.DataObject
) -> None:
    after = before | {url: before.get(url, 0) + n for url, n in retried.items()}
    done = data.draw(st.sets(st.sampled_from(sorted(retried)))) if retried else set()
    late = {"late": 1}
    stored = before | {url: after[url] for url in done}
    rewritten = written(before | {"late": 2}, after | {"late": 2}, stored | late)
    assert rewritten.keys() == retried.keys()
    assert stored | rewritten == after


@pytest.mark.parametrize(
    ("before", "after", "stored", "why"),
    [
        ({"a": 2}, {"a": 3}, {"a": 1}, "n 2 ≠ 1"),  # one was late
        ({"a": 2}, {"a": 3}, {}, "it is not stored"),  # it is kept no longer
        ({}, {"a": 1}, {"a": 4}, "there is none"),  # the archive is
        ({"a": 2, "b": 1}, {"a": 3}, {"a": 2, "b": 1}, "no row"),
    ],
)
def test_a_row_that_would_change_by_more_is_refused(
    before: Counts, after: Counts, stored: Counts, why: str
) -> None:
    with pytest.raises(RetryRefused, match=why):
        written(before, after, stored)


# -- What a query leaves out


def context_of(skips: list[Skip], query: str | None) -> Any:
    found = [
        SimpleNamespace(
            **dict(zip(("topic", "partition", "offset"), astuple(skip.place), strict=True)),
            **{name: getattr(skip, name) for name in ("since", "reason", "checkpoint", "batch")},
            retried=skip.retried,
        )
        for skip in skips
    ]
    return SimpleNamespace(
        job="test",
        tables=SimpleNamespace(select=lambda *_: found),
        streams=[SimpleNamespace(topic="events")],
        checkpoint=SimpleNamespace(query_id=lambda: query, reached=dict),
    )


def test_what_was_retried_is_left_out_by_its_query_and_read_by_a_new_one() -> None:
    aside = Skip(Place("events", 0, 1), NOON, "no", "old", 7)
    retried = Skip(Place("events", 0, 2), NOON, "no", "old", 7, NOON)
    assert left_out(context_of([aside, retried], "old")) == [aside, retried]
    assert left_out(context_of([aside, retried], "new")) == [aside]
    assert left_out(context_of([aside, retried], None)) == [aside]


# -- A job whose windows are closed, and whose archive is a table of Delta


RAISED = "[USER_RAISED_EXCEPTION] no such number: 666 SQLSTATE: P0001"


def picky(column: str) -> Column:
    no_such = F.raise_error(F.lit("no such number: 666")).cast("bigint")
    return F.when(F.col(column) == 666, no_such).otherwise(F.col(column))


def mended(found: DataFrame, _: dict[str, Any]) -> DataFrame:
    return found.groupBy(F.window("event_time", "1 minute"), "url").agg(
        F.count("*").alias("n"), F.sum("bytes").alias("total")
    )


def as_before(found: DataFrame, _: dict[str, Any]) -> DataFrame:
    return found.groupBy(F.window("event_time", "1 minute"), "url").agg(
        F.count("*").alias("n"), F.sum(picky("bytes")).alias("total")
    )


def sent(second: int, url: str, size: int = 1) -> dict[str, Any]:
    moment = NOON + timedelta(seconds=second)
    return EVENT | {"event_time": f"{moment.isoformat()}.000Z", "url": url, "bytes": size}


SENT = [
    sent(1, "/a"),
    sent(2, "/a", 10),
    sent(3, "/b", 100),
    sent(62, "/a", 1000),
    sent(63, "/c", 666),
    sent(4000, "/a"),
]
ASIDE = {1, 2, 4, 5}  # their offsets; of the last one the window is open


class Died(Exception):
    """The driver, in the midst of it."""


class Service:
    """The job's table, its results and its quarantine; dies before the write that it is told."""

    def __init__(self, job: Any, stored: list[dict[str, Any]]) -> None:
        self.cells: dict[Any, tuple[int, dict[str, Any]]] = {}
        self.results: dict[str, dict[str, Any]] = {}
        self.skips = {
            offset: (0, Skip(Place(STREAM.topic, 0, offset), NOON, "no", "query", 3))
            for offset in ASIDE
        }
        self.dies_before: int | None = None
        self.overlay: Any = None
        self._table = job.output.table
        for row in stored:
            self.cells[row["window_start"], row["url"]] = (
                write_version(7, 4),
                row | {"version": write_version(7, 4)},
            )

    def select(self, query: str, values: Any) -> list[Any]:
        if ".quarantine" in query:
            return context_of([skip for _, skip in self.skips.values()], None).tables.select()
        if self._table in query:
            return [
                SimpleNamespace(_asdict=lambda row=row: row)
                for _, row in self.cells.values()
                if tuple(values[:2]) == (row["window_start"].date(), 0)
            ]
        return []

    scan = select

    def select_one(self, query: str, values: Any) -> Any:
        return self.overlay if ".overlays" in query else None

    def upsert(
        self, table: str, columns: Any, rows: Any, timestamp: int, partition_columns: int = 1
    ) -> None:
        self._step()
        for row in rows:
            if table == "quarantine":
                [offset] = [n for n, (_, skip) in self.skips.items() if skip.place.offset == row[3]]
                before, skip = self.skips[offset]
                found = Skip(skip.place, row[7], row[4], row[5], row[6], row[8])
                assert row == row_of("test", found)
                assert timestamp > before
                self.skips[offset] = (timestamp, found)
            else:
                values = dict(zip((name.strip('"') for name in columns), row, strict=True))
                name = (values["window_start"], values["url"])
                if timestamp > self.cells.get(name, (-1,))[0]:
                    self.cells[name] = (timestamp, values)

    def publish_beside(self, found: Any) -> None:
        self._step()
        self.results |= {record["key"]: record for record in found}

    def _step(self) -> None:
        if self.dies_before == 0:
            raise Died
        if self.dies_before:
            self.dies_before -= 1

    @property
    def counts(self) -> dict[tuple[int, str], tuple[int, int]]:
        return {
            ((start - NOON).seconds // 60, url): (row["n"], row["total"])
            for (start, url), (_, row) in self.cells.items()
        }

    @property
    def retried(self) -> set[int]:
        return {offset for offset, (_, skip) in self.skips.items() if skip.retried}


Make = Callable[..., tuple[Any, Service]]


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    found = records(spark, SENT, STREAM.topic).transform(parse.classify, STREAM)
    archive.append(parse.valid(found, STREAM), STREAM.event_time, str(folder), "a", 0, 1, 1, 48)
    return folder


@pytest.fixture
def make(spark: SparkSession, folder: Path) -> Make:
    """A job whose watermark is twelve minutes past noon, with what it has stored."""

    def made(code: Any, stored: dict[tuple[int, str], tuple[int, int]]) -> tuple[Any, Service]:
        checkpoint = SimpleNamespace(
            last_committed=lambda: 9,
            watermark_ms=lambda number: number * 72_000 + 1767268800_000,
            query_id=lambda: "query",
        )
        job: Any = job_of(
            spark,
            "test",
            [STREAM],
            SETTINGS,
            code,
            epoch=7,
            version=lambda batch: write_version(7, batch),
            lease=SimpleNamespace(verify=lambda: None, confirm=lambda: None),
            checkpoint=checkpoint,
            config=SimpleNamespace(kafka="", archive_of=lambda _: str(folder)),
        )
        rows = [
            {"window_start": NOON + timedelta(minutes=minute), "url": url, "n": n, "total": total}
            for (minute, url), (n, total) in stored.items()
        ]
        service = Service(job, rows)
        job.context.tables = service
        job._results = service
        return job, service

    return made


BEFORE = {(0, "/a"): (1, 1), (1, "/a"): (1, 1000)}
AFTER = {(0, "/a"): (2, 11), (0, "/b"): (1, 100), (1, "/a"): (1, 1000), (1, "/c"): (1, 666)}
ALL = [f"{STREAM.topic}-0-{offset}" for offset in sorted(ASIDE)]


def is_exact(job: Any) -> bool:
    found = recount(DeclaredRows(job), NOON, NOON + timedelta(minutes=2))
    return (found.lost, found.extra, found.wrong) == (0, 0, 0)


def test_closed_windows_get_what_was_put_aside_and_an_open_one_waits(make: Make) -> None:
    job, service = make(mended, BEFORE)
    assert is_exact(job)
    outcomes = {one.id: one for one in retry(job, [*ALL, "events-0-0"])}
    assert [outcomes[id].counted for id in ALL] == [True, True, True, False]
    assert "open until the job's watermark has passed 2026-01-01 13:0" in outcomes[ALL[3]].what
    assert "no such record" in outcomes["events-0-0"].what
    assert service.counts == AFTER
    assert {record["n"] for record in service.results.values()} == {1, 2}
    assert service.retried == {1, 2, 4}
    assert is_exact(job)
    assert "was counted" in retry(job, ALL[:1])[0].what


@pytest.mark.extended
def test_whenever_the_driver_dies_another_attempt_counts_each_once(make: Make) -> None:
    for step in range(3):
        job, service = make(mended, BEFORE)
        service.dies_before = step
        with pytest.raises(Died):
            retry(job, ALL)
        service.dies_before = None
        retry(job, ALL)
        assert service.counts == AFTER, step
        assert len(service.results) == 3, step
        assert service.retried == {1, 2, 4}, step


def test_one_after_the_other_each_is_newer_than_the_last(make: Make) -> None:
    job, service = make(mended, BEFORE)
    for id in ALL:
        retry(job, [id])
    assert service.counts == AFTER
    assert is_exact(job)


def test_what_still_fails_stays_aside_and_hinders_no_other(make: Make) -> None:
    job, service = make(as_before, BEFORE)
    outcomes = {one.id: one for one in retry(job, ALL)}
    assert outcomes[ALL[2]].what == f"fails: {RAISED}"
    assert service.retried == {1, 2}
    assert service.counts == {name: row for name, row in AFTER.items() if name != (1, "/c")}


def test_a_row_that_lacks_a_late_event_is_left_as_it_is(make: Make) -> None:
    stored = {(0, "/a"): (3, 12), (1, "/a"): (1, 1000)}
    job, service = make(mended, stored)
    outcomes = {one.id: one for one in retry(job, ALL[:2])}
    assert "n 1 ≠ 3" in outcomes[ALL[0]].what
    assert outcomes[ALL[1]].counted
    assert service.counts == stored | {(0, "/b"): (1, 100)}


def test_where_readers_see_another_count_nothing_is_retried(make: Make) -> None:
    job, service = make(mended, BEFORE)
    noon = NOON.replace(tzinfo=UTC)
    overlay = Overlay().switched(Layer(noon, noon + timedelta(minutes=1), 1, 9))
    service.overlay = SimpleNamespace(content=overlay.content, revision=1)
    outcomes = {one.id: one for one in retry(job, ALL)}
    assert [outcomes[id].counted for id in ALL] == [False, False, True, False]
    assert "`millrace reconcile test --back` first" in outcomes[ALL[0]].what
    assert service.retried == {4}


def test_a_job_that_has_not_run_is_told(make: Make) -> None:
    job, _ = make(mended, BEFORE)
    job.context.epoch = None
    with pytest.raises(RetryRefused, match="has not run"):
        retry(job, ALL)
