"""Do an application's jobs write? Read from where the API reads it: Cassandra's job_progress."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cassandra import DriverException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import DCAwareRoundRobinPolicy

from millrace_gateway.settings import Cassandra
from millrace_shared import job_progress

UNANSWERED = (DriverException, NoHostAvailable)
# A job's heartbeat comes several times in this span.
FRESH = timedelta(seconds=60)


class JobActivity:
    """The jobs of one version of an application."""

    def __init__(self, store: Cassandra, jobs: list[str], version: str) -> None:
        self._jobs = jobs
        self._version = version
        query = job_progress.select("job", "version", "updated")
        self._query = query.format(keyspace=store.keyspace)
        profile = ExecutionProfile(DCAwareRoundRobinPolicy(local_dc=store.datacenter))
        self._cluster = Cluster(
            store.hosts, port=store.port, execution_profiles={EXEC_PROFILE_DEFAULT: profile}
        )
        self._session = self._cluster.connect(store.keyspace)

    def __enter__(self) -> "JobActivity":
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.shutdown()

    def missing(self) -> Iterator[str]:
        """One line for each job that has not written with this version just now."""
        try:
            rows = self._session.execute(self._query)
        except UNANSWERED as error:
            yield f"Cassandra doesn't answer: {error}"
            return
        found = {row.job: row for row in rows}
        for job in self._jobs:
            row = found.get(job)
            if row is None or row.version != self._version:
                yield f"job {job} has not written yet"
            elif datetime.now(UTC) - row.updated.replace(tzinfo=UTC) > FRESH:
                yield f"job {job} last wrote at {row.updated:%H:%M:%S} UTC"
