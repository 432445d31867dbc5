"""Leads: starts the jobs, keeps them as they are to be, and drains them in the end.

A job fails alone. Each has a thread of its own, on which it is started, followed and ended; the
supervisor only looks at what they do, and of a job nothing is raised there but a hand-over.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from millrace_jobs.inputs.continuity import CheckpointMismatch
from millrace_jobs.inputs.skipped import SkippedRange
from millrace_jobs.kinds import kind_of
from millrace_jobs.leader import failures, skip_requests, skipping
from millrace_jobs.leader.background import Worker
from millrace_jobs.leader.failures import (
    FRESH,
    JOB_FAILED,
    Attempts,
    BatchTooLong,
    HandedOver,
    Next,
)
from millrace_jobs.leader.job_states import JobStates, report_of
from millrace_jobs.leader.running import (
    DRAIN_SECONDS,
    AnyJob,
    Cancelled,
    RunningJob,
    StoppedJob,
    cancel,
    follow,
    has_ended,
    start,
)
from millrace_jobs.leader.turns import Turns
from millrace_jobs.leadership.coordination import Coordination, JobReport
from millrace_jobs.leadership.lease import LeaseLost
from millrace_jobs.quarantine.store import in_a_line
from millrace_jobs.query.executor_deaths import of_memory
from millrace_jobs.requests.operator_requests import OperatorRequests
from millrace_jobs.standby.executor_warmup import ExecutorWarmup
from millrace_jobs.standby.executors import Executors
from millrace_jobs.standby.ready import ReadyJob, UnreadyJob

log = logging.getLogger(__name__)
T = TypeVar("T")

POLL_SECONDS = 0.5
FIRST_BATCHES = 3
FIRST_BATCHES_SECONDS = 20.0
DRAIN_POLL_SECONDS = 0.02
STUCK_SECONDS = 600.0  # longer than Cassandra is asked again, a few times


class Supervised:
    """A job as it is by now, and the thread that looks after it."""

    def __init__(self, ready: ReadyJob | UnreadyJob) -> None:
        self.job: AnyJob = StoppedJob(ready)
        self.hands_over: HandedOver | None = None
        self._since = 0.0  # of the step that is under way
        self._worker = Worker(f"job {ready.name}")

    def look(self, step: Callable[[AnyJob], AnyJob]) -> None:
        """Have the next step done beside, unless the last one takes longer."""
        if not self._worker.is_busy:
            self._since = time.monotonic()
            self._worker.begin(partial(self._take, step))

    def report(self) -> JobReport:
        """What it does; a step that doesn't end is a failure, though nothing can end it."""
        seconds = time.monotonic() - self._since
        if not self._worker.is_busy or seconds < STUCK_SECONDS:
            return report_of(self.job)
        what = "looking after it" if isinstance(self.job, RunningJob) else "its start"
        trouble = f"{what} takes longer than {STUCK_SECONDS:.0f} s, and holds up no other job"
        return JobReport("failed", trouble, round(time.time() - seconds), JOB_FAILED)

    def wait(self, seconds: float) -> None:
        """Until no step is under way, or it has taken long enough."""
        self._worker.wait(max(seconds, 0.0))

    def _take(self, step: Callable[[AnyJob], AnyJob]) -> None:
        try:
            self.job = step(self.job)
        except HandedOver as order:
            self.hands_over = order
        except LeaseLost:
            log.warning("job %s: another driver leads", self.job.name)


@dataclass(frozen=True)
class Others:
    """What the other jobs of this driver are at, whose executors a job shares.

    Attributes:
        kill: one of them is at records that executors die by. Then the job isn't to blame for those
            that die below its own tasks.
        found: what they have found that no executor can hold.
    """

    kill: bool = False
    found: frozenset[SkippedRange] = frozenset()

    @classmethod
    def of(cls, jobs: Iterable[AnyJob]) -> "Others":
        contexts = [one.ready.context for one in jobs if isinstance(one.ready, ReadyJob)]
        return cls(
            any(one.reads_one_by_one or one.careful_batch is not None for one in contexts),
            frozenset[SkippedRange]().union(*(context.too_large for context in contexts)),
        )


ALONE = Others()


class ResultsFirst:
    """Holds the other jobs' starts back until the first one's results have caught up.

    Its first batch is the predecessor's; the one after it has all that came meanwhile. A first job
    that doesn't start, or takes too long, holds back nobody.
    """

    def __init__(self) -> None:
        self._until = time.monotonic() + FIRST_BATCHES_SECONDS
        self._query: object = None
        self._first_batch: int | None = None
        self._are_there = False

    def are_there(self, first: AnyJob) -> bool:
        self._are_there = self._are_there or self._look(first)
        return self._are_there

    def _look(self, first: AnyJob) -> bool:
        if isinstance(first, StoppedJob):
            is_out = first.is_disabled or first.attempts != FRESH
            return is_out or time.monotonic() >= self._until
        if first.job.is_endless or not first.query.isActive:
            return True
        if self._query is None:
            self._query, self._until = first.query, time.monotonic() + FIRST_BATCHES_SECONDS
        if report := first.query.lastProgress:
            if self._first_batch is None:
                self._first_batch = report.batchId
            if report.batchId >= self._first_batch + FIRST_BATCHES - 1 or not report.numInputRows:
                return True
        return time.monotonic() >= self._until


