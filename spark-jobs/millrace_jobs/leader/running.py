"""A job with its query: how it starts, how it is told apart from one that is stuck, how it ends."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from millrace_jobs.contract import contract
from millrace_jobs.leader import skipping
from millrace_jobs.leader.failures import FRESH, MOST_PATIENCE, Attempts, BatchTooLong
from millrace_jobs.leadership.coordination import Coordination, JobState
from millrace_jobs.leadership.lease import Lease
from millrace_jobs.quarantine.store import in_a_line
from millrace_jobs.query.executor_deaths import killing
from millrace_jobs.query.heartbeat import Heartbeat, JobRow, claim
from millrace_jobs.query.job import Job, Write
from millrace_jobs.query.pacing import Pacing
from millrace_jobs.spark_internals import cancel_group
from millrace_jobs.standby.ready import ReadyJob, UnreadyJob, check_continuity

log = logging.getLogger(__name__)

DRAIN_SECONDS = 60.0
# After that a cancelled batch's tasks are killed with their executors (spark.task.reaper), and what
# still holds it is in the driver.
CANCEL_SECONDS = 120.0
# A batch that is at work for as long is asked by which errors its tasks failed: most end before.
SUSPECT_SECONDS = 10.0


class Drained(Exception):
    """Raised instead of beginning another batch. The next driver begins it."""


@dataclass(frozen=True)
class StoppedJob:
    """A job without a query: it is disabled, about to start, or waits because it has failed."""

    ready: ReadyJob | UnreadyJob
    attempts: Attempts = FRESH
    is_disabled: bool = False

    @property
    def name(self) -> str:
        return self.ready.name

    @property
    def state(self) -> JobState:
        if self.is_disabled:
            return "disabled"
        return "failed" if self.attempts.failure else "starting"

    @property
    def trouble(self) -> str:
        return self.attempts.failure.reason if self.attempts.failure else ""


@dataclass(frozen=True)
class RunningJob:
    """A job with its query, from one start of the query to the next. Times are monotonic."""

    ready: ReadyJob
    query: StreamingQuery
    progress: Heartbeat
    draining: threading.Event
    raised: list[Exception] = field(default_factory=list)  # by the sink, as it was
    attempts: Attempts = FRESH
    agreed: dict[str, Any] | None = None  # the contract, until it is told
    is_proven: bool = False  # it has ended a batch, and that was noted
    draining_since: float | None = None
    cancelled: "Cancelled | None" = None

    @property
    def name(self) -> str:
        return self.ready.name

    @property
    def job(self) -> Job:
        return self.ready.job

    @property
    def has_ended_a_batch(self) -> bool:
        """An idle query reports, too: it looked for records, and there were none."""
        return self.query.lastProgress is not None

    @property
    def state(self) -> JobState:
        if self.draining.is_set():
            return "draining"
        if self.attempts.failure:
            return "failed"  # until a batch has ended
        if self.job.isolating_for:
            return "isolating"
        if self.job.is_endless and self.query.status["isTriggerActive"]:
            return "running"  # long before its first batch ends
        return "running" if self.progress.has_begun else "starting"

    @property
    def trouble(self) -> str:
        """Why it failed, or what it failed by while it looks for the records."""
        failure = self.attempts.failure
        return self.job.isolating_for or (failure.reason if failure else "")

    @property
    def error(self) -> Exception | None:
        """What has ended the query: as the job or its sink says it, else in Spark's words."""
        ended = self.query.exception()
        if ended is None:
            return None
        if own := self.job.own_error(ended):
            return own
        return self.raised[-1] if self.raised else ended

    @property
    def longest_seconds(self) -> float:
        """What a batch may take, with the pause before it.

        One that was too long gets more, and so does one whose records are looked for.
        """
        settings = self.ready.context.settings
        patience = MOST_PATIENCE if self.job.isolating_for else self.attempts.patience
        return settings.longest_batch_seconds * patience + settings.trigger_seconds

    @property
    def takes_too_long(self) -> bool:
        return self.progress.silent_seconds > self.longest_seconds

    @property
    def reason_to_cancel(self) -> Exception | None:
        """Why its batch had better end now: it takes too long, or kills executors."""
        if self.job.is_endless:
            return None
        if self.takes_too_long:
            took = f"a batch took more than {self.longest_seconds:.0f} s"
            return BatchTooLong(f"{took}, and was cancelled")
        if self.progress.silent_seconds > SUSPECT_SECONDS:
            return killing(self.ready.context.spark.sparkContext, str(self.query.runId))
        return None

    @property
    def is_over(self) -> bool:
        """Whether no batch is under way any more, and none begins.

        Spark calls a query inactive that was told to stop, and is at its batch still.
        """
        stops = self.cancelled is not None and not self.cancelled.has_stopped.is_set()
        return not self.query.isActive and not stops


