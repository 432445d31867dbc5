"""Leads: starts the jobs, keeps them as they are to be, and drains them in the end."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from millrace_jobs.contract import contract
from millrace_jobs.inputs.continuity import CheckpointMismatch
from millrace_jobs.leader import skip_requests, skipping
from millrace_jobs.leadership.coordination import Coordination, JobState
from millrace_jobs.leadership.lease import Lease, LeaseLost
from millrace_jobs.quarantine.search import NotIsolatable, Quarantined
from millrace_jobs.quarantine.store import in_a_line
from millrace_jobs.query.heartbeat import Heartbeat, JobRow, claim
from millrace_jobs.query.job import Job, Write
from millrace_jobs.requests.operator_requests import OperatorRequests
from millrace_jobs.standby.executor_warmup import ExecutorWarmup
from millrace_jobs.standby.ready import ReadyJob, check_continuity

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
FIRST_BATCHES = 3
FIRST_BATCHES_SECONDS = 20.0
DRAIN_SECONDS = 60.0
DRAIN_POLL_SECONDS = 0.02
PAUSE_SECONDS = 60.0  # twice as long after each that was no use
LONGEST_PAUSE_SECONDS = 960.0
REFUSED_SECONDS = 10.0  # until a refused checkpoint is looked at again
OF_DATA = (Quarantined, NotIsolatable)  # another driver would fail in the same batch


class Drained(Exception):
    """Raised instead of beginning another batch. The next driver begins it."""


@dataclass(frozen=True)
class RunningJob:
    """A job with its query, from one start of the query to the next."""

    ready: ReadyJob
    query: StreamingQuery
    progress: Heartbeat
    draining: threading.Event
    raised: list[Exception] = field(default_factory=list)  # by the sink, as it was
    is_second_try: bool = False
    paused_until: float = 0.0  # of the monotonic clock; it was no use to start it again before
    pauses: int = 0  # since it last ended a batch
    trouble: str = ""  # why it pauses

    @property
    def name(self) -> str:
        return self.ready.name

    @property
    def job(self) -> Job:
        return self.ready.job

    @property
    def state(self) -> JobState:
        if self.draining.is_set():
            return "draining"
        if self.paused_until:
            return "failed"
        if self.job.isolating_for:
            return "isolating"
        if self.job.is_endless and self.query.status["isTriggerActive"]:
            return "running"  # long before its first batch ends
        return "running" if self.progress.has_begun else "starting"

    @property
    def error(self) -> Exception | None:
        """What has ended the query: as the job or its sink says it, else in Spark's words."""
        ended = self.query.exception()
        if ended is None:
            return None
        if own := self.job.own_error(ended):
            return own
        return self.raised[-1] if self.raised else ended


AnyJob = ReadyJob | RunningJob


def start(one: ReadyJob, coordination: Coordination) -> RunningJob:
    """Take the job over from whoever ran it before, and start its query."""
    context, job = one.context, one.job
    row = JobRow.read(context.tables, context.job)
    check_continuity(context, row.known, coordination.kept_checkpoint(context.job))
    moved = skipping.step_aside(context, job)
    context.epoch = coordination.take_epoch(context.job, above=row.epoch)
    claim(context)
    agreed = contract(context.job, context.settings, context.streams)
    coordination.put_contract(context.job, agreed)
    job.on_lead()
    if moved is not None:
        job.tell_position(moved, context.checkpoint.ends(moved))
    path = context.checkpoint.location
    log.info("job %s: epoch %d, checkpoint %s", context.job, context.epoch, path)
    if job.refresh():
        one = replace(one, frame=job.frame())
    committed = context.checkpoint.last_committed()
    # Jobs share executors in turns; otherwise a long batch of one would hold up the others.
    context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", context.job)
    draining, raised = threading.Event(), list[Exception]()
    writer = (
        one.frame.writeStream.queryName(context.job)
        .outputMode(job.output_mode)
        .option("checkpointLocation", path)
    )
    every = f"{context.settings.trigger_seconds:g} seconds"
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
    # The row as it is by now: a driver that was frozen may have told more before it was fenced.
    told = JobRow.read(context.tables, context.job)
    progress = Heartbeat(context, query, job, told, committed)
    return RunningJob(one, query, progress, draining, raised)


def await_results(query: StreamingQuery) -> None:
    """Let results catch up before the other jobs ask for their share of the cores.

    The first batch is the predecessor's; the one after it has all that came meanwhile.
    """
    deadline = time.monotonic() + FIRST_BATCHES_SECONDS
    first: int | None = None
    while query.isActive and time.monotonic() < deadline:
        if progress := query.lastProgress:
            first = progress.batchId if first is None else first
            if progress.batchId >= first + FIRST_BATCHES - 1 or not progress.numInputRows:
                break
        time.sleep(DRAIN_POLL_SECONDS)


