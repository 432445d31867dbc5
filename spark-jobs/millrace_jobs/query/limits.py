"""What a job may take of the memory that all jobs share: keys of state, rows of a batch."""

from pyspark.sql import DataFrame, Row, SparkSession

from millrace_jobs.settings import DeclaredSettings
from millrace_jobs.spark_internals import state_rows


class BeyondLimit(Exception):
    """A batch would take more than its job may have, wherever it runs again; says what to do."""


def collect(frame: DataFrame, job: str, settings: DeclaredSettings) -> list[Row]:
    """A batch's rows. Raises BeyondLimit as soon as there are too many."""
    rows = frame.limit(settings.max_rows + 1).collect()
    if len(rows) > settings.max_rows:
        raise BeyondLimit(
            f"job {job}: a batch changes more than {settings.max_rows:,} rows (max_rows): lower"
            " max_events_per_second, or give it coarser windows or keys, and deploy it"
        )
    return rows


def check_keys(spark: SparkSession, query_id: str, job: str, settings: DeclaredSettings) -> None:
    """Raises BeyondLimit if the batch whose rows were just collected leaves too much state.

    Before anything is written: the state of a batch that isn't committed doesn't count.
    """
    query = spark.streams.get(query_id)
    keys = state_rows(query) if query else 0
    if keys > settings.max_keys:
        raise BeyondLimit(
            f"job {job}: its state would have {keys:,} keys, more than {settings.max_keys:,}"
            " (max_keys): raise that if executors have room, or give the job coarser keys or a"
            " shorter watermark_seconds and a new checkpoint (docs/new-state.md), and deploy it"
        )
