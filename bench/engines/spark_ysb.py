"""YSB on Structured Streaming."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.spark_json import parsed

EVENT = "ad_id string, event_type string, event_time string"
# Nothing is late: partitions are read at speeds of their own.
WATERMARK, WINDOW = "24 hours", "10 seconds"


def campaigns(events: DataFrame, ads: DataFrame) -> DataFrame:
    """Views by campaign and window, of Kafka's records."""
    views = (
        parsed(events, EVENT)
        .where("event_type = 'view'")
        .select("ad_id", F.timestamp_millis(F.col("event_time").cast("long")).alias("at"))
    )
    return (
        views.withWatermark("at", WATERMARK)
        .join(F.broadcast(ads), "ad_id")
        .groupBy(F.window("at", WINDOW), "campaign")
        .agg(F.count("*").alias("views"))
        .select("campaign", F.unix_millis("window.start").alias("start"), "views")
    )