def supervise(
    jobs: Sequence[Supervised],
    coordination: Coordination,
    version: str,
    workers: Executors,
    states: JobStates,
    requests: OperatorRequests,
    warmup: ExecutorWarmup,
) -> None:
    """Start the jobs that aren't disabled, and keep them so.

    Returns when the application is to stop. Raises LeaseLost when another driver leads,
    SparkStopped when no job can run here any more, HandedOver for one that the standby is to try.
    """
    results, turns = ResultsFirst(), Turns()
    while not coordination.is_stop_desired(version):
        if coordination.lease.is_lost:
            raise LeaseLost("another driver has taken over")
        workers.verify()
        for number, one in enumerate(jobs):
            if one.hands_over:
                raise one.hands_over
            may_start = number == 0 or results.are_there(jobs[0].job)
            others = Others.of([other.job for other in jobs if other is not one])
            one.look(
                partial(reconcile, coordination=coordination, may_start=may_start, others=others)
            )
        running = [job for one in jobs if isinstance(job := one.job, RunningJob)]
        _quietly(turns.look, [pacing for job in running if (pacing := job.progress.pacing)])
        reports = {one.job.name: one.report() for one in jobs}
        coordination.announce_jobs(reports, turns.behind_since())
        states.tell(reports)
        ready = [job.ready for job in running]
        _quietly(requests.look, [rows for one in ready if (rows := one.job.stored_rows)])
        _quietly(warmup.look, ready)
        time.sleep(POLL_SECONDS)
    log.info("asked to stop")


def _quietly(look: Callable[[T], None], at: T) -> None:
    """What operators ask, and what keeps executors warm, is worth no driver."""
    try:
        look(at)
    except Exception as error:
        log.warning("beside the jobs: %s", in_a_line(error))


def reconcile(
    job: AnyJob,
    coordination: Coordination,
    *,
    may_start: bool = True,
    others: Others = ALONE,
) -> AnyJob:
    """The job after a look at it: as it was, started, started again, ended by an order, or failed.

    While ZooKeeper doesn't say whether the job is disabled, none is started or ended. Raises
    HandedOver and LeaseLost, and nothing else.
    """
    try:
        disabled = coordination.is_disabled(job.name)
        question = coordination.question(job.name, skip_requests.TOPIC)
        if isinstance(job, RunningJob):
            if job.draining.is_set() or disabled or question:
                return _end(job, coordination, goes_on=question is not None and not disabled)
            return _keep(job, coordination, others)
        if question:
            job = _asked(job, question, coordination)
        if disabled is None:
            return job
        if disabled:
            return _keep_out(job, coordination)
        if not may_start or time.monotonic() < job.attempts.again_at:
            return replace(job, is_disabled=False)
        return _start(replace(job, is_disabled=False), coordination)
    except (HandedOver, LeaseLost):
        raise
    except Exception as error:
        if isinstance(job, StoppedJob):
            return _after(job, error, coordination)
        log.warning("job %s: looking after it: %s", job.name, in_a_line(error))
        return job  # with its query, which goes on


def _keep_out(job: StoppedJob, coordination: Coordination) -> StoppedJob:
    """What had become of it is over: who enables it again means it."""
    if not job.is_disabled:
        coordination.forget_hand_over(job.name)
    return StoppedJob(job.ready, is_disabled=True)


def _start(job: StoppedJob, coordination: Coordination) -> RunningJob:
    return start(_prepared(job), coordination, job.attempts)


def _prepared(job: StoppedJob) -> ReadyJob:
    return job.ready.prepare() if isinstance(job.ready, UnreadyJob) else job.ready


def _asked(job: StoppedJob, question: dict[str, Any], coordination: Coordination) -> StoppedJob:
    """The job once an operator's question is answered, which may be what it failed by."""
    try:
        ready = _prepared(job)
    except Exception as error:  # it is prepared again in its turn, not at each look
        skip_requests.refuse(job.name, question, error, coordination)
        return job
    skip_requests.carry_out(ready, question, coordination)
    return replace(job, ready=ready, attempts=Attempts(failure=job.attempts.failure))


