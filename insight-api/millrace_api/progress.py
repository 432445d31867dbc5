"""What the jobs' progress says about results."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial

from millrace_api.shared import Shared
from millrace_api.store import JobProgress, JobState, Store, StoreUnavailable

TRAFFIC_JOB = "traffic"
KEPT_SECONDS = 0.2
TOLD_WITHIN = timedelta(minutes=1)  # a driver that leads says it every ten seconds

# The traffic job's checkpoint, and the moment up to which its windows are final.
Closed = tuple[str, datetime | None]


async def states_of(store: Store, now: datetime) -> dict[str, JobState]:
    """What each job does now, by its name; of one that nobody tells of any more nothing is known.

    No reason to fail: the table is made by the first deployment of jobs that write it.
    """
    try:
        found = await store.states()
    except StoreUnavailable:
        return {}
    return {job: told for job, told in found.items() if now - told.updated < TOLD_WITHIN}


def traffic_job(jobs: Iterable[JobProgress]) -> JobProgress | None:
    return next((job for job in jobs if job.job == TRAFFIC_JOB), None)


class TrafficJob:
    """How far the traffic job is, up to a fifth of a second ago: each question asks.

    A job that is started anew says so before it writes, and writes its first rows later than that.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read = Shared(keep_seconds=KEPT_SECONDS)

    async def closed(self) -> Closed:
        """To be asked *before* the rows that its watermark is to judge.

        A job writes a batch's rows first and its watermark after them. A row that is read after the
        watermark is therefore at least as new as the watermark says. Read in the other order, or
        side by side, a batch may end in between, and its watermark call an older row final.
        """
        job = await self._read.ask(TRAFFIC_JOB, partial(self._store.progress_of, TRAFFIC_JOB))
        return (job.checkpoint, job.watermark) if job else ("", None)


def is_final(end: datetime, watermark: datetime | None) -> bool:
    """Nothing that ends at or before the job's watermark can change any more."""
    return watermark is not None and end <= watermark
