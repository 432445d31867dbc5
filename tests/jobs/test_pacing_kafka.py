"""Batches of running queries, on a real broker: as large as they are told, and paced."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from millrace_jobs.inputs import sources
from millrace_jobs.query.batch_reports import BatchReports
from millrace_jobs.query.pacing import Pacing
from millrace_jobs.spark_internals import set_read_limit
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from bench.engines.broker import Broker, broker
from millrace.common.waiting import wait_until
from tests.jobs.samples import settings_of
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.extended

TOPICS = ["events", "clicks"]
PARTITIONS = 3
RECORDS = 3000
FIRST, NEXT = 9, [90, 30, 0]  # how large batches are to be
LEAST = 30


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


def test_a_backlog_is_taken_in_batches_that_grow(
    spark: SparkSession, full: Broker, tmp_path: Path
) -> None:
    settings = settings_of("traffic", batch_target_seconds=2 * PATIENCE_SECONDS)  # none is slow
    context: Any = SimpleNamespace(
        job="traffic",
        settings=settings,
        least_offsets=LEAST,
        max_offsets=RECORDS,
        batch_size=None,
        spark=spark,
    )
    records = sources.stream(spark, full.address, TOPICS[0], settings, context.least_offsets)
    sizes: list[int] = []
    query = (
        records.writeStream.foreachBatch(lambda frame, _: sizes.append(frame.count()))
        .option("checkpointLocation", str(tmp_path / "paced"))
        .trigger(processingTime="500 milliseconds")
        .start()
    )
    pacing, reports = Pacing(context, query), BatchReports(query)

    def is_level() -> bool:
        for report in reports.news():
            pacing.take_in(report)
        pacing.apply(is_held=False)
        return sum(sizes) == RECORDS and not pacing.is_behind()

    try:
        assert pacing.is_behind()
        assert wait_until(is_level, 2 * PATIENCE_SECONDS, 0.1), (sizes, query.exception())
    finally:
        query.stop()
    assert all(size <= LEAST for size in sizes[:2])  # however much waits
    assert sizes[:-1] == sorted(sizes[:-1])
    assert len(sizes) < 20  # of the least it were a hundred
