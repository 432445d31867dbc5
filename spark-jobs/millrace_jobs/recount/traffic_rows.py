"""The rows of the traffic job, as what can be counted again: windows, and the pages of hours."""

import math
from collections.abc import Collection, Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any

from pyspark.sql import Row
from pyspark.sql import functions as F

from millrace_jobs.programs.pages import PageList
from millrace_jobs.programs.traffic import (
    COUNTS,
    list_record,
    page_record,
    store,
    window_record,
)
from millrace_jobs.quarantine.search import Skip
from millrace_jobs.query.context import StoredContext
from millrace_jobs.query.skips import ranges_of
from millrace_jobs.recount.comparison import Findings, named
from millrace_jobs.recount.counted import Difference, Record, floor
from millrace_jobs.recount.generations import Seen, Terms
from millrace_jobs.recount.rows import days, unskipped
from millrace_jobs.settings import TrafficSettings
from millrace_jobs.sinks import archive
from millrace_jobs.transforms.traffic import (
    PAGE_WINDOW,
    WINDOWS,
    PageViewRule,
    Sketches,
    page_error,
    traffic,
)
from millrace_shared.generations import STREAM, TRAFFIC, hour_of, window_of
from millrace_shared.progress import tell

HOUR = timedelta(hours=1)
ESTIMATE = "visitors"
Name = tuple[Any, ...]  # a window's size and start; a page's, and the page; an hour's list
Values = Mapping[Name, Mapping[str, Any]]
PAGE, LIST = "page", "pages"


