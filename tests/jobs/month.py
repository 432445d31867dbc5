"""Ten weeks of an archive with its upkeep, in a process of its own: see test_month.

The JVM's clock is libfaketime's, which reads from a file how far it is ahead. Files that are
written have the kernel's time; after each step they get that clock's. Prints a line of JSON for
each step.
"""

import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from millrace_jobs import upkeep
from millrace_jobs.sinks import archive
from millrace_jobs.transforms import parse
from pyspark.sql import DataFrame, SparkSession

from tests.jobs.samples import STREAM, event
from tests.waiting import soon

STEP_DAYS = 2
EVENTS = 500
BATCHES = 2
RECORD = (
    "value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " headers array<struct<key: string, value: binary>>"
)


def main(folder: Path, settings: dict[str, Any]) -> None:
    ahead = folder.parent / "ahead"
    ahead.write_text("+0\n")
    spark = _spark(settings["spark"], settings["faketime"], ahead)
    table = str(folder / "events")
    for step in range(settings["days"] // STEP_DAYS):
        now = _go_to(spark, STEP_DAYS * (step + 1), ahead)
        for batch in range(BATCHES):
            events = _events(spark, now, step)
            archive.append(
                events,
                "event_time",
                table,
                "month",
                BATCHES * step + batch,
                writers=1,
                writers_per_hour=1,
                old_after_hours=48,
            )
        _leave_an_application_behind(folder, step)
        _stamp(folder, now)
        upkeep.expire(spark, table, timedelta(days=settings["keep_days"]), now)
        upkeep.compact(spark, table, now)
        before = now - timedelta(days=settings["left_days"])
        upkeep.forget(spark, str(folder / "logs" / "application_*"), [], before)
        _stamp(folder, now)
        print(json.dumps({"day": STEP_DAYS * (step + 1)} | _disk(folder)), flush=True)
    spark.stop()


def _spark(settings: dict[str, str], faketime: str, ahead: Path) -> SparkSession:
    """Only the JVM's clock is another one: Python can't sleep by it."""
    clock = {
        "LD_PRELOAD": faketime,
        "FAKETIME_TIMESTAMP_FILE": str(ahead),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # or its threads spin instead of waiting
        "NO_FAKE_STAT": "1",
    }
    os.environ.update(clock)
    try:
        builder = SparkSession.builder.master("local[2]").appName("month")
        spark = builder.config(map=settings).getOrCreate()
    finally:
        for name in clock:
            del os.environ[name]
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _go_to(spark: SparkSession, day: int, ahead: Path) -> datetime:
    """At least a day ahead: what has the kernel's time is known by that."""
    ahead.write_text(f"+{day + 1}d\n")
    there = datetime.now(UTC) + timedelta(days=day + 1)
    soon(lambda: _jvms_time(spark).date() >= there.date(), "libfaketime has read its file again")
    return there


def _jvms_time(spark: SparkSession) -> datetime:
    milliseconds = spark._jvm.java.lang.System.currentTimeMillis()
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _events(spark: SparkSession, now: datetime, step: int) -> DataFrame:
    """Of the hour that is over, so that upkeep merges them."""
    happened = (now - timedelta(hours=1)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    rows = [
        (event(event_id=f"{step}-{number}", event_time=happened), "events", 0, number, now, None)
        for number in range(EVENTS)
    ]
    records = spark.createDataFrame(rows, RECORD).coalesce(1)
    return parse.valid(records.transform(parse.classify, STREAM), STREAM)


def _leave_an_application_behind(folder: Path, step: int) -> None:
    logs = folder / "logs" / f"application_1700000000000_{step:04}"
    logs.mkdir(parents=True)
    (logs / "stderr").write_text("gone\n" * 1000)


def _stamp(folder: Path, now: datetime) -> None:
    """What has the kernel's time was written just now; everything else is ahead of it."""
    probe = folder / "probe"
    probe.write_text("")
    kernels = probe.stat().st_mtime
    probe.unlink()
    for path in (folder, *folder.rglob("*")):
        if path.stat().st_mtime <= kernels:
            os.utime(path, (now.timestamp(), now.timestamp()))


def _disk(folder: Path) -> dict[str, int]:
    def count(files: Iterator[Path]) -> int:
        return sum(1 for file in files if file.is_file())

    table, logs = folder / "events", folder / "logs"
    return {
        "data_files": count(table.rglob("*.parquet"))
        - count((table / "_delta_log").glob("*.parquet")),
        "log_files": count((table / "_delta_log").rglob("*")),
        "applications": count(logs.rglob("stderr")),
        "kibibytes": sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) // 1024,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
