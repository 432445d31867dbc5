"""YSB on Structured Streaming."""

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.spark_json import parsed

EVENT = "ad_id string, event_type string, event_time string"
# Nothing is late: partitions are read at speeds of their own.
WATERMARK, WINDOW = "24 hours", "10 seconds"

WithCampaign = Callable[[DataFrame], DataFrame]


def campaigns(events: DataFrame, with_campaign: WithCampaign) -> DataFrame:
    """Views by campaign and window, of Kafka's records."""
    views = (
        parsed(events, EVENT)
        .where("event_type = 'view'")
        .select("ad_id", F.timestamp_millis(F.col("event_time").cast("long")).alias("at"))
    )
    return (
        views.withWatermark("at", WATERMARK)
        .transform(with_campaign)
        .groupBy(F.window("at", WINDOW), "campaign")
        .agg(F.count("*").alias("views"))
        .select("campaign", F.unix_millis("window.start").alias("start"), "views")
    )


def joined(spark: SparkSession, ads: str) -> WithCampaign:
    """With the table in that file."""
    table = spark.read.csv(ads, schema="ad_id string, campaign string")
    return lambda views: views.join(F.broadcast(table), "ad_id")


def looked_up(spark: SparkSession, port: int) -> WithCampaign:
    """In Redis, by a function of the JVM: rows needn't go to Python and back."""
    jvm: Any = spark._jvm
    text = jvm.org.apache.spark.sql.types.DataTypes.StringType
    spark._jsparkSession.udf().register("campaign_of", jvm.bench.SparkCampaign(port), text)
    return lambda views: views.withColumn("campaign", F.call_function("campaign_of", "ad_id"))
