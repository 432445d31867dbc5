"""Nexmark's queries on Structured Streaming, of Kafka's records, as a user of Spark writes them.

Windows are emitted once, when they are closed: the watermark is Nexmark's, 4 s behind. It follows
the newest event of all partitions, so a batch must read these in step, as Kafka's source does.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from bench.spark_json import parsed

WATERMARK, WINDOW, HOP = "4 seconds", "10 seconds", "2 seconds"


@dataclass(frozen=True)
class Query:
    """``of_batch`` is what remains to be done with the rows of a batch that closed windows."""

    of_stream: Callable[[DataFrame], DataFrame]
    of_batch: Callable[[DataFrame], DataFrame] = lambda rows: rows


def q1(records: DataFrame) -> DataFrame:
    """Bids in euros."""
    bids = of_kind(
        records, "bid", "auction long, bidder long, price long, dateTime long, extra string"
    )
    euros = F.lit("0.908").cast("decimal(4, 3)") * F.col("price").cast("decimal(18, 0)")
    return bids.select("auction", "bidder", euros.alias("price"), "dateTime", "extra")


def q2(records: DataFrame) -> DataFrame:
    """Bids of every 123rd auction."""
    bids = of_kind(records, "bid", "auction long, price long")
    return bids.where("auction % 123 = 0")


def q5(records: DataFrame) -> DataFrame:
    """Bids of each auction in windows of 10 s, every 2 s."""
    bids = timed(of_kind(records, "bid", "auction long, dateTime long"))
    counts = bids.groupBy(F.window("at", WINDOW, HOP), "auction").agg(F.count("*").alias("num"))
    return counts.select("auction", start(), "num")


def hottest(counts: DataFrame) -> DataFrame:
    """Of each window those with the most. It closes as a whole, so its counts are of one batch."""
    rank = F.rank().over(Window.partitionBy("start").orderBy(F.desc("num")))
    return counts.withColumn("rank", rank).where("rank = 1").drop("rank")


def q8(records: DataFrame) -> DataFrame:
    """People who sell in the window in which they are new: one pass for both sides, one state.

    A join of two streams would read them twice and keep three states.
    """
    schema = (
        "person struct<id: long, name: string, dateTime: long>,"
        "auction struct<seller: long, dateTime: long>"
    )
    events = (
        parsed(records, schema)
        .where("person is not null or auction is not null")
        .select(
            F.coalesce("person.id", "auction.seller").alias("id"),
            "person.name",
            F.col("auction").isNotNull().alias("sale"),
            F.coalesce("person.dateTime", "auction.dateTime").alias("dateTime"),
        )
    )
    people = (
        timed(events)
        .groupBy(F.window("at", WINDOW), "id")
        .agg(F.max("name").alias("name"), F.max("sale").alias("sells"))
        .where("name is not null and sells")
    )
    return people.select("id", start(), "name")


def q12(records: DataFrame) -> DataFrame:
    """Bids of each bidder in windows of 10 s."""
    bids = timed(of_kind(records, "bid", "bidder long, dateTime long"))
    counts = bids.groupBy(F.window("at", WINDOW), "bidder").agg(F.count("*").alias("num"))
    return counts.select("bidder", start(), "num")


def of_kind(records: DataFrame, kind: str, fields: str) -> DataFrame:
    return (
        parsed(records, f"{kind} struct<{fields}>").where(f"{kind} is not null").select(f"{kind}.*")
    )


def timed(events: DataFrame) -> DataFrame:
    at = F.timestamp_millis("dateTime")
    return events.withColumn("at", at).drop("dateTime").withWatermark("at", WATERMARK)


def start() -> Column:
    return F.unix_millis("window.start").alias("start")


QUERIES = {
    "nexmark-q1": Query(q1),
    "nexmark-q2": Query(q2),
    "nexmark-q5": Query(q5, hottest),
    "nexmark-q8": Query(q8),
    "nexmark-q12": Query(q12),
}