def supervise(
    jobs: list[AnyJob],
    coordination: Coordination,
    version: str,
    requests: OperatorRequests,
    warmup: ExecutorWarmup,
) -> None:
    """Start the jobs that aren't disabled, and keep them so, in the list that is given.

    Returns when the application is to stop. Raises LeaseLost when another driver leads, and the
    error of a job that ends the driver.
    """
    while not coordination.is_stop_desired(version):
        if coordination.lease.is_lost:
            raise LeaseLost("another driver has taken over")
        for number, job in enumerate(jobs):
            jobs[number] = reconcile(job, coordination, is_first=number == 0)
        coordination.announce_jobs(
            {job.name: job.state for job in jobs},
            {job.name: trouble for job in jobs if (trouble := trouble_of(job))},
        )
        requests.look()
        warmup.look([job.ready for job in jobs if isinstance(job, RunningJob)])
        time.sleep(POLL_SECONDS)
    log.info("asked to stop")


def trouble_of(job: AnyJob) -> str:
    """Says why a job is kept out or pauses, or what it failed by while it looks for the records."""
    return job.job.isolating_for or job.trouble


def reconcile(job: AnyJob, coordination: Coordination, *, is_first: bool) -> AnyJob:
    """The job after a look at it: as it was, started, started again, ended by an order, or refused.

    While ZooKeeper doesn't say whether the job is disabled, none is started or ended. Being the
    first is a property of the job, not of those that run: without it, the others fail as before.
    """
    try:
        return _reconcile(job, coordination, is_first=is_first)
    except CheckpointMismatch as error:
        return refuse(job.ready if isinstance(job, RunningJob) else job, error)


def refuse(job: ReadyJob, error: CheckpointMismatch) -> ReadyJob:
    """The job stays out until its checkpoint goes on where it stopped; the others don't notice.

    Another driver would find the same. Who puts the checkpoint back needn't do more.
    """
    trouble = str(error)
    if trouble != job.trouble:
        log.error("%s", trouble)
    return replace(job, trouble=trouble, refused_until=time.monotonic() + REFUSED_SECONDS)


def _reconcile(job: AnyJob, coordination: Coordination, *, is_first: bool) -> AnyJob:
    disabled = coordination.is_disabled(job.name)
    if question := coordination.question(job.name, skip_requests.TOPIC):
        if isinstance(job, RunningJob):
            return end(job)
        skip_requests.carry_out(job, question, coordination)
        job = replace(job, refused_until=0.0)
    if isinstance(job, ReadyJob):
        if disabled:
            return replace(job, trouble="")
        if disabled is None or time.monotonic() < job.refused_until:
            return job
        job = start(replace(job, trouble="", refused_until=0.0), coordination)
        if is_first and not job.job.is_endless:
            await_results(job.query)
        return job
    if disabled or job.draining.is_set():
        return end(job)
    if error := job.error:
        if not job.paused_until and (ready := skipping.anew(job.ready, error)):
            return start(ready, coordination)
        if isinstance(error, CheckpointMismatch):
            raise error
        if is_first and not isinstance(error, OF_DATA):  # its results continue sooner elsewhere
            raise error
        job = start_again(job, error, coordination)
    if not job.paused_until:  # a heartbeat would say that it writes
        job.progress.follow()
    return job


def end(job: RunningJob) -> AnyJob:
    """Ready to go on from its checkpoint, once the job's batch has ended; no other one begins."""
    if not has_ended(job):
        return job
    if not job.paused_until:
        job.progress.follow()  # what its last batch did
    log.info("job %s has ended: it is disabled, or is to skip something", job.name)
    return job.ready


def start_again(job: RunningJob, error: Exception, coordination: Coordination) -> RunningJob:
    """The job, from its checkpoint, unless it was no use the last time.

    Then a job that may makes a pause, because its trouble is no other job's; of another job the
    error is raised. A predecessor that was frozen and wakes up may begin its next batch a moment
    before this driver does, which Spark takes for a second query on the checkpoint.
    """
    if time.monotonic() < job.paused_until:
        return job
    ended_none = job.query.lastProgress is None
    was_no_use = job.is_second_try and ended_none and not isinstance(error, Quarantined)
    pauses = job.pauses if ended_none else 0
    reason = in_a_line(error)
    if was_no_use and not job.paused_until:
        if not job.job.may_pause:
            raise error
        seconds = min(PAUSE_SECONDS * 2**pauses, LONGEST_PAUSE_SECONDS)
        log.error("job %s pauses for %.0f s: %s", job.name, seconds, reason)
        until = time.monotonic() + seconds
        return replace(job, paused_until=until, pauses=pauses + 1, trouble=reason)
    log.warning("job %s is started again: %s", job.name, reason)
    return replace(start(job.ready, coordination), is_second_try=True, pauses=pauses)


def drain(jobs: list[AnyJob]) -> None:
    """Let running batches end and begin no others, one job after the other.

    The first job, whose results are waited for, goes on until the others have ended.
    """
    deadline = time.monotonic() + DRAIN_SECONDS
    for job in reversed([job for job in jobs if isinstance(job, RunningJob)]):
        while not has_ended(job) and time.monotonic() < deadline:
            time.sleep(DRAIN_POLL_SECONDS)


def has_ended(job: RunningJob) -> bool:
    """Begins no other batch; ends the query if it is between two.

    `StreamingQuery.stop` would interrupt a running batch, in the middle of its Python sink. In real
    time there is none, nor a time between two batches, and what is interrupted is sent again.
    """
    job.draining.set()
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
