"""The audit's comparisons: exact data passes, and each way to be wrong is named."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cassandra import InvalidRequest
from hypothesis import given, settings
from hypothesis import strategies as st
from millrace_jobs.output import Output
from millrace_jobs.programs import pages as jobs_pages
from millrace_jobs.programs.traffic import list_record, page_record

from millrace.audit import compare, declared, run
from millrace.audit.archive import EMPTY, _is_needed, _last_checkpoint
from millrace.audit.page_views import PageViewRule
from millrace.audit.records import foreign_records, own_records
from millrace.audit.report import Plane, Report
from millrace.audit.skipped import unarchived_notes, uncovered
from millrace.audit.tables import Tables
from millrace.audit.truth import (
    STATUS_CLASSES,
    Cut,
    Lateness,
    PageList,
    Truth,
    epoch_seconds,
    may_be_late,
    requests_by_day,
    truth_of,
)
from millrace.cluster import cassandra
from millrace.cluster.skips import Skipped
from millrace.common.errors import OperatorError
from millrace.ledger import store
from millrace.ledger.store import Ledger, State, Writer
from millrace.plan import load_plan
from millrace_shared.generations import Layer, Overlay
from tests.unit.ledger.test_ledger import SPEC

EVENTS = 2000
RULE = PageViewRule(["GET"], [200, 304], ["css", "js", "png", "woff2"], 512)
LATENESS = Lateness(watermark=86_400, ahead=3600)
ALL = Cut(np.full(3, 2**40), np.full(3, 2**40))


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Every event acknowledged, dealt to three partitions in turn."""
    spec = replace(SPEC, rate=EVENTS / 20, late=0.05)
    writer = Writer(tmp_path_factory.mktemp("ledger") / "run", spec)
    for number in range(EVENTS):
        writer.record(number, number % 3, number // 3, 10 * number)
    writer.close(State(EVENTS, finished=True))
    return Ledger.open(writer.path)


@pytest.fixture(scope="module", autouse=True)
def portions() -> Iterator[None]:
    """A run is more than can be made anew at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "PORTION", EVENTS // 3)
        yield


@pytest.fixture(scope="module")
def rows(ledger: Ledger) -> pa.Table:
    """The archive as it has to be."""
    numbers = np.arange(EVENTS)
    arrived = (1_000_000 * ledger.started + 10_000 * numbers).astype(np.int64)
    places = {"partition": numbers % 3, "offset": numbers // 3, "timestamp": arrived}
    table = ledger.events(numbers)
    for name, values in places.items():
        kind = EMPTY.schema.field(name).type
        table = table.append_column(name, pa.array(values).cast(kind))
    return table.select(EMPTY.column_names).cast(EMPTY.schema)


def archived(ledger: Ledger, rows: pa.Table) -> Plane:
    plane = Plane("archive")
    compare.compare_records(plane, ledger, rows)
    return plane


def with_value(rows: pa.Table, row: int, column: str, value: object) -> pa.Table:
    values = rows[column].to_pylist()
    values[row] = value
    place = rows.schema.get_field_index(column)
    return rows.set_column(place, column, pa.array(values, rows.schema.field(column).type))


class TestRecords:
    def test_exact_in_any_order(self, ledger: Ledger, rows: pa.Table) -> None:
        shuffled = rows.take(np.random.default_rng(1).permutation(EVENTS))
        plane = archived(ledger, shuffled)
        assert plane.ok
        assert plane.checked == EVENTS

    @given(number=st.integers(0, EVENTS - 1))
    @settings(max_examples=20)
    def test_dropped_is_lost(self, ledger: Ledger, rows: pa.Table, number: int) -> None:
        plane = archived(ledger, rows.take([n for n in range(EVENTS) if n != number]))
        assert (plane.lost, plane.duplicated, plane.wrong) == (1, 0, 0)
        [example] = plane.examples
        assert rows["event_id"][number].as_py() in example
        assert f"partition {number % 3}, offset {number // 3}" in example

    @given(number=st.integers(0, EVENTS - 1))
    @settings(max_examples=20)
    def test_repeated_is_duplicated(self, ledger: Ledger, rows: pa.Table, number: int) -> None:
        plane = archived(ledger, rows.take([*range(EVENTS), number, number]))
        assert (plane.lost, plane.duplicated, plane.wrong) == (0, 2, 0)
        assert rows["event_id"][number].as_py() in plane.examples[0]

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("bytes", -1),
            ("url", "/other/"),
            ("status", 999),
            ("campaign", "none such"),
            ("visitor_id", None),
            ("offset", 10**9),
            ("partition", 7),
        ],
    )
    def test_altered_is_wrong(
        self, ledger: Ledger, rows: pa.Table, column: str, value: object
    ) -> None:
        plane = archived(ledger, with_value(rows, 17, column, value))
        assert (plane.lost, plane.duplicated, plane.wrong) == (0, 0, 1)
        assert rows["event_id"][17].as_py() in plane.examples[0]

    def test_in_doubt_may_be_there_or_not(self, ledger: Ledger, rows: pa.Table) -> None:
        doubtful = deepcopy(ledger)
        doubtful.acked[[3, 4]] = False
        for there in (rows, rows.take([n for n in range(EVENTS) if n not in (3, 4)])):
            assert archived(doubtful, there).ok

    def test_many_findings_have_few_examples(self, ledger: Ledger, rows: pa.Table) -> None:
        plane = archived(ledger, rows.slice(100))
        assert plane.lost == 100
        assert len(plane.examples) == 5


class TestTruth:
    def test_counts_as_plain_counting_does(self, ledger: Ledger, rows: pa.Table) -> None:
        truth = truth_of(own_records(ledger, rows), ALL, LATENESS, RULE)
        expected: dict[tuple[str, int], list[dict]] = {}
        for row in rows.to_pylist():
            moment = int(row["event_time"].timestamp())
            for size, seconds in (("1m", 60), ("1h", 3600)):
                expected.setdefault((size, moment // seconds * seconds), []).append(row)
        assert truth.high.keys() == expected.keys()
        for window, events in expected.items():
            figures = truth.high[window]
            assert figures["requests"] == len(events)
            assert figures["bytes"] == sum(event["bytes"] for event in events)
            assert figures["visitors"] == len({event["visitor_id"] for event in events})
            assert figures["page_views"] == sum(map(is_page_view, events))
            for name, digit in (("2xx", 2), ("4xx", 4), ("other", 1)):
                assert figures[name] == sum(event["status"] // 100 == digit for event in events)
        assert sum(truth.high_pages.values()) == sum(map(is_page_view, rows.to_pylist()))
        assert all("?" not in url for _, url in truth.high_pages)

    def test_the_late_may_be_missing(self, ledger: Ledger, rows: pa.Table) -> None:
        truth = truth_of(own_records(ledger, rows), ALL, LATENESS, RULE)
        late = truth.high.keys() - truth.low.keys()
        assert late
        assert all(start < ledger.started - LATENESS.watermark for _, start in late)

    def test_what_came_while_reading_may_be_in_or_not(self, ledger: Ledger, rows: pa.Table) -> None:
        cut = Cut(np.full(3, 100), np.full(3, 200))
        truth = truth_of(own_records(ledger, rows), cut, Lateness(10**9, 0), RULE)
        for windows, requests in ((truth.low, 300), (truth.high, 600)):
            hours = (figures for (size, _), figures in windows.items() if size == "1h")
            assert sum(figures["requests"] for figures in hours) == requests

    def test_lost_events_count_and_foreign_ones_once(self, ledger: Ledger, rows: pa.Table) -> None:
        strangers = with_value(rows.slice(0, 1), 0, "event_id", "stranger")
        strangers = with_value(strangers, 0, "offset", 10**6)
        mixed = pa.concat_tables([rows.slice(1), strangers, strangers])
        assert len(own_records(ledger, mixed)) == EVENTS
        assert len(foreign_records([ledger], mixed)) == 1

    def test_in_doubt_but_archived_counts(self, ledger: Ledger, rows: pa.Table) -> None:
        doubtful = deepcopy(ledger)
        doubtful.acked[:] = False
        assert len(own_records(doubtful, rows.slice(0, 10))) == 10


def is_page_view(event: dict) -> bool:
    extension = event["url"].split("?")[0].rsplit(".", 1)[-1]
    return (
        event["kind"] == "page_view"
        and event["method"] in RULE.methods
        and event["status"] in RULE.statuses
        and extension not in RULE.asset_extensions
    )


@pytest.fixture(scope="module")
def truth(ledger: Ledger, rows: pa.Table) -> Truth:
    in_time = Lateness(watermark=10**9, ahead=0)
    return truth_of(own_records(ledger, rows), ALL, in_time, RULE)


class TestWindows:
    def plane(self, truth: Truth, seen: dict) -> Plane:
        plane = Plane("windows")
        compare.compare_windows(plane, truth, truth.high, seen)
        return plane

    def test_exact(self, truth: Truth) -> None:
        plane = self.plane(truth, truth.high)
        assert plane.ok
        assert plane.checked == len(truth.high)

    @given(data=st.data())
    @settings(max_examples=30)
    def test_a_figure_raised_or_lowered_is_wrong(self, truth: Truth, data: st.DataObject) -> None:
        window = data.draw(st.sampled_from(sorted(truth.high)))
        name = data.draw(st.sampled_from(compare.COUNTS))
        by = data.draw(st.sampled_from([-1, 1, 1000]))
        seen = deepcopy(truth.high)
        seen[window][name] += by
        plane = self.plane(truth, seen)
        assert plane.wrong == 1
        assert f"{name} {truth.high[window][name] + by} instead of" in plane.examples[0]

    def test_an_absent_window_is_unseen(self, truth: Truth) -> None:
        window = max(truth.high)
        plane = self.plane(truth, {w: f for w, f in truth.high.items() if w != window})
        assert plane.unseen == 1
        assert not plane.ok

    def test_an_absent_or_short_window_of_late_events_is_fine(
        self, ledger: Ledger, rows: pa.Table
    ) -> None:
        truth = truth_of(own_records(ledger, rows), ALL, LATENESS, RULE)
        plane = self.plane(truth, truth.low)
        assert plane.ok
        late = compare.late_requests(truth, truth.high, truth.low)
        hours = [w for w in truth.high if w[0] == "1h" and w not in truth.low]
        assert late == sum(truth.high[hour]["requests"] for hour in hours) > 0


def listed(pages: dict[tuple[int, str], int]) -> dict[int, PageList]:
    """Pages that are all counted."""
    lists: dict[int, PageList] = {}
    for (hour, url), views in pages.items():
        lists.setdefault(hour, PageList({})).views[url] = views
    return lists


class TestPages:
    @pytest.mark.parametrize(("by", "wrong"), [(0, 0), (1, 1), (-1, 1)])
    def test_views(self, truth: Truth, by: int, wrong: int) -> None:
        page = max(truth.high_pages)
        plane = Plane("pages")
        seen = truth.high_pages | {page: truth.high_pages[page] + by}
        compare.compare_pages(plane, truth, truth.high_pages, listed(seen))
        assert plane.wrong == wrong
        assert plane.checked == len(seen)
        compare.compare_page_sums(plane, truth, truth.high_pages, listed(seen))
        assert plane.wrong == 2 * wrong

    def test_an_absent_page_is_unseen(self, truth: Truth) -> None:
        plane = Plane("pages")
        seen = dict(truth.high_pages)
        seen.pop(max(seen))
        compare.compare_pages(plane, truth, truth.high_pages, listed(seen))
        assert plane.unseen == 1

    @pytest.mark.parametrize(
        ("views", "error", "other", "kinds"),
        [
            ({"/hot": 50}, 3, 40 + 3, ()),
            ({"/hot": 53}, 3, 40, ()),  # too high by as much as it may be
            ({"/hot": 54}, 3, 39, ("wrong",)),
            ({"/hot": 49}, 3, 44, ("wrong",)),  # too low
            ({"/hot": 50}, 3, 40, ("sum",)),  # three views are nowhere
            ({}, 3, 90, ("unseen",)),
            ({"/hot": 50, "/1": 4}, 3, 42, ()),
            ({"/hot": 50, "/1": 5}, 3, 41, ("wrong",)),
            ({"/hot": 50}, 0, 40, ("unseen",) * 40),  # then all have to be there
        ],
    )
    def test_a_list_of_the_most_viewed(
        self, views: dict[str, int], error: int, other: int, kinds: tuple[str, ...]
    ) -> None:
        pages = {(0, f"/{n}"): 1 for n in range(40)} | {(0, "/hot"): 50}
        truth = Truth({}, {}, pages, pages)
        seen = {0: PageList(views, error, other)}
        plane, sums = Plane("pages"), Plane("sums")
        compare.compare_pages(plane, truth, pages, seen)
        compare.compare_page_sums(sums, truth, pages, seen)
        found = ["wrong"] * plane.wrong + ["unseen"] * plane.unseen + ["sum"] * sums.wrong
        assert found == list(kinds)

    @pytest.mark.parametrize(("views", "ok"), [(50, True), (53, True), (54, False)])
    def test_top_of_a_list_with_an_error(self, views: int, ok: bool) -> None:
        pages = {(0, f"/{n}"): 1 for n in range(40)} | {(0, "/hot"): 50}
        plane = Plane("top")
        truth = Truth({}, {}, pages, pages)
        compare.compare_top(plane, truth, 0, {"/hot": views}, distinct=1, most=9, error=3)
        assert plane.ok == ok

    @pytest.mark.parametrize(
        ("change", "kind"),
        [
            (lambda top, _: top, None),
            (lambda top, best: top | {best: top[best] + 1}, "wrong"),
            (lambda top, best: {k: v for k, v in top.items() if k != best}, "unseen"),
            (lambda top, _: top | {"/invented/": 3}, "wrong"),
        ],
    )
    def test_top(self, truth: Truth, change: Callable, kind: str | None) -> None:
        hour = max(start for start, _ in truth.high_pages)
        views = {url: count for (start, url), count in truth.high_pages.items() if start == hour}
        ranked = sorted(views, key=lambda url: -views[url])[:10]
        top = change({url: views[url] for url in ranked}, ranked[0])
        plane = Plane("top")
        compare.compare_top(plane, truth, hour, top, len(views), most=len(top))
        assert plane.ok == (kind is None)
        if kind:
            assert getattr(plane, kind) == 1

    def test_the_number_of_pages(self, truth: Truth) -> None:
        hour = max(start for start, _ in truth.high_pages)
        views = {url: count for (start, url), count in truth.high_pages.items() if start == hour}
        plane = Plane("top")
        compare.compare_top(plane, truth, hour, views, distinct=1, most=len(views))
        assert plane.wrong == 1


class TestDays:
    day = ("1m", 86_400)

    @pytest.mark.parametrize(
        ("windows", "late", "kind", "count"),
        [
            (90, 10, None, 0),
            (100, 0, None, 0),
            (90, 7, "lost", 3),
            (95, 10, "duplicated", 5),
        ],
    )
    def test_balance(self, windows: int, late: int, kind: str | None, count: int) -> None:
        plane = Plane("days")
        compare.compare_days(plane, {self.day: (100, 100)}, {self.day: windows}, {self.day: late})
        assert plane.ok == (kind is None)
        if kind:
            assert getattr(plane, kind) == count
            assert "1970-01-02" in plane.examples[0]


class TestVisitors:
    @pytest.mark.parametrize(("estimate", "ok"), [(1000, True), (1030, True), (1200, False)])
    def test_only_far_out_is_wrong(self, estimate: int, ok: bool) -> None:
        window = ("1h", 0)
        figures = {window: dict.fromkeys(compare.COUNTS, 0) | {"visitors": 1000}}
        plane = Plane("API")
        seen = {window: compare.Visitors(estimate, 16.0)}
        worst = compare.compare_visitors(plane, Truth(figures, figures, {}, {}), figures, seen)
        assert plane.ok == ok
        assert (worst > compare.SIGMAS) == (not ok)


class TestResultsTopic:
    @given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), max_size=12))
    def test_growing_versions_pass_and_no_others(self, records: list[tuple[str, int]]) -> None:
        plane = Plane("results")
        compare.follow(plane, records)
        versions = {key: [v for k, v in records if k == key] for key in "abc"}
        assert plane.ok == all(v == sorted(set(v)) for v in versions.values())

    def test_repeated_and_backwards_are_told_apart(self) -> None:
        plane = Plane("results")
        compare.follow(plane, [("a", 1), ("a", 2), ("a", 2), ("a", 1), ("b", 1)])
        assert (plane.duplicated, plane.wrong, plane.checked) == (1, 1, 5)
        assert plane.examples == ["duplicated: a version 2 twice", "wrong: a version 1 after 2"]


def test_a_report_is_ok_only_with_nothing_found() -> None:
    planes = [Plane("a", checked=3, late=2), Plane("b", checked=1)]
    assert Report(["run"], 3, 0, 0, planes).ok
    for kind in ("lost", "duplicated", "wrong", "unseen"):
        report = Report(["run"], 3, 0, 0, [*planes, Plane("c", **{kind: 2})])
        assert not report.ok
        assert getattr(report, kind) == 2
        assert report.as_json()["ok"] is False
        assert report.as_json()[kind] == 2


def test_of_deltas_log_only_what_follows_the_last_checkpoint_is_needed() -> None:
    names = [
        *(f"{version:020}.json" for version in range(25)),
        f"{10:020}.checkpoint.parquet",
        f"{20:020}.checkpoint.parquet",
        f"{24:020}.crc",
        "_last_checkpoint",
        "_staged_commits",
    ]
    last = _last_checkpoint(names)
    assert last == 20
    assert sorted(name for name in names if _is_needed(name, last)) == sorted(
        [
            *(f"{version:020}.json" for version in range(20, 25)),
            f"{20:020}.checkpoint.parquet",
            "_last_checkpoint",
        ]
    )


def test_times_before_a_full_second_belong_to_it() -> None:
    times = pa.chunked_array([pa.array([1_999_999], pa.timestamp("us", "UTC"))])
    assert epoch_seconds(times).tolist() == [1]


def test_requests_by_day_take_hours_that_were_not_read_from_the_log(
    ledger: Ledger, rows: pa.Table
) -> None:
    records = own_records(ledger, rows)
    hours = {int(hour) for hour in np.unique(epoch_seconds(records["event_time"]) // 3600 * 3600)}
    archived = {hour // 3600: 10**6 for hour in hours} | {max(hours) // 3600 - 1: 7}
    today = ("1h", max(hours) // 86_400 * 86_400)
    everything = requests_by_day(records, ALL.after, archived, hours)
    late = int(may_be_late(records, 60, LATENESS).sum())
    assert everything[today] == EVENTS - late + 7
    assert sum(requests_by_day(records, np.zeros(3), archived, hours).values()) == 2 * 7


KINDS = ("lost", "extra", "wrong", "excused", "late", "quarantined", "skipped", "excluded", "since")
NONE = dict.fromkeys(KINDS, 0)
ANSWER = {"checked": 9, **NONE, "examples": ["lost: x"]}


@pytest.mark.parametrize(
    ("found", "ok"),
    [
        ({}, True),
        ({"lost": 1}, False),
        ({"wrong": 2}, False),
        ({"extra": 1}, False),
        ({"excused": 2, "late": 2}, True),
        ({"wrong": 1, "excused": 1, "late": 9}, False),  # however many are late elsewhere
        ({"extra": 1, "late": 5}, False),  # nothing that is late adds a row
    ],
)
def test_a_recount_is_exact_but_for_what_came_late(found, ok):
    report = declared.report("sessions", ANSWER | found)
    assert report.ok is ok
    assert bool(report.planes[0].examples) is not ok


def test_what_is_excluded_or_came_after_a_count_is_told_and_no_error():
    report = declared.report("sessions", ANSWER | {"excluded": 3, "since": 2, "late": 1})
    plane = report.planes[0]
    assert (report.ok, plane.excluded, plane.late) == (True, 3, 3)
    assert report.notes == [
        "2 events came after their windows were counted again: `millrace reconcile sessions`"
        " counts them, too"
    ]


def test_a_ledger_says_nothing_of_hours_that_readers_see_another_count_of():
    run._require_the_stream_s([])
    with pytest.raises(
        OperatorError, match="another count of 2 of these hours, from 1970-01-01 01"
    ):
        run._require_the_stream_s([3600, 7200])


def test_the_hours_of_another_count_are_found_in_the_overlay(monkeypatch: pytest.MonkeyPatch):
    hour = datetime(1970, 1, 1, 1, tzinfo=UTC)
    overlay = Overlay().switched(Layer(hour, hour + timedelta(hours=2), 4, 9))
    row = SimpleNamespace(content=overlay.content, revision=overlay.revision)
    tables = Tables(load_plan("local"), None)
    found: list[Any] = [row]
    monkeypatch.setattr(cassandra, "read_each", lambda *_: found)
    assert tables.counted_again([0, 3600, 7200, 10800]) == [3600, 7200]
    found.clear()
    assert tables.counted_again([3600]) == []

    def unknown(*_: Any) -> Any:
        raise InvalidRequest("unconfigured table overlays")

    monkeypatch.setattr(cassandra, "read_each", unknown)  # of before the first deployment
    assert tables.counted_again([3600]) == []


def test_what_is_skipped_is_told_and_neither_right_nor_an_error():
    report = declared.report("sessions", ANSWER | {"skipped": 4})
    assert report.ok
    assert report.planes[0].skipped == 4
    assert report.notes[0].startswith("4 offsets are skipped")


@pytest.mark.parametrize(("unarchived", "ok"), [(8, True), (7, False), (0, False)])
def test_what_the_archive_lacks_can_not_be_counted_again(unarchived, ok):
    report = declared.report("sessions", ANSWER | {"extra": 3, "wrong": 5}, unarchived)
    assert report.ok is ok
    assert (f"({unarchived} are" in " ".join(report.notes)) is ok


def test_a_lost_row_is_not_one_that_the_archive_lacks():
    assert not declared.report("sessions", ANSWER | {"lost": 1}, 1_000).ok


def test_what_the_archive_leaves_out_and_the_job_does_not():
    def of(job: str, partition: int, start: int, end: int) -> Skipped:
        return Skipped(job, "events", partition, start, end, "", "", True, datetime(2026, 1, 1))

    archive = [of("archive", 0, 10, 30), of("archive", 1, 10, 30), of("archive", 1, 40, 41)]
    own = [of("sessions", 1, 0, 15), of("sessions", 1, 25, 35), of("sessions", 1, 40, 41)]
    assert uncovered(archive, []) == 41
    assert uncovered(archive, own) == 20 + 10
    assert uncovered([], own) == 0


def test_an_audit_says_what_the_archive_keeps_from_it():
    assert unarchived_notes(0) == []
    [note] = unarchived_notes(9502)
    assert "leave out 9502 records that were counted" in note


def test_what_is_quarantined_is_told_and_no_error():
    report = declared.report("sessions", ANSWER | {"quarantined": 3})
    assert report.ok
    assert report.notes[0].startswith("3 records are quarantined")


def test_a_recount_that_failed_is_told():
    with pytest.raises(OperatorError, match="no archive"):
        declared.report("sessions", {"error": "no archive"})


def test_records_of_declared_jobs_are_told_from_the_traffic_jobs() -> None:
    start = datetime(2026, 1, 1)
    output = Output(
        "test", "job_test", "A test.", 60, 60, 0, None, {"url": "string"}, {}, {}, 1, 1, []
    )
    declared_record = output.record({"window_start": start, "url": "/"}, 1)
    hour = SimpleNamespace(window="1h", window_start=start, window_end=start)
    assert run.is_declared(declared_record)
    assert not run.is_declared(page_record(hour, "/", 1, 1))
    assert not run.is_declared(list_record(hour, jobs_pages.PageList({}, 0, 0, 1), 1))


def test_of_the_results_topic_a_list_has_what_is_not_older_than_it() -> None:
    hour = SimpleNamespace(
        window="1h", window_start=datetime(1970, 1, 1), window_end=datetime(1970, 1, 1, 1)
    )
    written = jobs_pages.Written(3600)
    stream = []
    for version, (views, error) in enumerate([({"/": 1, "/a": 1}, 0), ({"/a": 9}, 2)]):
        pages, changed = written.change(hour.window_start, views, error, 20, version)
        stream += [page_record(hour, url, n, version) for url, n in changed.items()]
        stream.append(list_record(hour, pages, version))
    _, lists = run._last(stream)
    assert lists == {0: PageList({"/a": 9}, error=2, other=13)}
    assert lists[0].page_views == 20


def test_the_results_topic_needs_no_word_of_what_only_others_counted() -> None:
    """A run's events that are too late for an hour change nothing in it, and so tell nothing."""
    figures = dict.fromkeys(("requests", "page_views", "bytes", *STATUS_CLASSES), 0)
    others, late, ours = figures | {"requests": 7}, figures | {"requests": 3}, ("1h", 3600)
    hour = ("1h", 0)
    high = {hour: figures | {"requests": 10}, ours: others}
    truth = Truth({hour: others, ours: others}, high, {}, {})
    own = Truth({ours: others}, {hour: late, ours: others}, {}, {})
    plane = run._results_plane(truth, own, [], {hour, ours})
    assert plane.unseen == 1  # the hour that the run surely changed
    assert plane.late == 3 + 7
