"""Steps of the jobs on records in files, in a JVM of their own.

Its one argument is JSON: records (files), events, stream, jobs (the product's settings) and
settings. A line of JSON on its input is a step's name, and is answered with what an event cost; or
"steps", which is answered with all of them; or "results", which is answered with traffic's rows; or
"archived", which is answered with the bytes of the archive's files.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from millrace_jobs.jobs.sessions import sessions
from millrace_jobs.settings import ArchiveSettings, TrafficSettings
from millrace_jobs.sinks import archive
from millrace_jobs.stream import Stream
from millrace_jobs.transforms import parse
from millrace_jobs.transforms.traffic import PageViewRule, Sketches, traffic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.cpu import processor_seconds


@dataclass
class Work:
    """``jobs`` are the product's settings of each, as a deployment has them."""

    records: DataFrame
    stream: Stream
    jobs: dict[str, dict[str, Any]]

    @cached_property
    def steps(self) -> dict[str, Callable[[], None]]:
        """Each does what those before it do, and more, but for the last two."""
        return {
            "read": lambda: consume(self.records),
            "parse": lambda: consume(self._classified().drop("is_event")),
            "classify": lambda: consume(self._events()),
            "traffic": lambda: consume(self._traffic()),
            "sessions": lambda: consume(self._events().transform(sessions, self.jobs["sessions"])),
            "archive": self._archive,
        }

    def results(self) -> list[dict[str, Any]]:
        """The traffic's rows in one order; pages with as many views have none in a sketch."""
        rows = self._traffic().drop("visitors", "pages_error")
        ordered = rows.withColumn("pages", F.array_sort("pages")).orderBy("window", "window_start")
        texts = ordered.select(F.to_json(F.struct("*")).alias("text"))
        return [json.loads(row.text) for row in texts.collect()]

    def _classified(self) -> DataFrame:
        return self.records.transform(parse.classify, self.stream)

    def _events(self) -> DataFrame:
        return parse.valid(self._classified(), self.stream)

    def _traffic(self) -> DataFrame:
        own = TrafficSettings.read(self.jobs["traffic"])
        rule, sketches = PageViewRule.of(own), Sketches.of(own)
        return self._events().transform(traffic, rule, own.watermark_seconds, sketches, own.tasks)

    def archived(self) -> int:
        with tempfile.TemporaryDirectory() as folder:
            self._write_archive(folder)
            return sum(file.stat().st_size for file in Path(folder).rglob("*.parquet"))

    def _archive(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self._write_archive(folder)

    def _write_archive(self, folder: str) -> None:
        """Into Parquet: Delta's log is a batch's cost, not an event's."""
        own = ArchiveSettings.read(self.jobs["archive"])
        events = archive.with_partitions(
            self._events(), self.stream.event_time, own.old_after_hours
        )
        dealt = archive.dealt(events, own.shuffle_partitions, own.writers_per_hour)
        dealt.write.partitionBy(*archive.PARTITIONS).mode("overwrite").parquet(folder)


def consume(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def main(asked: dict[str, Any]) -> None:
    spark = SparkSession.builder.config(map=asked["settings"]).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    assert spark._jvm is not None  # a session of our own, not of Spark Connect
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    records = spark.read.parquet(asked["records"])
    work = Work(records, Stream.of("events", asked["stream"]), asked["jobs"])

    def cost(step: str) -> float:
        before = processor_seconds(jvm)
        work.steps[step]()
        return 1e6 * (processor_seconds(jvm) - before) / asked["events"]

    others: dict[str, Callable[[], Any]] = {
        "steps": lambda: list(work.steps),
        "results": work.results,
        "archived": work.archived,
    }
    for line in sys.stdin:
        step = json.loads(line)
        answer = others[step]() if step in others else cost(step)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
