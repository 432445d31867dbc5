"""What the jobs' progress says about results."""

from collections.abc import Iterable
from datetime import datetime

from millrace_api.store import JobProgress

TRAFFIC_JOB = "traffic"


def traffic_watermark(jobs: Iterable[JobProgress]) -> datetime | None:
    """Windows that end at or before this moment can't change any more."""
    return next((job.watermark for job in jobs if job.job == TRAFFIC_JOB), None)
