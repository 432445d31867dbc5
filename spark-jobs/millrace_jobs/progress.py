"""Keeps the row of a job in ``job_progress``, and has late events counted batch by batch."""

import logging
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from millrace_jobs.context import JobContext
from millrace_jobs.late import LateEvents
from millrace_jobs.sinks.cassandra import Tables
from millrace_jobs.transforms.traffic import WINDOWS

log = logging.getLogger(__name__)

COLUMNS = (
    "job",
    "checkpoint",
    "epoch",
    '"batch"',
    "watermark",
    "max_event_time",
    "input_rows_per_second",
    "updated",
    "version",
)
HEARTBEAT_SECONDS = 2.0
CATCH_UP_SECONDS = 5.0
SHORTEST_WINDOW_SECONDS = min(seconds for _, seconds in WINDOWS.values())


def last_epoch(tables: Tables, job: str) -> int:
    """The highest epoch that may have written the job's rows; 0 when none has."""
    row = tables.select_one("SELECT epoch FROM {keyspace}.job_progress WHERE job = ?", [job])
    return row.epoch if row else 0


def claim(context: JobContext) -> None:
    """Note the run's epoch before it writes anything, for `last_epoch`."""
    row = (context.job, context.epoch)
    context.tables.upsert("job_progress", ("job", "epoch"), [row], context.version(0))


class Progress:
    """Follows one query. ``batch`` in the row is the newest one whose late events are counted."""

    def __init__(
        self,
        context: JobContext,
        query: StreamingQuery,
        late_events: LateEvents | None,
        committed: int,
    ) -> None:
        """``committed`` is the last batch that the driver before this one committed."""
        self._context = context
        self._query = query
        self._late_events = late_events
        self._began = time.monotonic()
        self._reported = -HEARTBEAT_SECONDS
        self._heartbeats = 0
        row = context.tables.select_one(
            'SELECT checkpoint, "batch", watermark, max_event_time FROM {keyspace}.job_progress'
            " WHERE job = ?",
            [context.job],
        )
        known = row is not None and row.checkpoint == str(query.id)
        self._batch = row.batch if known else -1
        self._watermark = _aware(row.watermark) if known else None
        self._max_event_time = _aware(row.max_event_time) if known else None
        self._rate = 0.0
        self._committed: int | None = committed
        self._trigger_ms = 1000 * context.settings["trigger_seconds"]

    def _catch_up(self) -> None:
        """Take in what the driver before this one committed without having reported it."""
        if self._committed is None:
            return
        checkpoint = self._context.checkpoint
        for number in range(max(self._batch + 1, checkpoint.oldest()), self._committed + 1):
            self._count_late(number)
            self._batch = number
            # What the late events of the next batch are judged by is the watermark of this one.
            self._advance(checkpoint.watermark_ms(number + 1))
        self._committed = None

    def follow(self) -> None:
        """Take in the batches that ended since the last call, and write the row when it is time."""
        news = [p for p in self._query.recentProgress if p.batchId > self._batch and _has_run(p)]
        since_began = time.monotonic() - self._began
        if news or since_began > CATCH_UP_SECONDS:  # results come first, the past later
            self._catch_up()
        for progress in news:
            self._take_in(progress)
        if news or since_began - self._reported >= HEARTBEAT_SECONDS:
            self._write()
            self._reported = since_began

    def _take_in(self, progress: Any) -> None:
        times = progress.eventTime
        watermark = _time(times.get("watermark"))
        oldest, newest = _time(times.get("min")), _time(times.get("max"))
        if oldest and watermark and _may_be_late(oldest, watermark):
            self._count_late(progress.batchId)
        if watermark:
            self._advance(int(watermark.timestamp() * 1000))
        self._max_event_time = _latest(self._max_event_time, newest)
        if progress.durationMs["triggerExecution"] > self._trigger_ms:
            took = progress.durationMs
            log.info("%s: batch %d was slow: %s ms", self._context.job, progress.batchId, took)
        self._batch = progress.batchId
        self._rate = progress.inputRowsPerSecond

    def _advance(self, watermark_ms: int) -> None:
        """To a batch's watermark, which trails the newest event by a fixed time."""
        if watermark_ms:  # it is 1970 until there was an event
            self._watermark = datetime.fromtimestamp(watermark_ms / 1000, UTC)
            newest = self._watermark + timedelta(
                seconds=self._context.settings["watermark_seconds"]
            )
            self._max_event_time = _latest(self._max_event_time, newest)

    def _count_late(self, batch: int) -> None:
        if self._late_events:
            self._late_events.count(str(self._query.id), batch)

    def _write(self) -> None:
        context = self._context
        row = (
            context.job,
            str(self._query.id),
            context.epoch,
            self._batch,
            self._watermark,
            self._max_event_time,
            self._rate,
            datetime.now(UTC),
            context.config.version,
        )
        # A heartbeat isn't a batch: its place within the epoch is its own number, which at two a
        # second stays below that of the next epoch for 68 years.
        context.tables.upsert("job_progress", COLUMNS, [row], context.version(self._heartbeats))
        self._heartbeats += 1


def _has_run(progress: Any) -> bool:
    """An idle query reports progress, too, with the number of the batch that is to come."""
    return "addBatch" in progress.durationMs


def _may_be_late(oldest: datetime, watermark: datetime) -> bool:
    """The window that closes first, of the oldest event, is closed."""
    start = oldest.timestamp() // SHORTEST_WINDOW_SECONDS * SHORTEST_WINDOW_SECONDS
    return start + SHORTEST_WINDOW_SECONDS <= watermark.timestamp()


def _latest(*times: datetime | None) -> datetime | None:
    return max(filter(None, times), default=None)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _aware(time: datetime | None) -> datetime | None:
    """Cassandra's driver gives UTC without saying so."""
    return time and time.replace(tzinfo=UTC)
