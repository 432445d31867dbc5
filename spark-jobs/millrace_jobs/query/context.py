"""What a job gets to work with."""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from millrace_jobs.config import Config
from millrace_jobs.inputs.checkpoint import Checkpoint
from millrace_jobs.inputs.skipped import SkippedRange
from millrace_jobs.inputs.sources import record_by_record
from millrace_jobs.leadership.lease import Lease
from millrace_jobs.lookup import Lookup
from millrace_jobs.query.batch_size import BatchSize
from millrace_jobs.query.write_version import write_version
from millrace_jobs.settings import DeclaredSettings, JobSettings
from millrace_jobs.sinks.batch_commit import BatchIdentity
from millrace_jobs.sinks.cassandra import Tables
from millrace_jobs.stream import Stream


@dataclass
class AnalysisContext:
    """What the plan of a job's query is made of; ``spark`` is a session of the job's own.

    `millrace jobs check` has no more than this: no query runs, and no store is asked.
    """

    job: str
    config: Config
    spark: SparkSession

    @property
    def settings(self) -> JobSettings:
        return self.config.settings[self.job]

    @property
    def streams(self) -> list[Stream]:
        """What the job reads, in the order of its arguments."""
        return [self.config.streams[name] for name in self.settings.stream_names]

    @property
    def stream(self) -> Stream:
        """The stream of a job that reads one. Raises ValueError for a job that reads several."""
        [stream] = self.streams
        return stream

    @property
    def skipped(self) -> tuple[SkippedRange, ...]:
        """What the job leaves out for good: nothing, before a driver has looked it up."""
        return ()

    @property
    def lookups(self) -> list[Lookup]:
        """The tables whose facts a declared job's rows get."""
        tables = self.settings.as_kind(DeclaredSettings).tables
        return [self.config.lookups[name] for name in tables]

    @property
    def max_offsets(self) -> int:
        """Records that a batch has of a stream at most. All jobs can take as much in the same time:
        what one has taken, no other has to leave. A second's at least: full batches take longer.
        No more than the rows that a declared job's batch may change."""
        settings = self.settings
        most = int(settings.max_events_per_second * self._seconds)
        return min(most, settings.max_rows) if isinstance(settings, DeclaredSettings) else most

    @property
    def least_offsets(self) -> int:
        """Records that a batch has of a stream at most when its query starts, whatever waits."""
        return min(int(self.settings.least_events_per_second * self._seconds), self.max_offsets)

    @property
    def _seconds(self) -> float:
        return max(self.settings.trigger_seconds, 1)


@dataclass
class StoredContext(AnalysisContext):
    """What it takes to hold a job's rows to its archives."""

    tables: Tables


@dataclass
class JobContext(StoredContext):
    """One run of one job in a driver.

    Attributes:
        epoch: its fencing epoch, which it has from the moment on that its driver leads.
        careful_batch: the batch whose reading killed executors; it and the next one are read record
            by record.
        reads_one_by_one: whether its query does so: for those, or because a poll of more records
            would reach what is skipped.
        skipped: what the job leaves out for good; known when its query starts.
        skips_ahead: those of them that its query has yet to pass.
        too_large: what it has found by itself that no executor can hold; other jobs are told.
        told_of: what others have found that the job was told of.
        begun: the newest batch that its checkpoint had as its query started.
        own: the newest batch that a query of this driver has begun, and that failed.
        untouched: a batch that was planned since, and not run.
        batch_size: what its last query here has learnt of these cores; None for one that failed.
    """

    checkpoint: Checkpoint
    lease: Lease
    epoch: int | None = None
    careful_batch: int | None = None
    reads_one_by_one: bool = False
    skipped: tuple[SkippedRange, ...] = ()
    skips_ahead: tuple[SkippedRange, ...] = ()
    too_large: frozenset[SkippedRange] = frozenset()
    told_of: frozenset[SkippedRange] = frozenset()
    begun: int | None = None
    own: int | None = None
    untouched: int | None = None
    batch_size: BatchSize | None = None

    @property
    def settings(self) -> JobSettings:
        settings = self.config.settings[self.job]
        return record_by_record(settings) if self.reads_one_by_one else settings

    @property
    def trigger_seconds(self) -> float:
        """How far apart a query's batches begin. While it has skips ahead, the next one begins at
        once, as it is what has the query start behind them."""
        return 0.0 if self.skips_ahead else self.settings.trigger_seconds

    def version(self, batch: int) -> int:
        """The version of all that a batch writes. Raises RuntimeError before the driver leads."""
        if self.epoch is None:
            raise RuntimeError(f"job {self.job} writes before its driver leads")
        return write_version(self.epoch, batch)

    def identify(self, batch: int) -> BatchIdentity:
        """The batch that is being run. Raises RuntimeError before the driver leads."""
        version = self.version(batch)
        read = self.checkpoint.batch(batch).end
        return BatchIdentity(self.checkpoint_id(), batch, version, read)

    def checkpoint_id(self) -> str:
        """The query's id, the same for the life of its checkpoint. Known inside a batch only."""
        return str(self.spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
