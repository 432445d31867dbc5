"""A job that could start at any moment: what stands by, and what leads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from millrace_jobs.config import Config
from millrace_jobs.inputs import continuity
from millrace_jobs.inputs.checkpoint import Checkpoint
from millrace_jobs.inputs.continuity import Found, Known
from millrace_jobs.kinds import kind_of
from millrace_jobs.leadership.lease import Lease
from millrace_jobs.query import skips
from millrace_jobs.query.context import JobContext
from millrace_jobs.query.job import Job
from millrace_jobs.settings import DeclaredSettings
from millrace_jobs.sinks.cassandra import Tables

if TYPE_CHECKING:  # `kinds` names the classes as text; here mypy holds each of them to the protocol
    from millrace_jobs.declared.job import Declared
    from millrace_jobs.declared.real_time import RealTime
    from millrace_jobs.programs.archive import Archive
    from millrace_jobs.programs.traffic import Traffic

    JOBS: tuple[Callable[[JobContext], Job], ...] = (Archive, Traffic, Declared, RealTime)


@dataclass(frozen=True)
class ReadyJob:
    """A job that could start at any moment. Its ``frame`` is built: that takes half a second."""

    context: JobContext
    job: Job
    frame: DataFrame

    @property
    def name(self) -> str:
        return self.context.job


@dataclass(frozen=True)
class UnreadyJob:
    """A job that couldn't be prepared. Whoever leads tries to again."""

    name: str
    error: Exception
    prepare: Callable[[], ReadyJob]


def prepare(
    name: str, config: Config, spark: SparkSession, tables: Tables, lease: Lease
) -> ReadyJob:
    """A job with a session of its own: a stateful query keeps its first number of partitions."""
    session = spark.newSession()
    settings = config.settings[name]
    session.conf.set("spark.sql.shuffle.partitions", settings.shuffle_partitions)
    if isinstance(settings, DeclaredSettings):
        session.conf.set("spark.sql.streaming.stateStore.providerClass", settings.state_store)
        # Rows are collected with a limit, which would try one partition first.
        session.conf.set("spark.sql.limit.initialNumPartitions", settings.shuffle_partitions)
    checkpoint = Checkpoint(session, f"{config.checkpoints}/{settings.checkpoint}")
    context = JobContext(name, config, session, tables, checkpoint, lease)
    skips.look_up(context)
    job: Job = kind_of(name, settings.trigger).load()(context)
    job.prepare()
    return ReadyJob(context, job, job.frame())


def check_continuity(context: JobContext, known: Known | None, kept_checkpoint: str | None) -> None:
    """Raises CheckpointMismatch unless the checkpoint goes on where the job stopped.

    Another folder than the one that was kept is a new start that somebody has asked for.

    Args:
        known: what the job wrote last.
        kept_checkpoint: the name of the folder that the job's last driver had.
    """
    if known is None or kept_checkpoint not in (None, context.settings.checkpoint):
        return
    checkpoint = context.checkpoint
    found = Found(checkpoint.query_id(), checkpoint.newest())
    continuity.check(context.job, checkpoint.location, known, found)