@dataclass(frozen=True)
class Cancelled:
    """A batch that is cancelled: why, since when, and whether it has ended by now."""

    why: Exception
    at: float
    has_stopped: threading.Event

    @property
    def is_in_vain(self) -> bool:
        return time.monotonic() > self.at + CANCEL_SECONDS


AnyJob = StoppedJob | RunningJob


def start(one: ReadyJob, coordination: Coordination, attempts: Attempts = FRESH) -> RunningJob:
    """Take the job over from whoever ran it before, and start its query."""
    context, job = one.context, one.job
    row = JobRow.read(context.tables, context.job)
    check_continuity(context, row.known, coordination.kept_checkpoint(context.job))
    read_one_by_one = context.reads_one_by_one
    moved = skipping.step_aside(context, job)
    context.epoch = coordination.take_epoch(context.job, above=row.epoch)
    claim(context)
    job.on_lead()
    if moved is not None:
        job.tell_position(moved, context.checkpoint.ends(moved))
    path = context.checkpoint.location
    log.info("job %s: epoch %d, checkpoint %s", context.job, context.epoch, path)
    if job.refresh() or read_one_by_one or context.reads_one_by_one or context.skipped:
        one = replace(one, frame=job.frame())
    committed = context.checkpoint.last_committed()
    agreed = contract(context.job, context.settings, context.streams)
    # Jobs share executors in turns; otherwise a long batch of one would hold up the others.
    context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", context.job)
    draining, raised = threading.Event(), list[Exception]()
    writer = (
        one.frame.writeStream.queryName(context.job)
        .outputMode(job.output_mode)
        .option("checkpointLocation", path)
    )
    every = f"{context.trigger_seconds:g} seconds"
    query = job.start(
        writer,
        every,
        lambda write: while_leading(
            write,
            context.lease,
            draining,
            raised,
            before=lambda batch: skipping.check_batch(context, batch),
        ),
    )
    try:
        # The row as it is by now: a driver that was frozen may have told more before it was fenced.
        told = JobRow.read(context.tables, context.job)
        pacing = None if job.is_endless else Pacing(context, query)
        progress = Heartbeat(context, query, job, told, committed, pacing)
    except Exception:
        query.stop()  # nobody would look after it, and the next start would find it there
        raise
    return RunningJob(one, query, progress, draining, raised, attempts, agreed)


def follow(job: RunningJob, coordination: Coordination) -> RunningJob:
    """Tell how far the job is, and what its checkpoint holds for good.

    The contract follows the first heartbeat: both say which checkpoint is the job's. Whoever comes
    after a driver that died before, or in between, finds another folder in its settings than the
    one that was kept. So the job may begin anew, whether its query had begun or not.
    """
    job.progress.follow()
    if job.agreed is not None and job.progress.has_told:
        coordination.put_contract(job.name, job.agreed)
        job = replace(job, agreed=None)
    if not job.is_proven and job.has_ended_a_batch:
        coordination.forget_hand_over(job.name)
        job = replace(job, attempts=FRESH, is_proven=True)
    return job


def cancel(job: RunningJob, why: Exception) -> RunningJob:
    """Stop the query in the middle of its batch, which the next start runs again.

    The sink is Python's: `StreamingQuery.stop` interrupts what waits for it, the Spark job that the
    sink waits for has to be cancelled beside. Neither is waited for, as either may hang.
    """
    log.error("job %s: its batch is cancelled: %s", job.name, in_a_line(why))
    context, query = job.ready.context.spark.sparkContext, job.query
    has_stopped = threading.Event()

    def stop() -> None:
        try:
            cancel_group(context, str(query.runId))
            query.stop()
        finally:
            has_stopped.set()

    threading.Thread(target=stop, name=f"cancelling {job.name}", daemon=True).start()
    return replace(job, cancelled=Cancelled(why, time.monotonic(), has_stopped))


def has_ended(job: RunningJob) -> bool:
    """Begins no other batch; ends the query if it is between two.

    `StreamingQuery.stop` would interrupt a running batch, in the middle of its Python sink. In real
    time there is none, nor a time between two batches, and what is interrupted is sent again.
    """
    job.draining.set()
    if job.cancelled:
        return job.is_over
    if job.query.isActive and (job.job.is_endless or not job.query.status["isTriggerActive"]):
        job.query.stop()
    return not job.query.isActive


def while_leading(
    write: Write,
    lease: Lease,
    draining: threading.Event,
    raised: list[Exception],
    before: Callable[[int], None] = lambda batch: None,
) -> Write:
    """A sink that begins a batch only while this driver surely leads, and isn't draining.

    What ``write`` raises is kept in ``raised``, and what ``before`` does, which is asked whether a
    batch may be run as it is: Spark passes on the text alone.
    """

    def write_batch(frame: DataFrame, batch: int) -> None:
        if draining.is_set():
            raise Drained
        lease.confirm()
        try:
            before(batch)
            write(frame, batch)
        except Exception as error:  # of which Spark tells the text
            raised.append(error)
            raise

    return write_batch
