"""A query in a JVM that is too small for some of its records: what `leader.supervisor` does with
its job, without a cluster. Prints what it counted, as JSON."""

import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from millrace_jobs.inputs import sources
from millrace_jobs.inputs.checkpoint import Checkpoint
from millrace_jobs.leader.running import while_leading
from millrace_jobs.leader.skipping import anew, check_batch, step_aside
from millrace_jobs.query.context import JobContext
from millrace_jobs.standby.ready import ReadyJob
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.jobs.fakes import FakeJob
from tests.jobs.samples import NAMES, settings_of

HEAP = "640m"
BATCH_RECORDS = 200
MOST_STARTS = 60


class Memory:
    """Cassandra's tables."""

    def __init__(self) -> None:
        self.skipped: list[Any] = []

    def upsert(self, table: str, columns: Any, rows: Any, _: int) -> None:
        for row in rows if table == "skipped" else ():
            values = dict(zip(columns, row, strict=True))
            values["part"] = values.pop('"partition"')
            self.skipped.append(SimpleNamespace(**values))

    def select(self, *_: Any) -> list[Any]:
        return self.skipped


def main(brokers: str, topic: str, folder: str) -> None:
    spark = session(Path(folder))
    settings = settings_of("traffic", stream=topic)
    config: Any = SimpleNamespace(
        kafka=brokers,
        names=NAMES,
        settings={"traffic": settings},
        streams={topic: SimpleNamespace(topic=topic)},
    )
    checkpoint = Checkpoint(spark, f"{folder}/checkpoint")
    lease: Any = SimpleNamespace(verify=lambda: None, confirm=lambda: None)
    tables: Any = Memory()
    context = JobContext("traffic", config, spark, tables, checkpoint, lease, epoch=1)
    counts: dict[str, int] = {}

    def frame() -> DataFrame:
        read = sources.stream(spark, brokers, topic, context.settings, BATCH_RECORDS)
        return read.groupBy(F.col("value").cast("string").alias("word")).count()

    def write(rows: DataFrame, _: int) -> None:
        counts.update({row["word"]: row["count"] for row in rows.collect()})

    ready = ReadyJob(context, FakeJob(frame=frame), frame())
    for _ in range(MOST_STARTS):
        step_aside(context, ready.job)
        if not (error := run(context, frame(), write)):
            break
        again = anew(ready, error)
        if again is None:
            raise error
        ready = again
    left_out = sorted(
        (row.part, offset)
        for row in tables.skipped
        for offset in range(row.first_offset, row.end_offset)
    )
    print(json.dumps({"counts": counts, "left_out": left_out}))
    spark.stop()


def run(context: JobContext, frame: DataFrame, write: Any) -> Exception | None:
    raised: list[Exception] = []
    query = (
        frame.writeStream.outputMode("update")
        .option("checkpointLocation", context.checkpoint.location)
        .foreachBatch(
            while_leading(
                write,
                context.lease,
                threading.Event(),
                raised,
                before=lambda batch: check_batch(context, batch),
            )
        )
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception as error:
        return raised[-1] if raised else error
    return None


def session(folder: Path) -> SparkSession:
    jars = ",".join(map(str, (folder / "jars").iterdir()))
    builder = SparkSession.builder.master("local[2]").appName("skipping")
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.memory": HEAP,
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.killOnFatalError.depth": "0",  # this JVM is the executor, too
        "spark.sql.codegen.wholeStage": "false",
    }
    return builder.config(map=settings).getOrCreate()


if __name__ == "__main__":
    main(*sys.argv[1:])
