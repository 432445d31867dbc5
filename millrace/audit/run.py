"""Reads every plane, in an order in which they can be compared, and has them compared."""

import json
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.audit import compare, topics
from millrace.audit.answers import TOP_PAGES, Answers, ask, figures
from millrace.audit.archive import EMPTY, Archive
from millrace.audit.page_views import PageViewRule
from millrace.audit.positions import Positions
from millrace.audit.records import foreign_records, of_run, own_records
from millrace.audit.report import Plane, Report
from millrace.audit.skipped import unarchived_notes, uncovered, without
from millrace.audit.tables import Tables
from millrace.audit.truth import (
    DAY,
    SIZES,
    Cut,
    Figures,
    Lateness,
    Page,
    PageList,
    Truth,
    Window,
    day_of,
    epoch_seconds,
    requests_by_day,
    truth_of,
)
from millrace.cluster import cassandra, kafka
from millrace.cluster.hdfs import Hdfs
from millrace.cluster.insight_api import InsightApi
from millrace.cluster.kafka import Message
from millrace.cluster.skips import Skipped, skipped
from millrace.common.errors import OperatorError
from millrace.ledger.store import Ledger
from millrace.plan import Plan

HOUR = SIZES["1h"]


@dataclass(frozen=True)
class Stored:
    """What Cassandra has of some days, and of some hours."""

    windows: dict[Window, Figures]
    pages: dict[int, PageList]
    late: dict[Window, int]


