"""An archive's days, one after the other, on a clock that libfaketime moves; see test_month.py.

Its argument is a folder for the table. Standard input has a line of JSON: the session's settings,
how many days, and how many of them an archive is kept. Prints a line of JSON for each day: what
the table takes on the disk after the night's upkeep, and how many events it has.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from millrace_jobs import upkeep
from millrace_jobs.sinks import archive
from pyspark.sql import DataFrame, SparkSession

HOURS = range(0, 24, 4)
EVENTS = 200  # in each of these hours
SCHEMA = (
    "event_time timestamp, topic string, partition int, offset bigint, timestamp timestamp,"
    " url string"
)


def main(table: Path, settings: dict[str, str], days: int, keep: timedelta) -> None:
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    known: set[Path] = set()
    began = time.time()
    for day in range(days):
        move_clock(day)
        now = datetime.now(UTC)
        assert abs(now.timestamp() - began - 86400 * day) < 86400, "the clock doesn't move"
        for hour in HOURS:
            batch = day * len(HOURS) + hour
            archive.append(
                events(spark, now, batch), "event_time", str(table), "month", batch, 1, 1
            )
        upkeep.expire(spark, str(table), keep, now)
        upkeep.compact(spark, str(table), now)
        known |= dated(set(files(table)) - known, now)
        sizes = [path.stat().st_size for path in files(table)]
        rows = spark.read.format("delta").load(str(table)).count()
        print(json.dumps({"day": day, "bytes": sum(sizes), "files": len(sizes), "rows": rows}))
        sys.stdout.flush()


def move_clock(day: int) -> None:
    """libfaketime reads the file at each look at the clock."""
    Path(os.environ["FAKETIME_TIMESTAMP_FILE"]).write_text(f"+{day}d\n")


def events(spark: SparkSession, now: datetime, batch: int) -> DataFrame:
    """Received and happened in an hour of its own of yesterday, so that night merges them."""
    at = (now - timedelta(days=1)).replace(tzinfo=None) + timedelta(hours=batch % 24)
    rows = [
        (at, "events", 0, batch * EVENTS + number, at, f"/{number}/{'x' * (number % 50)}")
        for number in range(EVENTS)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def files(table: Path) -> Iterator[Path]:
    return (path for path in table.rglob("*") if path.is_file())


def dated(new: set[Path], now: datetime) -> set[Path]:
    """The kernel has the real time: files get that of the day which is simulated."""
    for path in new:
        os.utime(path, (now.timestamp(), now.timestamp()))
    return new


if __name__ == "__main__":
    asked = json.loads(sys.stdin.readline())
    keep = timedelta(days=asked["keep_days"])
    main(Path(sys.argv[1]), asked["settings"], asked["days"], keep)
