"""Counts the events that came too late, exactly.

Spark says how many aggregated rows it dropped, not how many events. So when a batch has an event
older than its watermark, the batch's records are read again and its late events counted. Counts are
kept by batch: counting one twice changes nothing.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace_jobs import sources
from millrace_jobs.context import JobContext
from millrace_jobs.transforms import parse
from millrace_jobs.transforms.traffic import WINDOWS, window_end

COLUMNS = ("bucket", "window", "job", "checkpoint", '"batch"', "events")


class LateEvents:
    def __init__(self, context: JobContext) -> None:
        self._context = context

    def count(self, checkpoint_id: str, number: int) -> None:
        """Record what batch ``number`` dropped."""
        context = self._context
        batch = context.checkpoint.batch(number)
        records = sources.records(
            context.spark, context.config.kafka, context.stream.topic, context.settings, batch
        )
        events = parse.valid(records.transform(parse.classify, context.stream), context.stream)
        rows = [
            (row.bucket, window, context.job, checkpoint_id, number, row[window])
            for row in late_events(events, context.checkpoint.watermark_ms(number)).collect()
            for window in WINDOWS
            if row[window]
        ]
        context.tables.upsert("late_events", COLUMNS, rows, context.version(number))


def late_events(events: DataFrame, watermark_ms: int) -> DataFrame:
    """For each day of event time: how many events were late for the windows of each size."""
    watermark = F.timestamp_millis(F.lit(watermark_ms))
    return events.groupBy(F.to_date("event_time").alias("bucket")).agg(
        *(F.count_if(window_end(window) <= watermark).alias(window) for window in WINDOWS)
    )
