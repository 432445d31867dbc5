"""What the jobs' progress says about results."""

from collections.abc import Iterable
from datetime import datetime

from millrace_api.store import JobProgress, Store

TRAFFIC_JOB = "traffic"


def traffic_job(jobs: Iterable[JobProgress]) -> JobProgress | None:
    return next((job for job in jobs if job.job == TRAFFIC_JOB), None)


async def read_traffic_job(store: Store) -> JobProgress | None:
    """How far the traffic job is. Read it *before* the rows that its watermark is to judge.

    A job writes a batch's rows first and its watermark after them. A row that is read after the
    watermark is therefore at least as new as the watermark says. Read in the other order, or side
    by side, a batch may end in between, and its watermark call an older row final.
    """
    return traffic_job(await store.progress())


def is_final(end: datetime, watermark: datetime | None) -> bool:
    """Nothing that ends at or before the job's watermark can change any more."""
    return watermark is not None and end <= watermark
