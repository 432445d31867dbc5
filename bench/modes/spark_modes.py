"""The query on Structured Streaming, in micro-batches or in real-time mode. Runs until it is ended.

Its one argument is JSON: brokers, events, results, folder, settings, trigger, source, sink. The
Kafka sink is at-least-once in both modes:
<https://spark.apache.org/docs/latest/streaming/real-time-mode.html>
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.spark_json import parsed

EVENT = "id string, type string"


def views(events: DataFrame) -> DataFrame:
    kept = parsed(events, EVENT).where("type = 'view'")
    return kept.select(F.to_json(F.struct("id")).alias("value"))


def main(asked: dict[str, Any]) -> None:
    spark = SparkSession.builder.config(map=asked["settings"]).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    events = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", asked["brokers"])
        .option("subscribe", asked["events"])
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        views(events)
        .writeStream.format("kafka")
        .options(**asked["sink"])
        .option("kafka.bootstrap.servers", asked["brokers"])
        .option("topic", asked["results"])
        .option("checkpointLocation", str(Path(asked["folder"]) / "checkpoint"))
        .outputMode("update")  # real-time mode knows no other
        .trigger(**asked["trigger"])
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
