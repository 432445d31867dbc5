"""Upkeep of the archives, as operations: `millrace-archive compact` and `millrace-archive expire`.

Both are safe at any time, beside the archive job and beside each other: it only appends, and Delta
commits are atomic. One that lost a race against the other fails and may be run again.
"""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millrace_jobs import config
from millrace_jobs.contract import is_archive
from millrace_jobs.stream import names_of


def exists(spark: SparkSession, table: str) -> bool:
    jvm: Any = spark.sparkContext._jvm
    return bool(jvm.io.delta.tables.DeltaTable.isDeltaTable(spark._jsparkSession, table))


def compact(spark: SparkSession, table: str, now: datetime) -> None:
    """Merge the files of hours that are over, and remove files that no version refers to any more.

    Hours that are still being written would be merged again and again. Removed are files that were
    replaced a week ago (Delta's default), so that for a week every version can be read.
    """
    day, hour = now.date(), now.hour
    over = f"event_date < '{day}' OR (event_date = '{day}' AND event_hour < {hour})"
    spark.sql(f"OPTIMIZE delta.`{table}` WHERE {over}")
    spark.sql(f"VACUUM delta.`{table}`")


def expire(spark: SparkSession, table: str, keep: timedelta, now: datetime) -> None:
    """Delete what was received before the time kept.

    Received, not happened: a log of years ago that is replayed today stays as long as any other.
    A file holds what one batch received, so nearly all are deleted whole or not touched; `compact`
    removes them from the disk when a week has passed.
    """
    oldest = (now - keep).isoformat()
    spark.sql(f"DELETE FROM delta.`{table}` WHERE timestamp < TIMESTAMP '{oldest}'")


def archives(deployed: config.Config) -> Iterator[tuple[str, timedelta]]:
    """The table of each of the application's archive jobs, and how long it is kept."""
    for job in filter(is_archive, deployed.jobs):
        settings = deployed.settings[job]
        [stream] = names_of(settings)
        yield deployed.archive_of(deployed.streams[stream]), timedelta(days=settings["keep_days"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="millrace-archive", description="Upkeep of the archives.")
    parser.add_argument("operation", choices=["compact", "expire"])
    parser.add_argument("--config", type=Path, required=True, help="an application's configuration")
    arguments = parser.parse_args()
    deployed = config.load(arguments.config)
    now = datetime.now(UTC)
    spark = SparkSession.builder.appName(f"archive-{arguments.operation}").getOrCreate()
    for table, keep in archives(deployed):
        if not exists(spark, table):
            continue  # no event has come yet
        if arguments.operation == "compact":
            compact(spark, table, now)
        else:
            expire(spark, table, keep, now)
    spark.stop()


if __name__ == "__main__":
    main()
