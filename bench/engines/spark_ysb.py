"""YSB on Structured Streaming, with the product's own results sink. Runs until it is ended.

Its one argument is JSON: brokers, events, ads, results, folder, settings, max_offsets, trigger_ms.
"""

import json
import sys
from pathlib import Path
from typing import Any

from millrace_jobs.config import KafkaNames, TopicNames
from millrace_jobs.sinks.results import Results
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

EVENT = "ad_id string, event_type string, event_time string"
# Nothing is late: partitions are read at speeds of their own.
WATERMARK, WINDOW = "24 hours", "10 seconds"
PATIENCE_MS = 10_000


def campaigns(events: DataFrame, ads: DataFrame) -> DataFrame:
    """Views by campaign and window, of Kafka's records."""
    event = F.from_json(F.col("value").cast("string"), EVENT)
    views = (
        events.select(event.alias("e"))
        .where("e.event_type = 'view'")
        .select("e.ad_id", F.timestamp_millis(F.col("e.event_time").cast("long")).alias("at"))
    )
    return (
        views.withWatermark("at", WATERMARK)
        .join(F.broadcast(ads), "ad_id")
        .groupBy(F.window("at", WINDOW), "campaign")
        .agg(F.count("*").alias("views"))
        .select("campaign", F.unix_millis("window.start").alias("start"), "views")
    )


def main(asked: dict[str, Any]) -> None:
    spark = SparkSession.builder.config(map=asked["settings"]).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    ads = spark.read.csv(asked["ads"], schema="ad_id string, campaign string")
    names = KafkaNames(TopicNames("", "", asked["results"], ""), {}, "bench-")
    patience = {"kafka_connect_ms": PATIENCE_MS, "kafka_answer_ms": PATIENCE_MS}
    sink = Results(asked["brokers"], names, "ysb", patience, lambda: None)
    sink.take_over()
    checkpoint = Path(asked["folder"]) / "checkpoint"

    def write(rows: DataFrame, batch: int) -> None:
        records = [row.asDict() for row in rows.collect()]
        log = (checkpoint / "offsets" / str(batch)).read_text()
        for record in records:
            record["key"] = record["campaign"]
        sink.publish("bench", batch, json.loads(log.splitlines()[2]), records)

    events = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", asked["brokers"])
        .option("subscribe", asked["events"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", asked["max_offsets"])
        .load()
    )
    query = (
        campaigns(events, ads)
        .writeStream.foreachBatch(write)
        .outputMode("update")
        .trigger(processingTime=f"{asked['trigger_ms']} milliseconds")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
