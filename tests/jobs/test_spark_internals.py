"""What is reached behind PySpark's public API is there, in the Spark that is installed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from millrace_jobs.inputs import sources
from millrace_jobs.spark_internals import java_query, put_pool, scala_context, set_read_limit
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from bench.engines.broker import Broker, broker
from millrace.common.waiting import wait_until
from tests.jobs.samples import settings_of
from tests.waiting import PATIENCE_SECONDS

TOPICS = ["events", "clicks"]
PARTITIONS = 3
RECORDS = 1000
FIRST, NEXT = 9, [90, 30, 0]  # how large batches are to be


def test_a_query_s_limit_is_where_its_engine_looks_for_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    rates = spark.readStream.format("rate").load()
    query = rates.writeStream.foreachBatch(lambda *_: None).start()
    try:
        limited = [query, 7]
        assert wait_until(lambda: set_read_limit(spark.sparkContext, *limited), PATIENCE_SECONDS)  # type: ignore[arg-type]
        sources = java_query(query).streamingQuery().uniqueSources()
        assert [sources.values().head().maxRows(), sources.size()] == [7, 1]
        query.processAllAvailable()
        assert query.isActive
    finally:
        query.stop()


def test_a_pool_has_its_share_from_its_first_job_on(spark: SparkSession) -> None:
    context = spark.sparkContext
    put_pool(context, "results", 8)
    put_pool(context, "results", 2)  # it is there
    pool = scala_context(context).taskScheduler().rootPool().getSchedulableByName("results")
    assert (pool.weight(), pool.schedulingMode().toString()) == (8, "FAIR")


@pytest.fixture
def full(spark: SparkSession) -> Iterator[Broker]:
    """A broker with records in two topics."""
    with broker() as one:
        producer = Producer({"bootstrap.servers": one.address})
        for topic in TOPICS:
            one.create(topic, PARTITIONS)
            for number in range(RECORDS):
                producer.produce(topic, b"{}", partition=number % PARTITIONS)
        producer.flush()
        yield one


@pytest.mark.extended
def test_a_running_query_s_batches_are_as_large_as_it_is_told(
    spark: SparkSession, full: Broker, tmp_path: Path
) -> None:
    settings = settings_of("traffic")
    streams = [sources.stream(spark, full.address, topic, settings, FIRST) for topic in TOPICS]

    def write(frame: DataFrame, batch: int) -> None:
        """Tells the query, in the midst of a batch, how large the next one is to be."""
        frame.count()
        if batch < len(NEXT):
            assert set_read_limit(spark.sparkContext, query, NEXT[batch])

    def read() -> list[list[int]]:
        batches = [one for one in query.recentProgress if one.numInputRows]
        return [[source.numInputRows for source in one.sources] for one in batches]

    query: StreamingQuery = (
        streams[0]
        .union(streams[1])
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        assert wait_until(lambda: waits(query), PATIENCE_SECONDS), query.exception()
        for rows, limit in zip(read(), [FIRST, *NEXT[:-1]], strict=True):  # no batch after 0
            assert [limit // 2 < number <= limit for number in rows] == [True, True]
        assert set_read_limit(spark.sparkContext, query, RECORDS)
        assert wait_until(lambda: sum(map(sum, read())) == 2 * RECORDS, PATIENCE_SECONDS)
        assert len(read()) == len(NEXT) + 1
    finally:
        query.stop()


def waits(query: StreamingQuery) -> bool:
    """It has looked, and has begun no batch, though there are records."""
    last: Any = query.lastProgress
    if last is None or "addBatch" in last.durationMs:
        return False
    return all(float(one.metrics["maxOffsetsBehindLatest"]) > 0 for one in last.sources)
