"""Sabotage: windows grow by increments. Each batch adds what it brings to what is stored.

While nothing dies the figures are right. A batch that runs again adds a second time.
"""

import time
from types import SimpleNamespace
from typing import Any

from millrace_jobs.inputs import sources
from millrace_jobs.programs.traffic import COUNTS, Traffic
from millrace_jobs.settings import TrafficSettings
from millrace_jobs.sinks.results import Results
from millrace_jobs.transforms import parse
from millrace_jobs.transforms.traffic import PageViewRule, Sketches, traffic
from pyspark.sql import DataFrame, Row

DYING_TIME = 4.0  # s, between a batch's first writes and its end
STORED = (
    f"SELECT {', '.join(COUNTS)} FROM {{keyspace}}.traffic"
    " WHERE window = ? AND bucket = ? AND window_start = ?"
)

write_whole_values = Traffic.write
publish_at_once = Results.publish


def write(self: Traffic, frame: DataFrame, batch: int) -> None:
    brought = {(row.window, row.window_start): row for row in brought_by(self, batch)}
    rows = [incremented(self, row, brought) for row in frame.collect()]
    write_whole_values(self, SimpleNamespace(collect=lambda: rows), batch)


def brought_by(job: Traffic, batch: int) -> list[Row]:
    """The windows of a batch's own records."""
    context = job._context
    settings = context.settings.as_kind(TrafficSettings)
    read = context.checkpoint.batch(batch)
    records = sources.records(
        context.spark, context.config.kafka, context.stream.topic, settings, read
    )
    events = parse.valid(records.transform(parse.classify, context.stream), context.stream)
    rule = PageViewRule.of(settings)
    waits, sketches = settings.watermark_seconds, Sketches.of(settings)
    return traffic(events, rule, waits, sketches, settings.tasks).collect()


def incremented(job: Traffic, row: Row, brought: dict[Any, Row]) -> Row:
    start = row.window_start
    key = (row.window, start.date(), start)
    stored = job._context.tables.select_one(STORED, key)
    added = brought[row.window, start]
    sums = {n: (getattr(stored, n) if stored else 0) + added[n] for n in COUNTS}
    return Row(**(row.asDict() | sums))


def publish(self: Results, *arguments: Any, **named: Any) -> None:
    time.sleep(DYING_TIME)
    publish_at_once(self, *arguments, **named)


Traffic.write = write
Results.publish = publish
