"""Grep, WordCount or TopK on Structured Streaming. Runs until it is ended.

Its one argument is JSON: brokers, lines, results, program, folder, settings, source, trigger_ms.
A batch is D-Streams' interval. Its result is one record, in one transaction with how far it read.
"""

import json
import sys
from pathlib import Path
from typing import Any

from millrace_jobs.settings import KafkaClientSettings
from millrace_jobs.sinks.results import Results
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.dstreams import window
from bench.dstreams.text import PATTERN, K
from millrace_shared.names import KafkaNames, TopicNames

PATIENCE = KafkaClientSettings(
    kafka_connect_ms=10_000, kafka_answer_ms=10_000, kafka_reconnect_ms=10_000
)


def matching(lines: DataFrame) -> DataFrame:
    return lines.where(F.col("line").contains(PATTERN))


def words(lines: DataFrame) -> DataFrame:
    """Their counts."""
    word = F.explode(F.split("line", " ")).alias(window.WORD)
    return lines.select(word).groupBy(window.WORD).agg(F.count("*").alias(window.COUNT))


def grep(lines: DataFrame, folder: Path, time_ms: int) -> int:
    return matching(lines).count()


def word_count(lines: DataFrame, folder: Path, time_ms: int) -> dict[str, int]:
    window.keep(folder, time_ms, words(lines).toArrow())
    found = window.newest(folder, time_ms)
    return dict(zip(found[window.WORD].to_pylist(), found[window.COUNT].to_pylist(), strict=True))


def top_k(lines: DataFrame, folder: Path, time_ms: int) -> list[list[Any]]:
    window.keep(folder, time_ms, words(lines).toArrow())
    found = window.top(window.newest(folder, time_ms), K)
    return [[row[window.WORD], row[window.COUNT]] for row in found.to_pylist()]


PROGRAMS = {"grep": grep, "wordcount": word_count, "topk": top_k}


def main(asked: dict[str, Any]) -> None:
    spark = SparkSession.builder.config(map=asked["settings"]).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    names = KafkaNames(TopicNames("", "", asked["results"], ""), {}, "bench-")
    sink = Results(asked["brokers"], names, asked["results"], PATIENCE, lambda: None)
    sink.take_over()
    checkpoint = Path(asked["folder"]) / "checkpoint"
    program, intervals = PROGRAMS[asked["program"]], Path(asked["folder"]) / "intervals"

    def write(lines: DataFrame, batch: int) -> None:
        _, about, offsets = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[:3]
        time_ms, read = json.loads(about)["batchTimestampMs"], json.loads(offsets)
        until = [end for _, end in sorted(read[asked["lines"]].items())]
        result = program(lines, intervals, time_ms)
        record = {"key": "", "time_ms": time_ms, "until": until, "result": result}
        sink.publish("bench", batch, read, [record])

    lines = (
        spark.readStream.format("kafka")
        .options(**asked["source"])
        .option("kafka.bootstrap.servers", asked["brokers"])
        .option("subscribe", asked["lines"])
        .option("startingOffsets", "earliest")
        .load()
        .select(F.col("value").cast("string").alias("line"))
    )
    query = (
        lines.writeStream.foreachBatch(write)
        .trigger(processingTime=f"{asked['trigger_ms']} milliseconds")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
