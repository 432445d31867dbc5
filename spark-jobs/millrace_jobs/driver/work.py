"""A driver's work: stands by with all its jobs, then leads."""

import logging
import os
import time
from collections.abc import Iterable
from functools import partial

from pyspark.sql import SparkSession

from millrace_jobs.config import Config
from millrace_jobs.declared.loader import InvalidJob
from millrace_jobs.leader.job_states import JobStates
from millrace_jobs.leader.supervisor import Supervised, drain, supervise
from millrace_jobs.leadership.coordination import Coordination
from millrace_jobs.quarantine.store import in_a_line
from millrace_jobs.requests.operator_requests import OperatorRequests
from millrace_jobs.sinks.cassandra import Tables
from millrace_jobs.spark_internals import hadoop_configuration, jvm, put_pool
from millrace_jobs.standby import executors
from millrace_jobs.standby.executor_warmup import ExecutorWarmup
from millrace_jobs.standby.executors import Executors
from millrace_jobs.standby.ready import ReadyJob, UnreadyJob, prepare
from millrace_jobs.standby.wait import await_leadership
from millrace_shared.driver_record import DriverRecord

log = logging.getLogger(__name__)

TRIGGERS = "org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor"


def work(config: Config, coordination: Coordination, *, rehearsing: bool) -> None:
    """Start Spark, and stand by and lead with it. Returns when the application is to stop."""
    _use_utc()
    number = executors.configured_number()
    builder = SparkSession.builder.appName(config.application).config("spark.executor.instances", 1)
    spark = builder.config("spark.ui.port", config.web_port).getOrCreate()
    try:
        _forget_sources(spark)
        _bear_full_triggers(spark)
        for job in config.jobs:
            put_pool(spark.sparkContext, job, config.settings[job].share)
        serve(config, spark, Executors(spark, number), coordination, rehearsing=rehearsing)
    finally:
        spark.stop()


def serve(
    config: Config,
    spark: SparkSession,
    workers: Executors,
    coordination: Coordination,
    *,
    rehearsing: bool,
) -> None:
    """Stand by, then lead until told to stop, until something fails, or another one leads."""
    tables = Tables(config)
    jobs: list[Supervised] = []
    try:
        ready = prepare_all(config, spark, tables, coordination)
        able = [one for one in ready if isinstance(one, ReadyJob)]
        enabled = [one for one in able if not coordination.is_disabled(one.name)]
        quiet_seconds = 2 * config.lease_seconds + config.catch_up_seconds
        await_leadership(enabled, workers, quiet_seconds, coordination, rehearsing=rehearsing)
        workers.complete()
        if coordination.is_stop_desired(config.version):
            return
        coordination.announce("leading")
        jobs += map(Supervised, ready)
        states, requests = JobStates(tables), OperatorRequests(coordination)
        warmup = ExecutorWarmup(workers)
        try:
            supervise(jobs, coordination, config.version, workers, states, requests, warmup)
        finally:
            warmup.end()
        coordination.announce("draining")
    finally:
        if not coordination.lease.is_lost:
            drain(jobs)  # else nothing that its batches still write would count
        coordination.lease.release()
        tables.close()


def prepare_all(
    config: Config, spark: SparkSession, tables: Tables, coordination: Coordination
) -> list[ReadyJob | UnreadyJob]:
    """The jobs, in the order in which they start. One that can't be prepared fails alone.

    Raises InvalidJob of a version that is to replace another one, and can't go on with a job that
    goes on there.
    """

    def prepared(name: str) -> ReadyJob | UnreadyJob:
        again = partial(prepare, name, config, spark, tables, coordination.lease)
        try:
            return again()
        except Exception as error:
            others = coordination.others()
            if isinstance(error, InvalidJob) and runs_elsewhere(name, config.version, others):
                raise
            log.error("job %s can't be prepared: %s", name, in_a_line(error))
            return UnreadyJob(name, error, again)

    # The one whose results are waited for starts first, and is drained last.
    names = sorted(config.jobs, key=lambda name: config.settings[name].trigger_seconds)
    return [prepared(name) for name in names]


def runs_elsewhere(job: str, version: str, drivers: Iterable[DriverRecord]) -> bool:
    """Whether a driver of another version leads with the job, and it hasn't failed there."""
    return any(
        driver.state == "leading"
        and driver.version != version
        and driver.jobs.get(job, "failed") != "failed"
        for driver in drivers
    )


def _forget_sources(spark: SparkSession) -> None:
    """Hadoop's configuration no longer tells from which file each of its values is.

    Each batch sends it to every executor, these names compressed one by one: to write and to read
    it took 7 to 8 % of what drivers and executors computed at 2,000 events/s. No method of
    `Configuration` leaves the names out.
    """
    configuration = hadoop_configuration(spark.sparkContext)
    configuration.size()  # read all files first
    field = configuration.getClass().getDeclaredField("updatingResource")
    field.setAccessible(True)
    field.set(configuration, jvm(spark.sparkContext).java.util.concurrent.ConcurrentHashMap())


def _bear_full_triggers(spark: SparkSession) -> None:
    """Spark warns of each batch that takes longer than its trigger. A busy laptop's all do, and
    nothing rotates a container's log: a line each second, for months."""
    log4j = jvm(spark.sparkContext).org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(TRIGGERS, log4j.Level.ERROR)


def _use_utc() -> None:
    """Rows come to Python in local time without a zone: let that be UTC wherever this runs."""
    os.environ["TZ"] = "UTC"
    time.tzset()
