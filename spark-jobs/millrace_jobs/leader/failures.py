"""What follows when a job fails: another start, a hand-over, or a pause in which it is `failed`.

Pure: who calls asks ZooKeeper, and does what follows.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

from millrace_jobs.inputs.continuity import CheckpointMismatch
from millrace_jobs.quarantine.search import NotIsolatable, Quarantined
from millrace_jobs.quarantine.store import in_a_line
from millrace_jobs.query.limits import BeyondLimit
from millrace_jobs.sinks.archive import OtherTypes

PAUSE_SECONDS = 60.0  # twice as long after each start that was no use
LONGEST_PAUSE_SECONDS = 960.0
REFUSED_SECONDS = 10.0  # until a refused checkpoint is looked at again
JOB_FAILED = "job-failed"  # the name of a runbook
MOST_PATIENCE = 8  # times its longest time, for a batch that was too long before


class BatchTooLong(Exception):
    """A batch has taken longer than the job's settings allow, and was cancelled."""


class HandedOver(Exception):
    """Raised to end the driver: the standby is to try what a job fails by here."""


# Another driver would fail in the same batch, or take as long for it.
OF_DATA = (Quarantined, NotIsolatable, BeyondLimit, OtherTypes, BatchTooLong)


@dataclass(frozen=True)
class Failure:
    """Why a job doesn't run; ``since`` is in seconds since 1970.

    ``runbook`` is the name of the page that says what to do.
    """

    reason: str
    runbook: str
    since: float


@dataclass(frozen=True)
class Attempts:
    """What has become of a job's starts since it last ended a batch.

    ``again_at`` is of the monotonic clock: nothing is tried before.
    """

    in_vain: int = 0
    again_at: float = 0.0
    failure: Failure | None = None

    @property
    def patience(self) -> int:
        """How many times its longest time a batch gets: it may need no more than that."""
        return int(min(2**self.in_vain, MOST_PATIENCE))


FRESH = Attempts()


class Next(Enum):
    """What follows an error."""

    AGAIN = auto()  # at once, by the same driver
    HAND_OVER = auto()  # if somebody stands by, and hasn't been handed this already
    FAIL = auto()


def following(attempts: Attempts, error: Exception, *, is_program: bool) -> Next:
    """What an error asks for.

    A job's first error is answered by another start: a predecessor that was frozen and wakes up may
    begin a batch a moment before this driver does, which Spark takes for a second query on the
    checkpoint. Its second one may be this host's, for which there is a standby. A declared job's is
    its code's far more often, and isn't worth a change of drivers to all others.
    """
    if isinstance(error, CheckpointMismatch):  # another driver would find the same
        return Next.FAIL
    if isinstance(error, Quarantined) or not attempts.in_vain:
        return Next.AGAIN
    return Next.HAND_OVER if is_program and not isinstance(error, OF_DATA) else Next.FAIL


def again(attempts: Attempts, error: Exception) -> Attempts:
    """The attempts after an error that is answered by another start."""
    if isinstance(error, Quarantined):  # the batch that comes is another one
        return replace(attempts, again_at=0.0)
    return replace(attempts, in_vain=attempts.in_vain + 1, again_at=0.0)


def failed(attempts: Attempts, error: Exception, *, now: float, at: float) -> Attempts:
    """The attempts of a job that is `failed` from now on, or still is.

    Args:
        now: of the monotonic clock.
        at: the same in seconds since 1970.
    """
    since = attempts.failure.since if attempts.failure else at
    if isinstance(error, CheckpointMismatch):  # who puts it back needn't do more
        failure = Failure(str(error), error.runbook, since)
        return replace(attempts, again_at=now + REFUSED_SECONDS, failure=failure)
    failure = Failure(in_a_line(error), JOB_FAILED, since)
    pause = min(PAUSE_SECONDS * 2 ** max(attempts.in_vain - 1, 0), LONGEST_PAUSE_SECONDS)
    return Attempts(attempts.in_vain + 1, now + pause, failure)
