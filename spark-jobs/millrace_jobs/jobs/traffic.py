"""traffic: events by window into Cassandra, the results topic and the live stream."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row

from millrace_jobs import sources
from millrace_jobs.context import JobContext
from millrace_jobs.late import LateEvents
from millrace_jobs.sinks.live import LiveStream
from millrace_jobs.sinks.results import Results
from millrace_jobs.transforms import parse
from millrace_jobs.transforms.traffic import STATUS_CLASSES, WINDOW_SECONDS, PageViewRule, traffic

COUNTS = ("requests", "page_views", "bytes", *(f"status_{name}" for name in STATUS_CLASSES))
TRAFFIC_COLUMNS = ("window", "bucket", "window_start", *COUNTS, "visitors", "version")
PAGES_COLUMNS = ("bucket", "url", "page_views", "version")


class Traffic:
    """``write`` is the query's sink: each of its writes is idempotent or knows what it did."""

    output_mode = "update"

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._results = Results(
            context.config.kafka,
            context.config.names.kafka,
            context.job,
            context.settings,
            context.lease.verify,
        )
        self._live = LiveStream(context.config)
        self.late_events = LateEvents(context, WINDOW_SECONDS)

    def frame(self, max_offsets: int) -> DataFrame:
        context, settings = self._context, self._context.settings
        records = sources.stream(
            context.spark, context.config.kafka, context.stream.topic, settings, max_offsets
        )
        classified = records.transform(parse.classify, context.stream)
        return parse.valid(classified, context.stream).transform(
            traffic,
            PageViewRule.of(settings),
            settings["watermark_seconds"],
            settings["hll_lg_k"],
        )

    def rehearse(self, frame: DataFrame) -> None:
        """Everything that ``write`` does, short of writing."""
        frame.collect()
        self._results.connect()
        self._context.tables.prepare("traffic", TRAFFIC_COLUMNS)
        self._context.tables.prepare("pages", PAGES_COLUMNS)

    def lead(self) -> None:
        self._results.take_over()

    def write(self, frame: DataFrame, batch: int) -> None:
        """Collects: a batch has at most one row for each window and page that it touched."""
        rows = sorted(frame.collect(), key=lambda row: row.window_start)
        windows = [row for row in rows if row.url is None]
        pages = [row for row in rows if row.url is not None]
        version = self._context.version(batch)
        tables = self._context.tables
        checkpoint, read = self._context.checkpoint_id(), self._context.checkpoint.batch(batch).end
        self._results.check(checkpoint, batch, read)
        self._context.lease.confirm()
        totals = [_traffic(row, version) for row in windows]
        tables.upsert("traffic", TRAFFIC_COLUMNS, totals, version, partition_columns=2)
        tables.upsert("pages", PAGES_COLUMNS, [_page(r, version) for r in pages], version)
        updates = [window_record(row, version) for row in windows]
        self._context.lease.confirm()
        records = [*updates, *(page_record(row, version) for row in pages)]
        self._results.publish(checkpoint, batch, read, records)
        self._live.announce(updates)


def _traffic(row: Row, version: int) -> tuple[Any, ...]:
    counts = (row[name] for name in COUNTS)
    start = row.window_start
    return (row.window, start.date(), start, *counts, bytes(row.visitors), version)


def _page(row: Row, version: int) -> tuple[Any, ...]:
    return (row.window_start, row.url, row.page_views, version)


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


def page_record(row: Row, version: int) -> dict[str, Any]:
    start = _iso(row.window_start)
    return {
        "key": f"pages|{row.window}|{start}|{row.url}",
        "window": row.window,
        "start": start,
        "end": _iso(row.window_end),
        "url": row.url,
        "page_views": row.page_views,
        "version": version,
    }


def _iso(time: datetime) -> str:
    return time.replace(tzinfo=UTC).isoformat().replace("+00:00", "Z")
