"""A workload on Structured Streaming. Runs until it is ended.

Its one argument is JSON: workload, brokers, events, ads, redis, results, producer, consumer,
folder, settings, max_offsets, output_mode, trigger_ms.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millrace_jobs.settings import KafkaClientSettings
from millrace_jobs.sinks.results import Results
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_nexmark import QUERIES
from spark_ysb import campaigns, joined, looked_up

from millrace_shared.names import KafkaNames, TopicNames

PATIENCE = KafkaClientSettings(
    kafka_connect_ms=10_000, kafka_answer_ms=10_000, kafka_reconnect_ms=10_000
)

Write = Callable[[DataFrame, int], None]


def by_driver(asked: dict[str, Any], checkpoint: Path) -> Write:
    """The product's own sink, for results that are few: a batch and its position are one
    transaction."""
    names = KafkaNames(TopicNames("", "", asked["results"], ""), {}, "bench-")
    # Of this run: where another one of the workload stopped is nothing to go on from.
    sink = Results(asked["brokers"], names, asked["results"], PATIENCE, lambda: None)
    sink.take_over()

    def write(rows: DataFrame, batch: int) -> None:
        records = [row.asDict() for row in rows.collect()]
        log = (checkpoint / "offsets" / str(batch)).read_text()
        for record in records:
            record["key"] = record["campaign"]
        sink.publish("bench", batch, json.loads(log.splitlines()[2]), records)

    return write


def by_tasks(asked: dict[str, Any], of_batch: Callable[[DataFrame], DataFrame]) -> Write:
    """For results as many as events; what Spark's own sink for Kafka writes may come twice."""

    def write(rows: DataFrame, batch: int) -> None:
        jvm: Any = rows.sparkSession._jvm
        sink = jvm.bench.Transactions(asked["brokers"], asked["producer"], asked["results"], batch)
        texts = of_batch(rows).select(F.to_json(F.struct("*")))
        texts._jdf.foreachPartition(sink)

    return write


def main(asked: dict[str, Any]) -> None:
    spark = SparkSession.builder.config(map=asked["settings"]).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    checkpoint = Path(asked["folder"]) / "checkpoint"
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", asked["brokers"])
        .option("subscribe", asked["events"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", asked["max_offsets"])
        .options(**{f"kafka.{key}": value for key, value in asked["consumer"].items()})
        .load()
    )
    if asked["workload"] == "ysb":
        with_campaign = (
            looked_up(spark, asked["redis"]) if asked["redis"] else joined(spark, asked["ads"])
        )
        results, write = campaigns(records, with_campaign), by_driver(asked, checkpoint)
    else:
        query = QUERIES[asked["workload"]]
        results, write = query.of_stream(records), by_tasks(asked, query.of_batch)
    (
        results.writeStream.foreachBatch(write)
        .outputMode(asked["output_mode"])
        .trigger(processingTime=f"{asked['trigger_ms']} milliseconds")
        .option("checkpointLocation", str(checkpoint))
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
