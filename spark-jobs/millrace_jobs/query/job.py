"""What a driver asks of a job, whatever its kind is; `kinds` says which class runs which job."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from millrace_jobs.inputs.checkpoint import Offsets
from millrace_jobs.output import Output
from millrace_jobs.query.context import JobContext, StoredContext
from millrace_jobs.query.late_events import LateEvents
from millrace_jobs.sinks.positions import Positions
from millrace_jobs.sinks.results import Results

Write = Callable[[DataFrame, int], None]  # of a batch's rows, and its number


class Job(Protocol):
    """A job as `standby` rehearses it and `leading` runs it."""

    @property
    def output_mode(self) -> str:
        """The query's output mode, in Spark's words."""

    @property
    def late_events(self) -> LateEvents | None:
        """What counts events that came too late; None where none can."""

    @property
    def is_endless(self) -> bool:
        """Whether a batch of the query takes in records until it is stopped."""

    @property
    def isolating_for(self) -> str:
        """What a batch failed by while the job looks for its records; empty while it doesn't."""

    @property
    def stored_rows(self) -> "StoredRows | None":
        """The job as what operators have counted again or retried; None without rows by key."""

    def prepare(self) -> None:
        """Ask stores for what the job has to know before it stands by, once, and before `frame`.

        Raises InvalidJob for a job that can't go on from its checkpoint.
        """

    def frame(self, max_offsets: int | None = None) -> DataFrame:
        """What the query writes.

        Args:
            max_offsets: how many records of each stream a batch has at most, by default as many as
                the job starts with; `Pacing` changes that while it runs.
        """

    def rehearse(self, frame: DataFrame, batch: int, scratch: str) -> None:
        """Do all that a batch takes, short of writing where anybody reads.

        Args:
            scratch: a folder of HDFS for what has to be written.
        """

    def on_lead(self) -> None:
        """Take the job over from the driver before, with the epoch that the context has by now."""

    def refresh(self) -> bool:
        """Look at what the query leaves out, before it starts. True if its frame has changed."""

    def start(
        self, writer: DataStreamWriter, every: str, guarded: Callable[[Write], Write]
    ) -> StreamingQuery:
        """Start the query.

        Args:
            writer: has the query's name, output mode and checkpoint.
            every: the trigger's interval, in Spark's words.
            guarded: makes of a sink one that begins a batch only while the driver leads.
        """

    def after_batch(self, progress: Any) -> None:
        """Take note of Spark's report of a batch that was committed."""

    def has_written(self, batch: int) -> bool:
        """Whether a batch that isn't committed was written in a way that forbids to run it over
        other offsets."""

    @property
    def writes_at_once(self) -> bool:
        """Whether a batch writes all or nothing; one not `has_written` may then end elsewhere."""

    def tell_position(self, batch: int, read: Offsets) -> None:
        """Commit how far the job has read by ``batch``, when it has moved without a batch. After
        `on_lead`."""

    def own_error(self, ended: Exception) -> Exception | None:
        """Why the query ended, if the job can tell more of it than Spark's wrapper says."""


class Countable(Protocol):
    """A job whose rows stand in a table by their keys, and can be computed from archives again."""

    @property
    def context(self) -> StoredContext: ...

    @property
    def output(self) -> Output: ...

    def rows(self, events: Iterable[DataFrame]) -> DataFrame:
        """The events of each stream → the rows that are stored."""


class StoredRows(Countable, Protocol):
    """Such a job in the driver that leads."""

    @property
    def context(self) -> JobContext: ...

    def correct(self, rows: Sequence[dict[str, Any]], version: int) -> None:
        """Replace rows that no batch writes any more. May be repeated."""


def results_of(context: JobContext) -> Results:
    """The sink for the job's results, which connects when it is used."""
    names = context.config.names.kafka
    verify = context.lease.verify
    return Results(
        *(context.config.kafka, names, context.job, context.settings, verify),
        skipped=lambda: context.skipped,
    )


def positions_of(context: JobContext) -> Positions:
    """The job's consumer group, which tells how far it has read."""
    group = f"{context.config.names.kafka.group_prefix}{context.job}"
    return Positions(context.config.kafka, group)


class MicroBatches:
    """What jobs have in common whose batches are written by this driver, one after the other."""

    is_endless = False
    writes_at_once = False

    @property
    def isolating_for(self) -> str:
        return ""

    @property
    def stored_rows(self) -> StoredRows | None:
        return None

    def write(self, frame: DataFrame, batch: int) -> None:
        """The query's sink. Each of its writes is idempotent, or knows what it did."""
        raise NotImplementedError

    def prepare(self) -> None:
        """The configuration says all that there is to know."""

    def refresh(self) -> bool:
        return False

    def start(
        self, writer: DataStreamWriter, every: str, guarded: Callable[[Write], Write]
    ) -> StreamingQuery:
        return writer.foreachBatch(guarded(self.write)).trigger(processingTime=every).start()

    def after_batch(self, progress: Any) -> None:
        """The sinks have told all that there is to tell."""

    def has_written(self, batch: int) -> bool:
        return False  # whole values replace whole values

    def tell_position(self, batch: int, read: Offsets) -> None:
        """Who keeps positions tells them."""

    def own_error(self, ended: Exception) -> Exception | None:
        return None
