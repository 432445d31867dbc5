"""Kafka as a source, in a stream and for a given range."""

import json
from collections.abc import Collection
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millrace_jobs.inputs.bounds import partitions_of
from millrace_jobs.inputs.checkpoint import EARLIEST, Batch
from millrace_jobs.inputs.skipped import SkippedRange, around, joined, within_polls
from millrace_jobs.settings import JobSettings

# After each poll Spark throws away what was fetched beyond it, and fetches anew: a megabyte for
# each record, at the usual limit. A batch of a producer's that is larger still comes whole.
BYTES_OF_ONE_RECORD = 16384


def record_by_record(settings: JobSettings) -> JobSettings:
    """As a job reads near what no executor can hold: a poll of more decompresses that, too."""
    return replace(settings, max_poll_records=1, fetch_max_bytes_per_partition=BYTES_OF_ONE_RECORD)


def stream(
    spark: SparkSession,
    brokers: str,
    topic: str,
    settings: JobSettings,
    max_offsets: int,
    behind: Collection[SkippedRange] = (),
) -> DataFrame:
    """A topic from its beginning, in batches of at most ``max_offsets`` records.

    A task reads several partitions in turn: more tasks than cores only add what a task costs.

    Args:
        behind: ranges that can't be read, which a rehearsal begins behind. A job's own query has
            its offsets log led around them.
    """
    reader = spark.readStream.format("kafka").options(**_of_batches(brokers, topic, settings))
    if here := [one for one in behind if one.topic == topic]:
        starts = {f"{number}": EARLIEST for _, number in partitions_of(brokers, settings, topic)}
        starts |= {f"{one.partition}": one.end for one in joined(here)}
        reader = reader.option("startingOffsets", json.dumps({topic: starts}))
    stream = reader.option("maxOffsetsPerTrigger", max_offsets).load()
    return stream.coalesce(settings.tasks)


def endless(spark: SparkSession, brokers: str, topic: str, settings: JobSettings) -> DataFrame:
    """A topic from its beginning, in real time: a task for each partition waits for its records."""
    return spark.readStream.format("kafka").options(**_options(brokers, topic, settings)).load()


def records(
    spark: SparkSession,
    brokers: str,
    topic: str,
    settings: JobSettings,
    batch: Batch,
    skipped: Collection[SkippedRange] = (),
) -> DataFrame:
    """Exactly the records that a batch of the stream was made of, without what is skipped."""
    if within_polls(skipped, batch, settings.max_poll_records):
        settings = record_by_record(settings)
    options = _of_batches(brokers, topic, settings)

    def read(piece: Batch) -> DataFrame:
        offsets = {
            "startingOffsets": json.dumps(piece.start),
            "endingOffsets": json.dumps(piece.end),
        }
        return spark.read.format("kafka").options(**options).options(**offsets).load()

    pieces = map(read, around(batch, skipped) or [batch])
    return reduce(DataFrame.unionByName, pieces).coalesce(settings.tasks)


def connecting(settings: JobSettings) -> dict[str, Any]:
    """How long Spark's clients of Kafka wait for a host that may be gone."""
    first = settings.kafka_connect_ms
    return {
        "kafka.socket.connection.setup.timeout.ms": first,
        "kafka.socket.connection.setup.timeout.max.ms": 2 * first,
    }


def turning_away(answer_ms: int) -> dict[str, Any]:
    """How Java's clients leave a frozen broker: its host acknowledges, but nobody answers.

    The admin client looks for unanswered requests only when something wakes it, as new metadata
    does; it waited for a frozen broker until that was thawed. And a client that has no other
    connection asks the one under way for metadata: the broker that it has just left, if it may go
    back there before it asks (retry.backoff.ms, 100 ms). Measured with kafka-clients 3.9.1.
    """
    return {
        "kafka.request.timeout.ms": answer_ms,
        "kafka.metadata.max.age.ms": answer_ms // 2,
        "kafka.reconnect.backoff.ms": answer_ms // 4,
        "kafka.reconnect.backoff.max.ms": answer_ms // 2,
    }


def asking_anew(give_up_ms: int) -> dict[str, Any]:
    """How long Spark waits for offsets: in the driver for three minutes in all, as by default, but
    by a new admin client each time. A task of a batch is tried again eight times; one in real time
    is not, and has all the time that Kafka gives it."""
    return {
        "kafka.default.api.timeout.ms": give_up_ms,
        "fetchOffset.numRetries": 180_000 // give_up_ms,
        "fetchOffset.retryIntervalMs": 100,
    }


def _of_batches(brokers: str, topic: str, settings: JobSettings) -> dict[str, Any]:
    return _options(brokers, topic, settings) | asking_anew(settings.kafka_read_give_up_ms)


def _options(brokers: str, topic: str, settings: JobSettings) -> dict[str, Any]:
    return {
        "kafka.bootstrap.servers": brokers,
        **connecting(settings),
        **turning_away(settings.kafka_read_answer_ms),
        "subscribe": topic,
        "startingOffsets": "earliest",
        # Producers write in transactions; what they aborted must not be counted.
        "kafka.isolation.level": "read_committed",
        # Offsets that are gone were never counted: stop rather than go on without them.
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "kafka.fetch.max.bytes": settings.fetch_max_bytes,
        "kafka.max.partition.fetch.bytes": settings.fetch_max_bytes_per_partition,
        "kafka.max.poll.records": settings.max_poll_records,
    }