def _keep(job: RunningJob, coordination: Coordination, others: Others) -> AnyJob:
    if job.cancelled and not job.is_over:
        return _await_cancelled(job, job.cancelled, coordination)
    if error := job.cancelled.why if job.cancelled else job.error:
        if isinstance(error, skipping.StartAnew):
            job = _followed(job, coordination)  # what the batch before it has told
        return _after(job, error, coordination, others)
    job = _followed(job, coordination)
    why = job.reason_to_cancel or skipping.told(job.ready, others.found)
    return cancel(job, why) if why else job


def _followed(job: RunningJob, coordination: Coordination) -> RunningJob:
    """A heartbeat that can't be written is no failure. Batches that need Cassandra fail by it."""
    try:
        return follow(job, coordination)
    except Exception as error:
        log.warning("job %s: following it: %s", job.name, in_a_line(error))
        return job


def _end(job: RunningJob, coordination: Coordination, *, goes_on: bool) -> AnyJob:
    """Ready to go on from its checkpoint, once the job's batch has ended; no other one begins.

    A batch that doesn't end is cancelled.
    """
    if has_ended(job):
        _followed(job, coordination)  # what its last batch did
        log.info("job %s has ended: %s", job.name, "it is to skip" if goes_on else "it is disabled")
        stopped = StoppedJob(job.ready, _attempts(job))
        return stopped if goes_on else _keep_out(stopped, coordination)
    now = time.monotonic()
    since = now if job.draining_since is None else job.draining_since
    job = replace(job, draining_since=since)
    if job.cancelled or now <= since + DRAIN_SECONDS:
        return job
    return cancel(job, BatchTooLong(f"it hasn't ended within {DRAIN_SECONDS:.0f} s"))


def _await_cancelled(job: RunningJob, cancelled: Cancelled, coordination: Coordination) -> AnyJob:
    if not cancelled.is_in_vain or job.attempts.failure:
        return job
    stuck = RuntimeError(f"{cancelled.why}: that was in vain, what holds it is in the driver")
    if _is_program(job) and _hand_over(job, stuck, coordination):
        raise HandedOver(f"job {job.name}: {stuck}")
    return replace(job, attempts=_failed(job, stuck))


def _after(
    job: AnyJob, error: Exception, coordination: Coordination, others: Others = ALONE
) -> StoppedJob:
    """The job without a query, and what becomes of it by an error of its query or of its start."""
    attempts = _attempts(job)
    if isinstance(job, RunningJob):
        try:
            if ready := skipping.anew(job.ready, error):
                return StoppedJob(ready, attempts)
            if others.kill and of_memory(error):
                log.warning("job %s is started again: its executors died by another job", job.name)
                return StoppedJob(job.ready, attempts)
        except CheckpointMismatch as expired:
            error = expired
    reason = in_a_line(error)
    match failures.following(attempts, error, is_program=_is_program(job)):
        case Next.AGAIN:
            log.warning("job %s is started again: %s", job.name, reason)
            return StoppedJob(job.ready, failures.again(attempts, error))
        case Next.HAND_OVER if _hand_over(job, error, coordination):
            raise HandedOver(f"job {job.name}: {reason}")
    return StoppedJob(job.ready, _failed(job, error))


def _attempts(job: AnyJob) -> Attempts:
    return FRESH if isinstance(job, RunningJob) and job.has_ended_a_batch else job.attempts


def _failed(job: AnyJob, error: Exception) -> Attempts:
    found = failures.failed(_attempts(job), error, now=time.monotonic(), at=time.time())
    if job.trouble != (found.failure and found.failure.reason):
        log.error("job %s has failed: %s", job.name, in_a_line(error))
    return found


def _is_program(job: AnyJob) -> bool:
    return kind_of(job.name).is_program


def _hand_over(job: AnyJob, error: Exception, coordination: Coordination) -> bool:
    """Whether the standby is to try what the job fails by. It is asked once, and that is noted."""
    if coordination.was_handed_over(job.name) or not coordination.has_standby():
        return False
    coordination.note_hand_over(job.name, in_a_line(error))
    return True


def drain(jobs: Sequence[Supervised]) -> None:
    """Let running batches end and begin no others, one job after the other.

    The first job, whose results are waited for, goes on until the others have ended.
    """
    deadline = time.monotonic() + DRAIN_SECONDS
    for one in reversed(jobs):
        one.wait(deadline - time.monotonic())  # it may be about to start
        if isinstance(one.job, RunningJob) and not one.job.cancelled:
            _drain(one.job, deadline)


def _drain(job: RunningJob, deadline: float) -> None:
    try:
        while not has_ended(job) and time.monotonic() < deadline:
            time.sleep(DRAIN_POLL_SECONDS)
    except Exception as error:  # of a Spark that has ended: there is nothing to wait for
        log.warning("job %s: draining it: %s", job.name, in_a_line(error))
