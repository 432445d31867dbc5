"""Runs an application: all its jobs in one Spark driver, until told to stop or a job fails.

A failure ends the driver with an error, and YARN starts it again; every job goes on from its
checkpoint. So nothing here tries to repair anything.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from millrace_jobs.checkpoint import Checkpoint
from millrace_jobs.config import Config
from millrace_jobs.context import JobContext
from millrace_jobs.coordination import Coordination
from millrace_jobs.jobs.archive import Archive
from millrace_jobs.jobs.traffic import Traffic
from millrace_jobs.progress import Progress
from millrace_jobs.sinks.cassandra import Tables

log = logging.getLogger(__name__)

JOBS: dict[str, type[Archive | Traffic]] = {"archive": Archive, "traffic": Traffic}
POLL_SECONDS = 1.0
DRAIN_SECONDS = 60.0


class Drained(Exception):
    """Raised instead of beginning another batch. The next driver begins it."""


class Superseded(Exception):
    """Another driver has a higher epoch; what this one writes is lost, as it should be."""


@dataclass(frozen=True)
class RunningJob:
    context: JobContext
    query: StreamingQuery
    progress: Progress


def run(config: Config) -> None:
    """The whole life of a driver."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for chatty in ("cassandra", "kazoo", "py4j"):  # reconnections and calls are their own business
        logging.getLogger(chatty).setLevel(logging.ERROR)
    _use_utc()
    # First of all, because YARN takes a driver for dead that doesn't register in time.
    spark = SparkSession.builder.appName(config.application).getOrCreate()
    coordination = Coordination(config.zookeeper, config.application)
    draining = threading.Event()
    tables = Tables(config)
    jobs: list[RunningJob] = []
    try:
        for name in config.jobs:
            jobs.append(start(name, config, spark, tables, coordination, draining))
        supervise(jobs, coordination, config.version)
    finally:
        drain(jobs, draining)
        tables.close()
        coordination.close()
        spark.stop()


def start(
    name: str,
    config: Config,
    spark: SparkSession,
    tables: Tables,
    coordination: Coordination,
    draining: threading.Event,
) -> RunningJob:
    """Take the job over from whoever ran it before, and start its query."""
    settings = config.settings[name]
    # A session of its own: a stateful query keeps the number of partitions it first ran with.
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", settings["shuffle_partitions"])
    path = f"{config.checkpoints}/{name}"
    epoch = coordination.take_epoch(name)
    log.info("job %s: epoch %d, checkpoint %s", name, epoch, path)
    context = JobContext(name, config, session, tables, Checkpoint(session, path), epoch)
    job = JOBS[name](context)
    committed = context.checkpoint.last_committed()
    # Jobs share executors in turns; otherwise a long batch of one would hold up the others.
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    query = (
        job.frame()
        .writeStream.queryName(name)
        .outputMode(job.output_mode)
        .foreachBatch(_until_drained(job.write, draining))
        .option("checkpointLocation", path)
        .trigger(processingTime=f"{settings['trigger_seconds']} seconds")
        .start()
    )
    progress = Progress(context, query, job.late_events)
    progress.catch_up(committed)
    return RunningJob(context, query, progress)


def supervise(jobs: list[RunningJob], coordination: Coordination, version: str) -> None:
    """Returns when the application is to stop; raises when it can't go on."""
    while not coordination.is_stop_desired(version):
        for job in jobs:
            if error := job.query.exception():
                raise error
            if coordination.is_superseded(job.context.job, job.context.epoch):
                raise Superseded(job.context.job)
            job.progress.follow()
        time.sleep(POLL_SECONDS)
    log.info("asked to stop")


def drain(jobs: list[RunningJob], draining: threading.Event) -> None:
    """Let running batches end and begin no others.

    `StreamingQuery.stop` would interrupt a running batch, in the middle of its Python sink.
    """
    draining.set()
    deadline = time.monotonic() + DRAIN_SECONDS
    while any(job.query.isActive for job in jobs) and time.monotonic() < deadline:
        for job in jobs:
            if job.query.isActive and not job.query.status["isTriggerActive"]:
                job.query.stop()
        time.sleep(POLL_SECONDS / 10)


def _until_drained(
    write: Callable[[DataFrame, int], None], draining: threading.Event
) -> Callable[[DataFrame, int], None]:
    def write_batch(frame: DataFrame, batch: int) -> None:
        if draining.is_set():
            raise Drained
        write(frame, batch)

    return write_batch


def _use_utc() -> None:
    """Rows come to Python in local time without a zone: let that be UTC wherever this runs."""
    os.environ["TZ"] = "UTC"
    time.tzset()
