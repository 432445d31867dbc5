"""Keeps a job's rows in ``job_progress`` and ``job_work``, and has late events counted."""

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql.streaming import StreamingQuery

from millrace_jobs.inputs.checkpoint import Batch, merged
from millrace_jobs.inputs.continuity import Known
from millrace_jobs.query.batch_reports import BatchReports
from millrace_jobs.query.context import JobContext
from millrace_jobs.query.job import Job
from millrace_jobs.query.late_events import JudgedBatch, LateEvents
from millrace_jobs.query.pacing import Pacing
from millrace_jobs.settings import WindowedSettings
from millrace_jobs.sinks.cassandra import Tables
from millrace_shared import job_progress

log = logging.getLogger(__name__)

READ = ("epoch", "checkpoint", "batch", "watermark", "max_event_time")
WORK_COLUMNS = ("job", "batches", "batch_ms", "late_events")
UNCOUNTED_COLUMNS = ("job", "checkpoint", "first_batch", "last_batch", "reason")
HEARTBEAT_SECONDS = 5.0
FIRST_BATCH_SECONDS = 5.0
# Nothing is counted before, while results catch up and other jobs start: the first count of a
# driver took a laptop's cores for 7 s, and a batch beside it 3.5 s instead of one.
CATCH_UP_SECONDS = 20.0
# A batch that takes so long, and longer than its trigger, gets a line in the log.
SLOW_SECONDS = 5.0
# Between two readings of what came late: a client whose clock is slow has it in each batch, and a
# Spark job for each would cost more than the reading. Short enough for whoever waits for counts.
LATE_SECONDS = 5.0


@dataclass(frozen=True)
class JobRow:
    """The job's row in ``job_progress``, as the driver before left it; times in UTC.

    A take-over reads it once before the query starts, for all that has to be known by then, and
    once more for `Heartbeat`, which goes on from it. In between a driver that was frozen may wake
    up and tell of a further batch, and readers trust that ``batch`` doesn't go back.

    Attributes:
        epoch: the highest that may have written the job's rows; 0 when none has.
        checkpoint: the id of the query that wrote last; None before the first heartbeat.
        batch: the newest batch of that checkpoint whose late events are counted.
    """

    epoch: int = 0
    checkpoint: str | None = None
    batch: int = -1
    watermark: datetime | None = None
    max_event_time: datetime | None = None

    @classmethod
    def read(cls, tables: Tables, job: str) -> "JobRow":
        """Asks a quorum of Cassandra, for up to two minutes; raises its error after that."""
        row = tables.select_one(
            job_progress.select(*READ, where="job = ?"),
            [job],
        )
        if row is None:
            return cls()
        if not row.checkpoint:  # an epoch was claimed, and nothing written under it
            return cls(row.epoch)
        times = _aware(row.watermark), _aware(row.max_event_time)
        return cls(row.epoch, row.checkpoint, row.batch, *times)

    def of_query(self, id: str) -> "JobRow":
        """The row as it tells of this query: of another one's batches it tells nothing."""
        return self if self.checkpoint == id else JobRow(self.epoch)

    @property
    def known(self) -> Known | None:
        """What the job wrote last, for `continuity.check`; None before the first heartbeat."""
        return Known(self.checkpoint, self.batch) if self.checkpoint else None


def claim(context: JobContext) -> None:
    """Note the run's epoch before it writes anything, for the next driver's `JobRow`."""
    row = (context.job, context.epoch)
    context.tables.upsert(job_progress.TABLE, ("job", "epoch"), [row], context.version(0))