def audit(plan: Plan, paths: Sequence[Path | str], wait: float = 120.0) -> Report:
    """Compares the runs of these ledgers with archive, Cassandra, API and results topic.

    Args:
        wait: seconds that the jobs are given to take in what they have not yet.

    Raises OperatorError when a plane can't be read, or the jobs don't get there.
    """
    ledgers = [_opened(path, plan) for path in paths]
    hours = sorted(set().union(*map(_hours_of, ledgers)))
    days = sorted({day_of(hour) for hour in hours})
    dates = [day // DAY for day in days]
    deadline = time.monotonic() + wait
    hdfs = Hdfs(plan)
    positions = Positions(plan, hdfs)
    with cassandra.reading(plan) as session:
        _require_the_stream_s(Tables(plan, session).counted_again(hours))

    stream = plan.spark.settings.common.stream
    positions.wait_for_archive(stream, positions.event_ends(), deadline)
    early = Archive.newest(hdfs, plan).rows_by_hour(dates)
    before = positions.event_ends()
    positions.wait_for(kafka.JOB, {stream: before}, deadline)
    with cassandra.reading(plan) as session:
        stored = _stored(Tables(plan, session), days, hours)
    answers = ask(InsightApi(plan), hours)
    results = _read_results(plan, ledgers, positions)
    after = positions.event_ends()
    positions.wait_for_archive(stream, after, deadline)

    archive = Archive.newest(hdfs, plan)
    rows = archive.read({hour // HOUR for hour in hours})
    own = pa.concat_tables([own_records(ledger, rows) for ledger in ledgers])
    foreign = foreign_records(ledgers, rows)
    skips = skipped(plan, [plan.spark.settings.archive_job(stream), kafka.JOB])
    by_job = {job: [one for one in skips if one.job == job] for job in {s.job for s in skips}}
    not_archived = by_job.get(plan.spark.settings.archive_job(stream), [])
    own, own_skipped = without(own, by_job.get(kafka.JOB, []))
    foreign, foreign_skipped = without(foreign, by_job.get(kafka.JOB, []))
    records = pa.concat_tables([own, foreign])
    cut = Cut(before, after)
    lateness, rule = _lateness(plan), PageViewRule.of(plan)
    truth = truth_of(records, cut, lateness, rule)
    low = requests_by_day(records, cut.before, early, hours)
    high = requests_by_day(records, cut.after, archive.rows_by_hour(dates), hours)
    days_truth = {day: (low[day], high[day]) for day in high}

    windows, pages = _touched(truth, own)
    api, worst = _api_plane(truth, answers, windows)
    planes = [
        _archive_plane(ledgers, rows, not_archived),
        *_stored_planes(truth, days_truth, stored, windows, pages),
        api,
        _results_plane(truth, truth_of(own, cut, lateness, rule), results, windows),
    ]
    for plane in planes[1:]:
        plane.skipped = own_skipped + foreign_skipped
    events = len(own) + own_skipped
    doubtful = events - sum(int(ledger.acked.sum()) for ledger in ledgers)
    names = [ledger.spec.run for ledger in ledgers]
    notes = [f"unique visitors: the worst estimate is {worst:.1f} σ off"]
    notes += unarchived_notes(uncovered(not_archived, by_job.get(kafka.JOB, [])))
    return Report(names, events, doubtful, len(foreign) + foreign_skipped, planes, notes)


def audit_topic(plan: Plan, path: Path | str) -> Report:
    """Compares a run with the topic that it was sent to: all that there is of a topic of its own.

    Raises OperatorError when the topic can't be read.
    """
    ledger = Ledger.open(path)
    spec = ledger.spec
    ends = Positions(plan, Hdfs(plan)).ends(spec.topic, spec.partitions)
    records = topics.read(plan, spec.topic, np.zeros(spec.partitions, np.int64), ends)
    rows = of_run(ledger, _as_table(records))
    plane = Plane(f"topic {spec.topic}")
    compare.compare_records(plane, ledger, rows)
    doubtful = len(rows) - int(ledger.acked.sum()) + plane.lost - plane.duplicated
    return Report([spec.run], plane.checked, doubtful, 0, [plane])


def _stored(tables: Tables, days: list[int], hours: list[int]) -> Stored:
    return Stored(tables.windows(days), tables.pages(hours), tables.late(days))


def _opened(path: Path | str, plan: Plan) -> Ledger:
    ledger = Ledger.open(path)
    if ledger.spec.cluster != plan.cluster:
        raise OperatorError(f"run {ledger.spec.run} was on cluster {ledger.spec.cluster}")
    if ledger.spec.topic != plan.names.kafka.topics.events:
        raise OperatorError(f"run {ledger.spec.run} went to topic {ledger.spec.topic}")
    if not len(ledger.acked):
        raise OperatorError(f"run {ledger.spec.run} has no events: there is nothing to audit")
    return ledger


def _require_the_stream_s(counted_again: Sequence[int]) -> None:
    """A ledger knows what was sent, and not what an operator excluded since."""
    if counted_again:
        first = datetime.fromtimestamp(counted_again[0], UTC)
        raise OperatorError(
            f"readers see another count of {len(counted_again)} of these hours, from {first} on"
            " (`millrace reconcile traffic`)",
            "`millrace audit --job traffic` with --from and --to holds that to a recount",
        )


def _hours_of(ledger: Ledger) -> set[int]:
    """Starts of the hours in which a run may have events."""
    times = epoch_seconds(ledger.events(np.arange(len(ledger.acked)))["event_time"])
    return set(np.unique(times // HOUR * HOUR).tolist())


def _lateness(plan: Plan) -> Lateness:
    settings = plan.spark.settings
    ahead = plan.streams[settings.common.stream].ahead_seconds
    return Lateness(settings.traffic.watermark_seconds, ahead)


def _touched(truth: Truth, own: pa.Table) -> tuple[set[Window], set[Page]]:
    """The windows and pages that the runs have events in."""
    times = epoch_seconds(own["event_time"])
    starts = {
        (size, start)
        for size, seconds in SIZES.items()
        for start in np.unique(times // seconds * seconds).tolist()
    }
    return starts & truth.high.keys(), {
        page for page in truth.high_pages if ("1h", page[0]) in starts
    }


def _archive_plane(
    ledgers: Iterable[Ledger], rows: pa.Table, skipped: Collection[Skipped]
) -> Plane:
    plane = Plane("archive, events")
    for ledger in ledgers:
        compare.compare_records(plane, ledger, of_run(ledger, rows), skipped)
    return plane


def _stored_planes(
    truth: Truth,
    days_truth: dict[Window, tuple[int, int]],
    stored: Stored,
    windows: set[Window],
    pages: set[Page],
) -> list[Plane]:
    by_window, by_page, by_day = (
        Plane("Cassandra, windows"),
        Plane("Cassandra, pages"),
        Plane("Cassandra, days with late events"),
    )
    compare.compare_windows(by_window, truth, windows, stored.windows)
    by_window.late = compare.late_requests(truth, windows, stored.windows)
    compare.compare_pages(by_page, truth, pages, stored.pages)
    compare.compare_page_sums(by_page, truth, pages, stored.pages)
    counted: dict[Window, int] = {}
    for (size, start), found in stored.windows.items():
        day = size, day_of(start)
        counted[day] = counted.get(day, 0) + found["requests"]
    compare.compare_days(by_day, days_truth, counted, stored.late)
    return [by_window, by_page, by_day]


def _api_plane(truth: Truth, answers: Answers, windows: set[Window]) -> tuple[Plane, float]:
    """Returns the API's plane, and the worst error of an estimate in standard deviations."""
    plane = Plane("API")
    compare.compare_windows(plane, truth, windows, answers.windows)
    plane.late = compare.late_requests(truth, windows, answers.windows)
    worst = compare.compare_visitors(plane, truth, windows, answers.visitors)
    for hour, top in answers.top.items():
        distinct, error = answers.distinct[hour], answers.errors[hour]
        compare.compare_top(plane, truth, hour, top, distinct, TOP_PAGES, error)
    return plane, worst


def _results_plane(
    truth: Truth, own: Truth, stream: list[dict[str, Any]], windows: set[Window]
) -> Plane:
    """``own`` is the truth of the runs' events alone: what they surely changed has a record. Of
    windows and pages that others filled, the topic told before the runs began; what the runs sent
    too late changes none."""
    plane = Plane("results topic")
    # Of every job with rows: each change of one comes once, in the order of its versions. What jobs
    # in real time send has none, and may come again.
    versioned = (record for record in stream if "version" in record)
    compare.follow(plane, ((record["key"], record["version"]) for record in versioned))
    last_windows, last_pages = _last(record for record in stream if not is_declared(record))
    told = windows & (own.low.keys() | last_windows.keys())
    compare.compare_windows(plane, truth, told, last_windows)
    plane.late = compare.late_requests(truth, told, last_windows)
    plane.late += compare.late_requests(own, own.high.keys() - told, {})
    compare.compare_pages(plane, truth, own.low_pages.keys(), last_pages)
    return plane


def _read_results(
    plan: Plan, ledgers: Iterable[Ledger], positions: Positions
) -> list[dict[str, Any]]:
    """Returns what the results topic got since the first of the runs began."""
    starts = np.min([ledger.spec.results_offsets for ledger in ledgers], axis=0)
    topic = plan.names.kafka.topics.results
    ends = positions.ends(topic, len(starts))
    return [json.loads(record.value()) for record in topics.read(plan, topic, starts, ends)]


def _as_table(records: Iterable[Message]) -> pa.Table:
    """Returns the records of a run's topic as events."""
    columns: dict[str, list[Any]] = {name: [] for name in EMPTY.column_names}
    for record in records:
        event = json.loads(record.value())
        event |= {
            "event_time": datetime.fromisoformat(event["event_time"]),
            "partition": record.partition(),
            "offset": record.offset(),
            "timestamp": datetime.fromtimestamp(record.timestamp()[1] / 1000, UTC),
        }
        for name, values in columns.items():
            values.append(event[name])
    return pa.table(columns, EMPTY.schema)


def is_declared(record: dict[str, Any]) -> bool:
    """Returns whether a job is one of one file, whose rows `audit.declared` compares; the traffic
    job names no job."""
    return "job" in record


def _last(stream: Iterable[dict[str, Any]]) -> tuple[dict[Window, Figures], dict[int, PageList]]:
    """The newest value of each window, and the newest list of each hour's pages."""
    windows: dict[Window, Figures] = {}
    pages: dict[Page, dict[str, Any]] = {}
    lists: dict[int, dict[str, Any]] = {}
    for record in stream:
        start = round(datetime.fromisoformat(record["start"]).timestamp())
        if "url" in record:
            pages[start, record["url"]] = record
        elif "since" in record:
            lists[start] = record
        else:
            windows[record["window"], start] = figures(record)
    views: dict[int, dict[str, int]] = {hour: {} for hour in lists}
    for (hour, url), page in pages.items():
        if hour in lists and page["version"] >= lists[hour]["since"]:
            views[hour][url] = page["page_views"]
    return windows, {
        hour: PageList(views[hour], one["error"], one["other"]) for hour, one in lists.items()
    }
