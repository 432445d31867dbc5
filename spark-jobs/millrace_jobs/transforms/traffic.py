"""Events → traffic by window, and page views by page and hour, as one aggregation.

One aggregation means one state, one watermark and one reading of Kafka for both results.
"""

from dataclasses import dataclass, fields
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

# Window → the unit its start is truncated to, and its length in seconds.
WINDOWS = {"1m": ("minute", 60), "1h": ("hour", 3600)}
WINDOW_SECONDS = {window: seconds for window, (_, seconds) in WINDOWS.items()}
PAGE_WINDOW = "1h"
STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx", "other")


@dataclass(frozen=True)
class PageViewRule:
    """Which events are page views: of that kind, successful, and not for a static asset."""

    kind: str
    methods: list[str]
    statuses: list[int]
    asset_extensions: list[str]

    @classmethod
    def of(cls, settings: dict[str, Any]) -> "PageViewRule":
        return cls(**{field.name: settings[f"page_view_{field.name}"] for field in fields(cls)})


def traffic(events: DataFrame, rule: PageViewRule, watermark_seconds: int, lg_k: int) -> DataFrame:
    """One row for each window of all traffic (``url`` null) and for each page viewed in an hour."""
    return (
        events.withWatermark("event_time", f"{watermark_seconds} seconds")
        .transform(_with_page, rule)
        .transform(_by_window, watermark_seconds)
        .transform(_totals, lg_k)
    )


def is_page_view(rule: PageViewRule) -> Column:
    extension = F.lower(F.substring_index(page(), ".", -1))
    return (
        (F.col("kind") == rule.kind)
        & F.col("method").isin(rule.methods)
        & F.col("status").isin(rule.statuses)
        & ~extension.isin(rule.asset_extensions)
    )


def page() -> Column:
    """The path of the URL: what identifies a page, without query string and fragment."""
    return F.substring_index(F.substring_index("url", "?", 1), "#", 1)


def window_start(window: str, event_time: str = "event_time") -> Column:
    unit, _ = WINDOWS[window]
    return F.date_trunc(unit, event_time)


def window_end(window: str, event_time: str = "event_time") -> Column:
    _, seconds = WINDOWS[window]
    return window_start(window, event_time) + F.expr(f"interval {seconds} seconds")


def _with_page(events: DataFrame, rule: PageViewRule) -> DataFrame:
    return events.withColumn("page", F.when(is_page_view(rule), page()))


def _by_window(events: DataFrame, watermark_seconds: int) -> DataFrame:
    """Each event once for every window that it counts in, and once for its page."""
    totals = [_key(window, F.lit(None).cast("string")) for window in WINDOWS]
    pages = F.when(F.col("page").isNotNull(), F.array(_key(PAGE_WINDOW, F.col("page"))))
    keys = F.concat(F.array(*totals), F.coalesce(pages, F.array()))
    # A column made by explode has lost its tie to event time, without which Spark neither drops
    # late events nor ever forgets a window. This metadata is that tie.
    event_time = {"spark.watermarkDelayMs": watermark_seconds * 1000}
    return events.withColumn("key", F.explode(keys)).select(
        F.col("key.period").alias("period", metadata=event_time),
        F.col("key.window").alias("window"),
        F.col("key.url").alias("url"),
        "visitor_id",
        "status",
        "bytes",
        F.col("page").isNotNull().alias("is_page_view"),
    )


def _key(window: str, url: Column) -> Column:
    # Spark takes the second field of a struct for the window's end, as F.window makes it.
    period = F.struct(window_start(window).alias("start"), window_end(window).alias("end"))
    return F.struct(period.alias("period"), F.lit(window).alias("window"), url.alias("url"))


def _totals(rows: DataFrame, lg_k: int) -> DataFrame:
    # No visitors by page: a sketch of nothing takes 40 bytes, a full one 2 KiB for every page.
    visitor = F.when(F.col("url").isNull(), F.col("visitor_id"))
    status_class = F.floor(F.col("status") / 100)
    classes = [
        F.count_if(status_class == digit).alias(f"status_{digit}xx") for digit in range(2, 6)
    ]
    return (
        rows.groupBy("period", "window", "url")
        .agg(
            F.count("*").alias("requests"),
            F.count_if("is_page_view").alias("page_views"),
            F.sum("bytes").alias("bytes"),
            *classes,
            F.count_if(~status_class.between(2, 5)).alias("status_other"),
            F.hll_sketch_agg(visitor, F.lit(lg_k)).alias("visitors"),
        )
        .select(
            "window",
            F.col("period.start").alias("window_start"),
            F.col("period.end").alias("window_end"),
            "url",
            "requests",
            "page_views",
            "bytes",
            *(f"status_{name}" for name in STATUS_CLASSES),
            "visitors",
            F.hll_sketch_estimate("visitors").alias("visitors_estimate"),
        )
    )
