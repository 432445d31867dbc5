"""The product's jobs on what a topic has, as often as it is told, in a JVM that stays warm.

Its one argument is JSON: brokers, folder, settings, jobs (the product's settings of each), stream,
max_offsets. A line of JSON on its input is a run: job, topic and jobs of its size.
Each is answered by a line: what it cost, and what came of it.

Jobs do all that theirs do but for writing to Cassandra and Kafka: traffic's windows are collected.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC
from statistics import median
from typing import Any

from millrace_jobs.declared.job import rows_of
from millrace_jobs.inputs import sources
from millrace_jobs.jobs.sessions import sessions
from millrace_jobs.kinds import read_settings
from millrace_jobs.settings import DeclaredSettings, JobSettings, TrafficSettings
from millrace_jobs.stream import Stream
from millrace_jobs.transforms import parse
from millrace_jobs.transforms.traffic import PageViewRule, Sketches, traffic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from bench.cpu import processor_seconds

Windows = dict[str, tuple[int, int]]
Write = Callable[[DataFrame, int], None]


def with_traffic(events: DataFrame, stream: Stream, settings: JobSettings) -> DataFrame:
    own = settings.as_kind(TrafficSettings)
    rule, sketches = PageViewRule.of(own), Sketches.of(own)
    return events.transform(traffic, rule, own.watermark_seconds, sketches, own.tasks)


def with_sessions(events: DataFrame, stream: Stream, settings: JobSettings) -> DataFrame:
    return rows_of(sessions, [events], [stream], settings.as_kind(DeclaredSettings))


def collecting(windows: Windows) -> Write:
    """As the traffic job, whose newest row of a window counts."""

    def write(rows: DataFrame, batch: int) -> None:
        for row in rows.collect():
            start = round(1000 * row.window_start.replace(tzinfo=UTC).timestamp())
            windows[f"{row.window} {start}"] = row.requests, row.bytes

    return write


def on_executors(rows: DataFrame, batch: int) -> None:
    rows.write.format("noop").mode("overwrite").save()


JOBS = {"traffic": with_traffic, "sessions": with_sessions}


def started(
    spark: SparkSession, asked: dict[str, Any], run: dict[str, Any], folder: str, windows: Windows
) -> StreamingQuery:
    """A query in a session of its own, as the product's driver has it."""
    own, session = read_settings(run["job"], asked["jobs"][run["job"]]), spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", own.shuffle_partitions)
    stream = Stream.of("events", asked["stream"])
    records = sources.stream(session, asked["brokers"], run["topic"], own, asked["max_offsets"])
    events = parse.valid(records.transform(parse.classify, stream), stream)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", folder)
    return (
        JOBS[run["job"]](events, stream, own)
        .writeStream.outputMode("update")
        .foreachBatch(collecting(windows) if run["job"] == "traffic" else on_executors)
        .option("checkpointLocation", folder)
        .start()
    )


def perform(spark: SparkSession, asked: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    assert spark._jvm is not None  # a session of our own, not of Spark Connect
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    windows: list[Windows] = [{} for _ in range(run["jobs"])]
    with tempfile.TemporaryDirectory(dir=asked["folder"]) as folder:
        before = processor_seconds(jvm) + time.process_time()
        queries = [
            started(spark, asked, run, f"{folder}/{number}", own)
            for number, own in enumerate(windows)
        ]
        for query in queries:
            query.processAllAvailable()
        used = processor_seconds(jvm) + time.process_time() - before
        for query in queries:
            query.stop()
    return found([query.recentProgress for query in queries]) | {
        "core_seconds": used,
        "windows": windows,
    }


def found(progress: list[list[StreamingQueryProgress]]) -> dict[str, Any]:
    """What the queries say of themselves."""
    batches = [[batch for batch in own if batch.numInputRows] for own in progress]
    states = [state for own in batches for state in own[-1].stateOperators]
    return {
        "read": [sum(batch.numInputRows for batch in own) for own in batches],
        "batch_ms": median(
            batch.durationMs["triggerExecution"] for own in batches for batch in own
        ),
        "state_rows": sum(state.numRowsTotal for state in states),
        "state_bytes": sum(state.memoryUsedBytes for state in states),
        "dropped": sum(
            state.numRowsDroppedByWatermark
            for own in batches
            for batch in own
            for state in batch.stateOperators
        ),
    }


def main(asked: dict[str, Any]) -> None:
    os.environ["TZ"] = "UTC"  # of the rows that are collected
    time.tzset()
    spark = SparkSession.builder.config(map=asked["settings"]).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        print(json.dumps(perform(spark, asked, json.loads(line))), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
