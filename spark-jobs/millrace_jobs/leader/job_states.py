"""What the leading driver tells readers of its jobs' states, in the table ``job_states``.

ZooKeeper has the same for operators and the gateway; the API asks nobody but Cassandra. A job that
has failed writes no heartbeat, so its state is told by the driver, and not by the job.
"""

import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from millrace_jobs.leader.background import Worker
from millrace_jobs.leader.running import AnyJob
from millrace_jobs.leadership.coordination import JobReport
from millrace_jobs.quarantine.store import in_a_line
from millrace_jobs.sinks.cassandra import Tables
from millrace_shared import job_states

log = logging.getLogger(__name__)

AGAIN_SECONDS = 10.0  # when nothing has changed, for readers who ask whether anybody tells


def report_of(job: AnyJob) -> JobReport:
    failure = job.attempts.failure
    since, runbook = (failure.since, failure.runbook) if failure else (None, "")
    return JobReport(job.state, job.trouble, since, runbook)


class JobStates:
    """Writes beside the supervisor: while Cassandra is away, it doesn't wait."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._told: Mapping[str, JobReport] = {}
        self._told_at = float("-inf")
        self._worker = Worker("job states")

    def tell(self, reports: Mapping[str, JobReport]) -> None:
        """Write what has changed, and all of it now and then."""
        now = time.monotonic()
        is_news = reports != self._told or now >= self._told_at + AGAIN_SECONDS
        if is_news and not self._worker.is_busy:
            self._told, self._told_at = dict(reports), now
            self._worker.begin(lambda: self._write(reports))

    def _write(self, reports: Mapping[str, JobReport]) -> None:
        """Newer by the clock wins: whoever leads says it again, and nothing else goes by it."""
        now = datetime.now(UTC)
        rows = [row_of(job, report, now) for job, report in reports.items()]
        try:
            self._tables.upsert(
                job_states.TABLE, job_states.COLUMNS, rows, int(now.timestamp() * 1e6)
            )
        except Exception as error:
            log.warning("the jobs' states can't be told: %s", in_a_line(error))


def row_of(job: str, report: JobReport, now: datetime) -> tuple[object, ...]:
    """In the order of `job_states.COLUMNS`."""
    since = report.failed_since
    failed_since = None if since is None else datetime.fromtimestamp(since, UTC)
    return (job, report.state, report.trouble, failed_since, report.runbook, now)
