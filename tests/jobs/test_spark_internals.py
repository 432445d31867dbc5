"""What is reached behind PySpark's public API is there, in the Spark that is installed."""

from millrace_jobs.spark_internals import java_query, put_pool, scala_context, set_read_limit
from pyspark.sql import SparkSession

from tests.waiting import PATIENCE_SECONDS, wait_until


def test_a_query_s_limit_is_where_its_engine_looks_for_it(spark: SparkSession) -> None:
    rates = spark.readStream.format("rate").load()
    query = rates.writeStream.foreachBatch(lambda *_: None).start()
    try:
        context = spark.sparkContext
        wait_until(lambda: set_read_limit(context, query, 7), PATIENCE_SECONDS, "it has sources")
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
