"""Counts the events that came too late, exactly.

Spark says how many aggregated rows it dropped, not how many events. So when it dropped any of a
batch, the batch's records are read again and its late events counted. Counts are kept by batch:
counting one twice changes nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from millrace_jobs.inputs import sources
from millrace_jobs.inputs.checkpoint import Batch, Checkpoint
from millrace_jobs.output import Window
from millrace_jobs.query.context import JobContext
from millrace_jobs.stream import Stream
from millrace_jobs.transforms import parse

Windows = dict[str, Window | None]
WINDOW_COLUMNS = ("day", "job", "window_start", "checkpoint", '"batch"', "events")
COLUMNS = ("bucket", "window", "job", "checkpoint", '"batch"', "events")


@dataclass(frozen=True)
class JudgedBatch:
    """A batch, and the watermark that Spark judged its late events by."""

    number: int
    records: Batch
    watermark_ms: int

    @classmethod
    def of(cls, checkpoint: Checkpoint, number: int) -> "JudgedBatch":
        return cls(number, checkpoint.batch(number), checkpoint.watermark_ms(number))


@dataclass(frozen=True)
class Touched:
    """Which windows' rows an event belongs to: those that it is in, and by a join also those of
    partners that are up to ``reach_seconds`` away."""

    window: Window
    reach_seconds: int


class LateEvents:
    """``windows``: the windows by their names; None where a join drops an event by its own time,
    before it has come to a window. So does de-duplication, of its stream. ``touched`` is noted of
    each late event, for jobs whose rows are counted again."""

    def __init__(
        self, context: JobContext, windows: Windows, touched: Touched | None = None
    ) -> None:
        self._context = context
        self.windows = windows
        self.touched = touched

    def count(self, checkpoint_id: str, batches: Sequence[JudgedBatch]) -> int:
        """Record what these batches dropped, which follow each other, by one reading of them.

        Returns how many events are missing somewhere; one that is late for several windows is one.
        """
        context = self._context
        missing: Counter[str] = Counter()
        found = [row for stream in context.streams for row in self._late(stream, batches)]
        for batch in batches:
            events: Counter[tuple[date, str]] = Counter()
            for row in found:
                if row.number == batch.number:
                    events.update({(row.bucket, window): row[window] for window in self.windows})
            rows = [
                (bucket, window, context.job, checkpoint_id, batch.number, number)
                for (bucket, window), number in events.items()
                if number
            ]
            version = context.version(batch.number)
            context.tables.upsert("late_events", COLUMNS, rows, version)
            for (_, window), number in events.items():
                missing[window] += number
        if self.touched and missing.total():
            self._note_windows(checkpoint_id, batches, self.touched)
        # Late for an hour is late for each of its minutes.
        return max(missing.values(), default=0)

    def _note_windows(
        self, checkpoint_id: str, batches: Sequence[JudgedBatch], touched: Touched
    ) -> None:
        """Which windows lack something. Rare, so the batches are read once more."""
        context, found = self._context, Counter[tuple[int, datetime]]()
        for stream in context.streams:
            late_by = None if stream.deduplicate_by else next(iter(self.windows.values()))
            events, of_stream = self._events(stream, batches)
            late = late_windows(events, stream.event_time, late_by, touched, of_stream)
            found.update({(row.number, row.window_start): row.events for row in late.collect()})
        for batch in batches:
            rows = [
                (start.date(), context.job, start, checkpoint_id, number, events)
                for (number, start), events in found.items()
                if number == batch.number
            ]
            version = context.version(batch.number)
            context.tables.upsert(
                "late_windows", WINDOW_COLUMNS, rows, version, partition_columns=2
            )

    def _late(self, stream: Stream, batches: Sequence[JudgedBatch]) -> list[Row]:
        """Late events of one stream, by batch and day."""
        events, of_stream = self._events(stream, batches)
        windows: Windows = dict.fromkeys(self.windows) if stream.deduplicate_by else self.windows
        return late_events(events, stream.event_time, windows, of_stream).collect()

    def _events(
        self, stream: Stream, batches: Sequence[JudgedBatch]
    ) -> tuple[DataFrame, list[JudgedBatch]]:
        """A stream's events in the batches, and the batches as they are of this stream."""
        context = self._context
        of_stream = [replace(batch, records=batch.records.of(stream.topic)) for batch in batches]
        records = sources.records(
            context.spark,
            context.config.kafka,
            stream.topic,
            context.settings,
            Batch(of_stream[0].records.start, of_stream[-1].records.end),
            context.skipped,
        )
        return parse.valid(records.transform(parse.classify, stream), stream), of_stream


