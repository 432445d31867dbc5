"""traffic: events by window into Cassandra, the results topic and the live stream."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row

from millrace_jobs.inputs import sources
from millrace_jobs.inputs.checkpoint import Offsets
from millrace_jobs.programs.pages import PageList, Written
from millrace_jobs.query.context import JobContext
from millrace_jobs.query.job import MicroBatches, results_of
from millrace_jobs.query.late_events import LateEvents
from millrace_jobs.settings import TrafficSettings
from millrace_jobs.sinks.batch_commit import Effects, commit
from millrace_jobs.sinks.cassandra import Tables
from millrace_jobs.sinks.live import LiveStream
from millrace_jobs.sinks.results import Results
from millrace_jobs.transforms import parse
from millrace_jobs.transforms.traffic import (
    LATE_FOR,
    PAGE_WINDOW,
    STATUS_CLASSES,
    PageViewRule,
    Sketches,
    page_error,
    traffic,
)
from millrace_shared.generations import STREAM, hour_of, window_of

COUNTS = ("requests", "page_views", "bytes", *(f"status_{name}" for name in STATUS_CLASSES))
TRAFFIC_COLUMNS = ("window", "bucket", "window_start", *COUNTS, "visitors", "version")
PAGES_COLUMNS = ("bucket", "url", "page_views", "version")
LISTS_COLUMNS = ("bucket", "error", "other", "since", "version")


class Traffic(MicroBatches):
    """The job that counts all traffic by window, and page views by page and hour."""

    output_mode = "update"

    def __init__(
        self, context: JobContext, results: Results | None = None, live: LiveStream | None = None
    ) -> None:
        """
        Args:
            results, live: by default those that the configuration names.
        """
        self._context = context
        self._results = results or results_of(context)
        self._live = live or LiveStream(context.config)
        self._settings = context.settings.as_kind(TrafficSettings)
        self._written = Written(self._settings.watermark_seconds)
        self.late_events = LateEvents(context, LATE_FOR)

    def frame(self, max_offsets: int | None = None) -> DataFrame:
        """The query's rows; in batches of ``max_offsets`` records, or as it starts with."""
        context, settings = self._context, self._settings
        most = context.least_offsets if max_offsets is None else max_offsets
        records = sources.stream(
            *(context.spark, context.config.kafka, context.stream.topic, context.settings, most),
            behind=context.skipped if max_offsets else (),
        )
        classified = records.transform(parse.classify, context.stream)
        return parse.valid(classified, context.stream).transform(
            traffic,
            PageViewRule.of(settings),
            settings.watermark_seconds,
            Sketches.of(settings),
            settings.tasks,
        )

    def rehearse(self, frame: DataFrame, batch: int, scratch: str) -> None:
        """Collect the batch, and make connections and statements ready that ``write`` needs."""
        frame.collect()
        self._results.connect()
        self._context.tables.prepare("traffic", TRAFFIC_COLUMNS)
        self._context.tables.prepare("pages", PAGES_COLUMNS)
        self._context.tables.prepare("page_lists", LISTS_COLUMNS)

    def on_lead(self) -> None:
        self._written.forget()
        self._results.take_over()

    def write(self, frame: DataFrame, batch: int) -> None:
        """Collects: a batch has a row for each window that it touched, with so many pages at most
        as are tracked."""
        windows = sorted(frame.collect(), key=lambda row: row.window_start)
        identity = self._context.identify(batch)
        version = identity.version
        updates = [window_record(row, version) for row in windows]

        def prepare() -> Effects:
            hours = [row for row in windows if row.window == PAGE_WINDOW]
            lists = {row.window_start: self._change(row, version) for row in hours}
            records = [*updates, *_page_records(hours, lists, version)]
            return Effects(records, lambda: store(self._context.tables, windows, lists, version))

        if not commit(identity, self._results, self._context.lease.confirm, prepare):
            self._written.forget()  # what was published then may have been another list
        self._live.announce(updates)

    def tell_position(self, batch: int, read: Offsets) -> None:
        self._results.tell_position(self._context.checkpoint.query_id() or "", batch, read)

    def _change(self, hour: Row, version: int) -> "Change":
        views = {page["item"]: page["count"] for page in hour.pages}
        error = page_error(hour.pages_error)
        return self._written.change(hour.window_start, views, error, hour.page_views, version)


Change = tuple[PageList, dict[str, int]]
Changes = dict[datetime, Change]  # by hour


def store(
    tables: Tables, windows: list[Row], lists: Changes, version: int, generation: int = STREAM
) -> None:
    totals = [_traffic(row, version, generation) for row in windows]
    tables.upsert("traffic", TRAFFIC_COLUMNS, totals, version, partition_columns=2)
    tables.upsert("pages", PAGES_COLUMNS, list(_pages(lists, version, generation)), version)
    # After its rows: before them, they would be older than it.
    tables.upsert("page_lists", LISTS_COLUMNS, list(_lists(lists, version, generation)), version)


def _traffic(row: Row, version: int, generation: int) -> tuple[Any, ...]:
    counts = (row[name] for name in COUNTS)
    start, window = row.window_start, window_of(row.window, generation)
    return (window, start.date(), start, *counts, bytes(row.visitors), version)


def _pages(lists: Changes, version: int, generation: int) -> Iterator[tuple[Any, ...]]:
    for hour, (_, changed) in lists.items():
        bucket = hour_of(hour, generation)
        yield from ((bucket, url, views, version) for url, views in changed.items())


def _lists(lists: Changes, version: int, generation: int) -> Iterator[tuple[Any, ...]]:
    for hour, (one, _) in lists.items():
        yield (hour_of(hour, generation), one.error, one.other, one.since, version)


def _page_records(hours: list[Row], lists: Changes, version: int) -> Iterator[dict[str, Any]]:
    """Of each hour what has changed, and then its list."""
    for hour in hours:
        one, changed = lists[hour.window_start]
        for url, views in changed.items():
            yield page_record(hour, url, views, version)
        yield list_record(hour, one, version)


def window_record(row: Row, version: int) -> dict[str, Any]:
    """A window in the results topic and the live stream: the whole value, so the last one wins."""
    start = _iso(row.window_start)
    return {
        "key": f"traffic|{row.window}|{start}",
        "window": row.window,
        "start": start,
        "end": _iso(row.window_end),
        "requests": row.requests,
        "page_views": row.page_views,
        "bytes": row.bytes,
        "status": {name: row[f"status_{name}"] for name in STATUS_CLASSES},
        "unique_visitors": {"estimate": row.visitors_estimate},
        "version": version,
    }


def page_record(hour: Row, url: str, views: int, version: int) -> dict[str, Any]:
    return _of_hour("pages", hour, url) | {"url": url, "page_views": views, "version": version}


def list_record(hour: Row, pages: PageList, version: int) -> dict[str, Any]:
    """What is true of all the hour's page records from ``since`` on; others are in it no more."""
    said = {"error": pages.error, "other": pages.other, "since": pages.since}
    return _of_hour("page_lists", hour) | said | {"version": version}


def _of_hour(what: str, hour: Row, *names: str) -> dict[str, Any]:
    start = _iso(hour.window_start)
    return {
        "key": "|".join((what, hour.window, start, *names)),
        "window": hour.window,
        "start": start,
        "end": _iso(hour.window_end),
    }


def _iso(time: datetime) -> str:
    return time.replace(tzinfo=UTC).isoformat().replace("+00:00", "Z")
