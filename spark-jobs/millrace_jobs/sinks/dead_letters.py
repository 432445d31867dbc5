"""Dead letters: the original bytes to a topic, a line about each to Cassandra.

A record's place in its topic is its key in both, so a batch that ran twice leaves each letter once.
The bytes go from executors straight to Kafka, for they may be many and large; the driver only sees
short previews, at most as many as a batch has records.
"""

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace_jobs.sinks.cassandra import Tables
from millrace_jobs.sources import connecting

PREVIEW_CHARACTERS = 200
COLUMNS = ("bucket", "id", "reason", "size", "preview", "kafka_timestamp")


class DeadLetters:
    """``dead_letter_request_bytes`` bounds one; what fitted into the events topic must fit."""

    def __init__(self, brokers: str, topic: str, tables: Tables, settings: dict[str, Any]) -> None:
        request_bytes = settings["dead_letter_request_bytes"]
        self._tables = tables
        self._sink = {
            "kafka.bootstrap.servers": brokers,
            **connecting(settings),
            "topic": topic,
            "kafka.acks": "all",
            "kafka.max.request.size": str(request_bytes),
            "kafka.buffer.memory": str(2 * request_bytes),
        }

    def write(self, malformed: DataFrame, timestamp: int) -> None:
        letters(malformed).write.format("kafka").options(**self._sink).save()
        self._tables.upsert("dead_letters", COLUMNS, summaries(malformed).collect(), timestamp)


def letters(malformed: DataFrame) -> DataFrame:
    """Kafka records with the original bytes, the original headers and ours."""
    facts = {
        "reason": F.col("reason"),
        "topic": F.col("topic"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "timestamp": F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSX"),
    }
    ours = F.array(*(_header(name, value) for name, value in facts.items()))
    return malformed.select(
        _id().alias("key"),
        "value",
        F.concat(ours, F.coalesce("headers", F.array())).alias("headers"),
    )


def summaries(malformed: DataFrame) -> DataFrame:
    """Rows of the table ``dead_letters``."""
    # Cut as bytes first: the value may be megabytes. What isn't UTF-8 shows as question marks.
    beginning = F.substring("value", 1, 4 * PREVIEW_CHARACTERS).cast("string")
    return malformed.select(
        F.to_date("timestamp").alias("bucket"),
        _id().alias("id"),
        "reason",
        F.coalesce(F.octet_length("value"), F.lit(0)).cast("bigint").alias("size"),
        F.left(F.make_valid_utf8(beginning), F.lit(PREVIEW_CHARACTERS)).alias("preview"),
        F.col("timestamp").alias("kafka_timestamp"),
    )


def _id() -> Column:
    return F.concat_ws("-", "topic", "partition", "offset")


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
