"""Which advertisements were clicked, by campaign and minute."""

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def attribution(impressions: DataFrame, clicks: DataFrame, settings: dict[str, Any]) -> DataFrame:
    """Each campaign's impressions and clicks, and how many clicks matched an impression in time."""
    at = F.col("event_time")
    shown = impressions.select("campaign", F.col("impression_id").alias("ad"), at.alias("shown"))
    clicked = clicks.select(F.struct("campaign", "impression_id").alias("of"), at.alias("clicked"))
    pairs = shown.join(
        clicked,
        F.expr(
            "of.campaign = campaign AND of.impression_id = ad AND clicked BETWEEN shown AND shown"
            f" + INTERVAL {settings['match_seconds']} SECONDS"
        ),
    )
    took = F.unix_millis("clicked") - F.unix_millis("shown")
    rows = (
        _rows(impressions, "impression", at, F.lit(0))
        .unionByName(_rows(clicks, "click", at, F.lit(0)))
        .unionByName(_rows(pairs, "match", F.col("clicked"), took))
    )
    number = {kind: F.count_if(F.col("kind") == kind) for kind in ("impression", "click", "match")}
    counted = rows.groupBy(F.window("at", "1 minute"), "campaign").agg(
        number["impression"].alias("impressions"),
        number["click"].alias("clicks"),
        number["match"].alias("matched"),
        F.sum("took").alias("milliseconds_to_click"),
    )
    unmatched, rate = F.col("clicks") - F.col("matched"), F.try_divide("clicks", "impressions")
    return counted.withColumns({"unmatched": unmatched, "click_rate": rate})


def _rows(found: DataFrame, kind: str, at: Column, took: Column) -> DataFrame:
    columns = {"at": at, "kind": F.lit(kind), "took": took.cast("bigint")}
    return found.select("campaign", *(column.alias(name) for name, column in columns.items()))
