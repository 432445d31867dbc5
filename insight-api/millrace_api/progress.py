"""What the jobs' progress says about results."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from millrace_api.shared import Shared
from millrace_api.store import JobProgress, JobState, Store, StoreUnavailable
from millrace_shared.generations import TRAFFIC, Overlay

TRAFFIC_JOB = "traffic"
KEPT_SECONDS = 0.2
TOLD_WITHIN = timedelta(minutes=1)  # a driver that leads says it every ten seconds


class Known(NamedTuple):
    """Whose rows are read: final ones stay what they are for as long as this does."""

    checkpoint: str
    overlay: Overlay


class Closed(NamedTuple):
    """The traffic job's rows, and the moment up to which its windows are final."""

    known: Known
    watermark: datetime | None


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
        return await self._read.ask(TRAFFIC_JOB, self._closed)

    async def _closed(self) -> Closed:
        job, overlay = await asyncio.gather(
            self._store.progress_of(TRAFFIC_JOB), self._store.overlay(TRAFFIC)
        )
        if job is None:
            return Closed(Known("", overlay), None)
        return Closed(Known(job.checkpoint, overlay), job.watermark)


def is_final(end: datetime, watermark: datetime | None) -> bool:
    """Nothing that ends at or before the job's watermark can change any more."""
    return watermark is not None and end <= watermark
