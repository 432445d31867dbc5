"""What the jobs' progress says about results."""

from collections.abc import Iterable
from datetime import datetime

from millrace_api.store import JobProgress, Store

TRAFFIC_JOB = "traffic"


def traffic_watermark(jobs: Iterable[JobProgress]) -> datetime | None:
    """Windows that end at or before this moment can't change any more."""
    return next((job.watermark for job in jobs if job.job == TRAFFIC_JOB), None)


async def read_watermark(store: Store) -> datetime | None:
    """The traffic job's watermark. Read it *before* the rows that it is to judge.

    A job writes a batch's rows first and its watermark after them. A row that is read after the
    watermark is therefore at least as new as the watermark says. Read in the other order, or side
    by side, a batch may end in between, and its watermark call an older row final.
    """
    return traffic_watermark(await store.progress())
