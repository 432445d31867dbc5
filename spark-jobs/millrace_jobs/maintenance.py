"""Upkeep of the archive, as operations: `millrace-archive compact` and `millrace-archive expire`.

Both are safe at any time, beside the archive job and beside each other: it only appends, and Delta
commits are atomic. One that lost a race against the other fails and may be run again.
"""

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from millrace_jobs import config


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="millrace-archive", description="Upkeep of the archive.")
    parser.add_argument("operation", choices=["compact", "expire"])
    parser.add_argument("--config", type=Path, required=True, help="an application's configuration")
    arguments = parser.parse_args()
    deployed = config.load(arguments.config)
    now = datetime.now(UTC)
    spark = SparkSession.builder.appName(f"archive-{arguments.operation}").getOrCreate()
    if arguments.operation == "compact":
        compact(spark, deployed.archive, now)
    else:
        keep = timedelta(days=deployed.settings["archive"]["keep_days"])
        expire(spark, deployed.archive, keep, now)
    spark.stop()


if __name__ == "__main__":
    main()