def late_events(
    events: DataFrame, event_time: str, windows: Windows, batches: Sequence[JudgedBatch]
) -> DataFrame:
    """For each batch and day of event time: how many events were late, for each kind of windows. An
    event that was in time for some of its windows is late, too."""
    time_us = F.unix_micros(event_time)
    return (
        _placed(events, batches)
        .groupBy("number", F.to_date(event_time).alias("bucket"))
        .agg(
            *(
                F.count_if(_end_us(time_us, window) <= F.col("watermark_us")).alias(name)
                for name, window in windows.items()
            )
        )
    )


def late_windows(
    events: DataFrame,
    event_time: str,
    late_by: Window | None,
    touched: Touched,
    batches: Sequence[JudgedBatch],
) -> DataFrame:
    """``number``, ``window_start``, ``events``: for each batch the windows that lack late events.

    Args:
        late_by: the windows by whose end an event is late; None for its own time.
    """
    time_us, window = F.unix_micros(event_time), touched.window
    reach = F.lit(1_000_000 * touched.reach_seconds)
    slide, offset = (F.lit(1_000_000 * seconds) for seconds in (window.slide, window.offset))
    first = _end_us(time_us - reach, window) - F.lit(1_000_000 * window.length)
    last = time_us + reach - F.pmod(time_us + reach - offset, slide)
    starts = F.explode(F.sequence(first, last, slide))
    late = _placed(events, batches).where(_end_us(time_us, late_by) <= F.col("watermark_us"))
    found = late.select("number", starts.alias("start_us"))
    return found.groupBy("number", F.timestamp_micros("start_us").alias("window_start")).agg(
        F.count("*").alias("events")
    )


def _placed(events: DataFrame, batches: Sequence[JudgedBatch]) -> DataFrame:
    """The events with their batch's number, and the watermark that it was judged by."""
    index = _index(batches)
    watermarks = F.array(*(F.lit(1000 * batch.watermark_ms) for batch in batches))
    numbers = F.array(*(F.lit(batch.number) for batch in batches))
    return events.withColumns({"watermark_us": watermarks[index], "number": numbers[index]})


def _end_us(time_us: Column, window: Window | None) -> Column:
    """Of the first window that an event is in, or the event's own time."""
    if window is None:
        return time_us
    slide = F.lit(1_000_000 * window.slide)
    end = F.lit(1_000_000 * (window.offset + window.length))  # of one of them
    return time_us - F.pmod(time_us - end, slide) + slide


def _index(batches: Sequence[JudgedBatch]) -> Column:
    """Which of the batches, from 0, a record belongs to: as many as ended before it."""
    [ends, *_] = batches[-1].records.end.values()
    ends_by_partition = F.create_map(
        *(
            column
            for partition in ends
            for column in (F.lit(int(partition)), F.array(*_ends(batches, partition)))
        )
    )
    ended = F.filter(
        F.element_at(ends_by_partition, F.col("partition")), lambda end: end <= F.col("offset")
    )
    return F.size(ended)


def _ends(batches: Sequence[JudgedBatch], partition: str) -> list[Column]:
    """Those of one partition of the one topic; 0 before it came into being."""
    topics = (next(iter(batch.records.end.values())) for batch in batches)
    return [F.lit(partitions.get(partition, 0)).cast("bigint") for partitions in topics]