class Heartbeat:
    """Follows one query, and never fails it. Not for several threads.

    ``batch`` in the row is the newest one whose late events are counted. Batches for which that was
    impossible stand in ``late_uncounted``: with any, ``late_events`` is a lower bound.
    """

    def __init__(
        self,
        context: JobContext,
        query: StreamingQuery,
        job: Job,
        row: JobRow,
        committed: int,
        pacing: Pacing | None = None,
    ) -> None:
        """
        Args:
            row: what the driver before this one told of the job.
            committed: the last batch that it committed.
            pacing: what hears of each batch to size the next ones.
        """
        self.pacing = pacing
        self._context = context
        self._query = query
        self._job = job
        self._late_events = job.late_events
        self._began = time.monotonic()
        self._reported = -HEARTBEAT_SECONDS
        self._heartbeats = 0
        self._has_told = False
        self._reports = BatchReports(query)
        self._heard = self._looked = self._began  # of the query; for its reports
        self._unread: list[Any] = []
        found = row.of_query(str(query.id))
        # Until it has ended a batch, and counted what was left to count, a driver before that was
        # frozen and wakes up may tell of a newer batch, and readers trust that none goes back.
        self._tells_how_far = committed < 0
        self._has_row = row.checkpoint is not None
        self._batch = found.batch
        self._watermark = found.watermark
        self._max_event_time = found.max_event_time
        self._uncounted: list[JudgedBatch] = []  # that may hold late events
        self._counted_at = float("-inf")
        self._rate = 0.0
        self._batches, self._batch_ms, self._late = 0, 0, 0  # since this driver leads
        self._noted_work: tuple[Any, ...] = ()
        self._committed: int | None = committed
        # An endless batch takes all of its trigger's time, and some more to be noted.
        triggers = 2 if job.is_endless else 1
        self._slow_ms = 1000 * max(context.settings.trigger_seconds * triggers, SLOW_SECONDS)

    @property
    def has_begun(self) -> bool:
        """Whether the query was seen to work; an idle one looks for records, too."""
        return self._reports.has_any

    @property
    def has_told(self) -> bool:
        """Whether readers know this query's checkpoint by now."""
        return self._has_told

    @property
    def silent_seconds(self) -> float:
        """How long the query had reported nothing when it was last asked. An idle one reports every
        ten seconds, so it is at a batch for about so long."""
        return self._looked - self._heard

    @property
    def _has_settled(self) -> bool:
        """Whether the query has ended a batch, or had none to end."""
        return self._reports.has_any or self._looked >= self._began + CATCH_UP_SECONDS

    def _catch_up(self) -> None:
        """Take in what the driver before this one committed without having reported it."""
        if self._committed is None:
            return
        checkpoint = self._context.checkpoint
        first, last = max(self._batch + 1, checkpoint.oldest()), self._committed
        if first <= last and self._late_events:
            if first > self._batch + 1:
                forgotten = "the checkpoint knows them no longer"
                self._give_up(self._batch + 1, first - 1, forgotten)
            try:
                batches = [JudgedBatch.of(checkpoint, n) for n in range(first, last + 1)]
            except Py4JError as error:  # removed since
                self._give_up(first, last, error)
            else:
                self._uncounted += batches
        if first <= last:
            self._batch = last
            # What the late events of the next batch are judged by is the watermark of this one.
            self._advance(checkpoint.watermark_ms(last + 1))
        self._committed = None

    def follow(self) -> None:
        """Take in the batches that ended since the last call, and write the row when it is time.

        Raises the errors of Cassandra, Kafka and HDFS; the next call goes on from there.
        """
        now = self._listen()
        news = any(p.batchId > self._batch and _has_run(p) for p in self._unread)
        since_began = now - self._began
        if news or since_began > FIRST_BATCH_SECONDS:  # results come first, the past later
            self._catch_up()
        while self._unread:
            progress = self._unread.pop(0)
            if progress.batchId > self._batch and _has_run(progress):
                self._take_in(progress)
        is_time = since_began >= CATCH_UP_SECONDS and now - self._counted_at >= LATE_SECONDS
        if self._late_events and self._uncounted and is_time:
            for consecutive in _runs(self._uncounted):
                self._count_late(self._late_events, consecutive)
            self._uncounted, self._counted_at = [], now
        if news or since_began - self._reported >= HEARTBEAT_SECONDS:
            self._write()
            self._reported = since_began

    def _listen(self) -> float:
        """Read what the query has reported; the time at which it was asked."""
        reports, now = self._reports.news(), time.monotonic()
        self._unread += reports
        if self.pacing:
            for report in reports:
                self.pacing.take_in(report)
        self._looked = now
        if reports:
            self._heard = now
        return now

    def _take_in(self, progress: Any) -> None:
        if self._late_events:
            self._look_for_late(progress)
        times = progress.eventTime
        watermark, newest = _time(times.get("watermark")), _time(times.get("max"))
        if watermark:
            self._advance(int(watermark.timestamp() * 1000))
        self._max_event_time = _latest(self._max_event_time, newest)
        if progress.durationMs["triggerExecution"] > self._slow_ms:
            took = progress.durationMs
            log.info("%s: batch %d was slow: %s ms", self._context.job, progress.batchId, took)
        self._batch = progress.batchId
        self._batches += 1
        self._batch_ms += progress.durationMs["triggerExecution"]
        self._rate = progress.inputRowsPerSecond
        self._job.after_batch(progress)

    def _look_for_late(self, progress: Any) -> None:
        """Have the batch counted if Spark dropped anything of it: aggregated rows, or events that a
        join was too late for. How many events that were, it doesn't say."""
        if any(operator.numRowsDroppedByWatermark for operator in progress.stateOperators):
            start = merged(json.loads(source.startOffset or "{}") for source in progress.sources)
            end = merged(json.loads(source.endOffset) for source in progress.sources)
            batch = Batch.between(start, end)
            judged_by_ms = int(self._watermark.timestamp() * 1000) if self._watermark else 0
            self._uncounted.append(JudgedBatch(progress.batchId, batch, judged_by_ms))

    def _count_late(self, late_events: LateEvents, batches: list[JudgedBatch]) -> None:
        try:
            self._late += late_events.count(str(self._query.id), batches)
        except Exception as error:  # of Kafka, Cassandra, Spark: none is worth a driver
            self._give_up(batches[0].number, batches[-1].number, error)

    def _give_up(self, first: int, last: int, why: Exception | str) -> None:
        job, reason = self._context.job, str(why).partition("\n")[0]
        log.warning("%s: late events of batches %d to %d uncounted: %s", job, first, last, reason)
        row = (job, str(self._query.id), first, last, reason)
        try:
            version = self._context.version(last)
            self._context.tables.upsert("late_uncounted", UNCOUNTED_COLUMNS, [row], version)
        except Exception as error:
            log.warning("%s: nor can that be noted: %s", job, error)

    def _advance(self, watermark_ms: int) -> None:
        """To a batch's watermark, which trails the newest event by a fixed time."""
        if watermark_ms:  # it is 1970 until there was an event
            self._watermark = datetime.fromtimestamp(watermark_ms / 1000, UTC)
            settings = self._context.settings.as_kind(WindowedSettings)
            newest = self._watermark + timedelta(seconds=settings.watermark_seconds)
            self._max_event_time = _latest(self._max_event_time, newest)

    def _write(self) -> None:
        context = self._context
        told: dict[str, Any] = {
            "job": context.job,
            "epoch": context.epoch,
            "input_rows_per_second": self._rate,
            "updated": datetime.now(UTC),
            "version": context.config.version,
        }
        knows_all = self._committed is None and not self._uncounted
        self._tells_how_far |= knows_all and self._has_settled
        if self._tells_how_far:
            told |= {
                "checkpoint": str(self._query.id),
                '"batch"': self._uncounted[0].number - 1 if self._uncounted else self._batch,
                "watermark": self._watermark,
                "max_event_time": self._max_event_time,
            }
        # A heartbeat isn't a batch: its place within the epoch is its own number, which at two a
        # second stays below that of the next epoch for 68 years.
        version = context.version(self._heartbeats)
        if self._tells_how_far or self._has_row:
            context.tables.upsert(job_progress.TABLE, (*told,), [(*told.values(),)], version)
            self._has_told = self._tells_how_far
        work = (context.job, self._batches, self._batch_ms, self._late)
        if work != self._noted_work:  # that of an idle job stays as it is
            context.tables.upsert("job_work", WORK_COLUMNS, [work], version)
            self._noted_work = work
        self._heartbeats += 1


def _has_run(progress: Any) -> bool:
    """An idle query reports progress, too, with the number of the batch that is to come."""
    return "addBatch" in progress.durationMs


def _runs(batches: list[JudgedBatch]) -> Iterator[list[JudgedBatch]]:
    """The batches in runs of consecutive numbers, which one reading can count."""
    numbered = groupby(enumerate(batches), lambda placed: placed[1].number - placed[0])
    return ([batch for _, batch in run] for _, run in numbered)


def _latest(*times: datetime | None) -> datetime | None:
    return max(filter(None, times), default=None)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _aware(time: datetime | None) -> datetime | None:
    """The time with its zone: Cassandra's driver gives UTC without saying so."""
    return time and time.replace(tzinfo=UTC)
