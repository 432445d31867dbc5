"""Cuts back what an application leaves behind and nothing else ends: see docs/retention.md.

Safe at any time, beside the jobs and beside itself: the archive's job only appends, Delta's commits
are atomic, and what a kill leaves half done the next one does.
"""

import argparse
import logging
import re
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millrace_jobs import config
from millrace_jobs.kinds import kind_of
from millrace_jobs.retries import retry
from millrace_jobs.settings import ArchiveSettings
from millrace_jobs.spark_internals import hadoop_configuration, java_session, jvm

log = logging.getLogger(__name__)

CONFLICT = re.compile(r"DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED).*")
CONFLICT_SECONDS = 60
# In the names of applications and of their containers.
APPLICATION = re.compile(r"(\d{10,}_\d+)")


class Conflict(Exception):
    """Another writer's commit came first; what it made can be tried again on."""


def exists(spark: SparkSession, table: str) -> bool:
    tables = jvm(spark.sparkContext).io.delta.tables.DeltaTable
    return bool(tables.isDeltaTable(java_session(spark), table))


def compact(spark: SparkSession, table: str, now: datetime) -> None:
    """Merge the files of hours that are over, and remove files that no version refers to any more.

    Hours that are still being written would be merged again and again. Removed are files that were
    replaced some days ago (deletedFileRetentionDuration), so that meanwhile every version can be
    read.
    """
    day, hour = now.date(), now.hour
    over = f"event_date < '{day}' OR (event_date = '{day}' AND event_hour < {hour})"
    spark.sql(f"OPTIMIZE delta.`{table}` WHERE {over}")
    spark.sql(f"VACUUM delta.`{table}`")


def expire(spark: SparkSession, table: str, keep: timedelta, now: datetime) -> None:
    """Delete what was received before the time kept.

    Received, not happened: a log of years ago that is replayed today stays as long as any other.
    A file holds what was received within few hours, so nearly all are deleted whole or not touched;
    `compact` removes them from the disk later.

    Only the days that hold such events are looked at: Delta lets a delete lose against every append
    that it might have had to read, and the archive's job appends more often than a delete of a
    month's table ends.
    """
    oldest = f"timestamp < TIMESTAMP '{(now - keep).isoformat()}'"
    expired = spark.read.format("delta").load(table).where(oldest)
    days = [str(row.event_date) for row in expired.select("event_date").distinct().collect()]
    if days:
        among = ", ".join(f"DATE '{day}'" for day in sorted(days))
        spark.sql(f"DELETE FROM delta.`{table}` WHERE event_date IN ({among}) AND {oldest}")


def insist(operation: Callable[[], None], what: str) -> None:
    """Again, at growing intervals, whenever another writer was faster."""

    def attempt() -> None:
        try:
            operation()
        except Exception as error:
            conflict = CONFLICT.search(str(error))
            if conflict is None:
                raise
            raise Conflict(conflict[0]) from error

    retry(attempt, Conflict, CONFLICT_SECONDS, what)


def forget(
    spark: SparkSession, pattern: str, running: Collection[str], before: datetime
) -> list[str]:
    """Remove folders of applications that have ended, unchanged since ``before``.

    Args:
        pattern: their paths, with wildcards. A folder is named after an application or a container.
        running: ids of applications whose folders stay, however quiet.

    Returns:
        What was removed.
    """
    path = jvm(spark.sparkContext).org.apache.hadoop.fs.Path(pattern)
    files = path.getFileSystem(hadoop_configuration(spark.sparkContext))
    removed = []
    for folder in files.globStatus(path) or []:
        application = APPLICATION.search(folder.getPath().getName())
        if application is None or f"application_{application[1]}" in running:
            continue
        if _newest(files, folder) < before.timestamp() * 1000:
            files.delete(folder.getPath(), True)
            removed.append(folder.getPath().toString())
    return removed


def _newest(files: Any, folder: Any) -> int:
    """When anything in a folder was changed last, in ms since 1970."""
    newest, below = folder.getModificationTime(), files.listFiles(folder.getPath(), True)
    while below.hasNext():
        newest = max(newest, below.next().getModificationTime())
    return int(newest)


def archives(deployed: config.Config) -> Iterator[tuple[str, timedelta]]:
    """The table of each of the application's archive jobs, and how long it is kept."""
    for job in deployed.jobs:
        settings = deployed.settings[job]
        if not kind_of(job, settings.trigger).archives:
            continue
        [stream] = settings.stream_names
        keep = timedelta(days=settings.as_kind(ArchiveSettings).keep_days)
        yield deployed.archive_of(deployed.streams[stream]), keep


def left_behind(deployed: config.Config, logs: str) -> Iterator[str]:
    """Paths, with wildcards, of what applications leave; ``logs`` is YARN's folder of them."""
    yield f"{deployed.checkpoints}/.rehearsal/container_*"
    names = deployed.names.hdfs
    yield f"hdfs://{names.nameservice}{logs}/{names.user}/*/*/application_*"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="an application's configuration")
    parser.add_argument("--logs", required=True, help="YARN's folder of applications' logs")
    parser.add_argument("--left-days", type=int, required=True, help="what ended ones leave stays")
    parser.add_argument("--running", nargs="*", default=[], help="applications that have not ended")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    deployed = config.load(arguments.config)
    now = datetime.now(UTC)
    spark = SparkSession.builder.appName("upkeep").getOrCreate()
    for table, keep in archives(deployed):
        if not exists(spark, table):
            continue  # no event has come yet
        insist(partial(expire, spark, table, keep, now), f"expiry of {table}")
        insist(partial(compact, spark, table, now), f"compaction of {table}")
        log.info("%s: expired and compacted", table)
    before = now - timedelta(days=arguments.left_days)
    for pattern in left_behind(deployed, arguments.logs):
        removed = forget(spark, pattern, arguments.running, before)
        log.info("%s: %d removed", pattern, len(removed))
    spark.stop()


if __name__ == "__main__":
    main()