class TrafficRows:
    """`Counted` for the job that counts all traffic: hours, with their minutes and pages."""

    rows = TRAFFIC
    grid = step = HOUR

    def __init__(self, context: StoredContext) -> None:
        self.context = context
        self._settings = context.settings.as_kind(TrafficSettings)
        # Of one estimate; two differ by three of each.
        self._error = 1.04 / math.sqrt(2**self._settings.hll_lg_k)

    def closed_before(self, watermark: datetime) -> datetime:
        return floor(watermark, HOUR)

    def count(
        self,
        start: datetime,
        end: datetime,
        terms: Terms,
        skips: Collection[Skip],
        generation: int,
        version: int,
    ) -> int:
        windows = self._computed(start, end, terms)
        lists = {row.window_start: _pages_of(row, version) for row in windows if _has_pages(row)}
        store(self.context.tables, windows, lists, version, generation)
        return len(windows) + sum(len(views) for _, views in lists.values())

    def audit(self, part: Seen, terms: Terms, skips: Collection[Skip]) -> Findings:
        """What is late is missing from the stream's rows alone. It is known by day."""
        late = self._late(part) if part.generation == STREAM else {}
        findings = Findings(late=sum(late.values()))
        at = part.start
        while at < part.end:
            following = min(at + HOUR, part.end)
            truth = self._values(self._computed(at, following, terms))
            found = self._stored(at, following, part.generation)
            for name in truth.keys() | found.keys():
                findings.checked += name in truth
                columns = self._differing(truth.get(name), found.get(name))
                if columns and name[1].date() in late:
                    findings.excused += 1
                elif columns and name not in found:
                    findings.note("lost", named(name))
                elif columns:
                    kind = "wrong" if name in truth else "extra"
                    findings.note(kind, f"{named(name)}: {columns}")
            at = following
            tell(f"windows to {at} UTC of {part.end}: {findings.checked:,} rows")
        return findings

    def differences(
        self, start: datetime, end: datetime, before: int, after: int
    ) -> Iterator[Difference]:
        for first, last in _by_day(start, end):
            one, other = (self._stored(first, last, number) for number in (before, after))
            for name in sorted(one.keys() | other.keys(), key=str):
                if columns := self._differing(one.get(name), other.get(name)):
                    measures = COUNTS if name[0] == PAGE_WINDOW else ()  # minutes say it again
                    yield Difference(named(name), one.get(name), other.get(name), columns, measures)

    def records(
        self, start: datetime, end: datetime, before: int, after: int, version: int
    ) -> Iterator[Record]:
        """Of an hour whose pages differ all are told, with their list: no other is in it."""
        for first, last in _by_day(start, end):
            one, other = (self._stored(first, last, number) for number in (before, after))
            differ = [
                name
                for name in sorted(one.keys() | other.keys(), key=str)
                if self._differing(one.get(name), other.get(name))
            ]
            for name in differ:
                if name[0] in WINDOWS:
                    yield _window_record(name, other.get(name), version) | {"generation": after}
            for hour in sorted({name[1] for name in differ if name[0] in (PAGE, LIST)}):
                for record in _page_records(hour, other, version):
                    yield record | {"generation": after}

    def _computed(self, start: datetime, end: datetime, terms: Terms) -> list[Row]:
        context, stream, settings = self.context, self.context.stream, self._settings
        session = context.spark.newSession()
        archived = archive.read(session, context.config.archive_of(stream), stream, start, end)
        events = terms.of(unskipped(archived, stream.topic, ranges_of(context)), stream.topic)
        counted = events.transform(
            traffic,
            PageViewRule.of(settings),
            settings.watermark_seconds,
            Sketches.of(settings),
            settings.tasks,
        )
        return counted.collect()

    def _values(self, windows: Collection[Row]) -> Values:
        found: dict[Name, Mapping[str, Any]] = {}
        for row in windows:
            values = {name: row[name] for name in COUNTS} | {ESTIMATE: row.visitors_estimate}
            found[row.window, row.window_start] = values
            if _has_pages(row):
                one, views = _pages_of(row, 0)
                found |= _of_hour(row.window_start, views, one.error, one.other)
        return found

    def _stored(self, start: datetime, end: datetime, generation: int) -> Values:
        tables = self.context.tables
        query = (
            f"SELECT window_start, {', '.join(COUNTS)}, visitors FROM {{keyspace}}.traffic"
            " WHERE window = ? AND bucket = ? AND window_start >= ? AND window_start < ?"
        )
        windows = {
            (size, row.window_start): row
            for size in WINDOWS
            for day in days(start, end)
            for row in tables.select(query, (window_of(size, generation), day, start, end))
        }
        estimates = self._estimates({name: row.visitors for name, row in windows.items()})
        found: dict[Name, Mapping[str, Any]] = {
            name: {count: getattr(row, count) for count in COUNTS} | {ESTIMATE: estimates[name]}
            for name, row in windows.items()
        }
        hour = start
        while hour < end:
            found |= self._stored_pages(hour, generation)
            hour += HOUR
        return found

    def _stored_pages(self, hour: datetime, generation: int) -> Values:
        """As the API reads them: the list first, and of rows those that are in it."""
        tables, key = self.context.tables, (hour_of(hour, generation),)
        one = tables.select_one(
            "SELECT error, other, since FROM {keyspace}.page_lists WHERE bucket = ?", key
        )
        query = "SELECT url, page_views, version FROM {keyspace}.pages WHERE bucket = ?"
        since = one.since if one else 0
        views = {r.url: r.page_views for r in tables.select(query, key) if r.version >= since}
        if one is None and not views:
            return {}
        return _of_hour(hour, views, one.error if one else 0, one.other if one else 0)

    def _estimates(self, sketches: Mapping[Name, bytes | None]) -> dict[Name, int]:
        names = [name for name, sketch in sketches.items() if sketch]
        found: dict[Name, int] = dict.fromkeys(sketches, 0)
        if names:
            rows = [(number, bytearray(sketches[name] or b"")) for number, name in enumerate(names)]
            frame = self.context.spark.createDataFrame(rows, "number int, sketch binary")
            estimate = F.hll_sketch_estimate("sketch").alias("estimate")
            for row in frame.select("number", estimate).collect():
                found[names[row.number]] = row.estimate
        return found

    def _differing(self, one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str:
        if one is None or other is None:
            return "" if one is other else "all"
        return ", ".join(
            f"{column} {value} ≠ {other[column]}"
            for column, value in one.items()
            if not self._same(column, value, other[column])
        )

    def _same(self, column: str, one: Any, other: Any) -> bool:
        if column == ESTIMATE:
            return math.isclose(one, other, rel_tol=6 * self._error)
        return bool(one == other)

    def _late(self, part: Seen) -> dict[date, int]:
        query = "SELECT window, job, events FROM {keyspace}.late_events WHERE bucket = ?"
        found = {
            day: sum(
                row.events
                for row in self.context.tables.select(query, (day,))
                if (row.window, row.job) == (PAGE_WINDOW, self.context.job)
            )
            for day in days(part.start, part.end)
        }
        return {day: events for day, events in found.items() if events}


def _has_pages(row: Row) -> bool:
    return bool(row.window == PAGE_WINDOW)


def _pages_of(row: Row, version: int) -> tuple[PageList, dict[str, int]]:
    """The whole list of an hour, and its pages."""
    views = {page["item"]: page["count"] for page in row.pages}
    return PageList.of(views, page_error(row.pages_error), row.page_views, version), views


def _of_hour(hour: datetime, views: Mapping[str, int], error: int, other: int) -> Values:
    pages = {(PAGE, hour, url): {"page_views": count} for url, count in views.items()}
    return {(LIST, hour): {"error": error, "other": other}} | pages


def _window_record(name: Name, values: Mapping[str, Any] | None, version: int) -> Record:
    """One that isn't there any more counts nothing, and says that it is gone."""
    size, start = name
    _, seconds = WINDOWS[size]
    counts = values or dict.fromkeys((*COUNTS, ESTIMATE), 0)
    row = Row(
        window=size,
        window_start=start,
        window_end=start + timedelta(seconds=seconds),
        visitors_estimate=counts[ESTIMATE],
        **{count: counts[count] for count in COUNTS},
    )
    return window_record(row, version) | ({} if values else {"gone": True})


def _page_records(hour: datetime, found: Values, version: int) -> Iterator[Record]:
    row = Row(window=PAGE_WINDOW, window_start=hour, window_end=hour + HOUR)
    views = {name[2]: one["page_views"] for name, one in found.items() if name[:2] == (PAGE, hour)}
    for url, count in views.items():
        yield page_record(row, url, count, version)
    said = found.get((LIST, hour), {"error": 0, "other": 0})
    yield list_record(row, PageList(views, said["error"], said["other"], version), version)


def _by_day(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    while start < end:
        following = min(floor(start, timedelta(days=1)) + timedelta(days=1), end)
        yield start, following
        start = following
