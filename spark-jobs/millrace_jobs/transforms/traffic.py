"""Events → traffic by window, and page views by page and hour, as one aggregation.

One aggregation means one state, one watermark and one reading of Kafka for both results. The pages
of an hour are a sketch in the hour's own state: however many there are, it doesn't grow.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace_jobs.output import Window
from millrace_jobs.settings import TrafficSettings
from millrace_jobs.transforms.watermark import watermarked

# Window → the unit its start is truncated to, and its length in seconds.
WINDOWS = {"1m": ("minute", 60), "1h": ("hour", 3600)}
LATE_FOR: dict[str, Window | None] = {
    window: Window.plain(seconds) for window, (_, seconds) in WINDOWS.items()
}
PAGE_WINDOW = "1h"
STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx", "other")
# Where a sketch of pages says its error, counted from 1: DataSketches' PreambleUtil of frequencies.
ERROR_AT, ERROR_BYTES = 25, 8


@dataclass(frozen=True)
class PageViewRule:
    """Which events are page views: of that kind, successful, and not for a static asset."""

    kind: str
    methods: list[str]
    statuses: list[int]
    asset_extensions: list[str]

    @classmethod
    def of(cls, settings: TrafficSettings) -> "PageViewRule":
        return cls(
            settings.page_view_kind,
            settings.page_view_methods,
            settings.page_view_statuses,
            settings.page_view_asset_extensions,
        )


@dataclass(frozen=True)
class Sketches:
    """How large the sketches of a window are.

    Attributes:
        lg_k: of its visitors: 2 to so many registers.
        pages: so many pages of an hour are counted exactly, and listed.
        page_characters: longer pages are one with all that begin alike.
    """

    lg_k: int
    pages: int
    page_characters: int

    @classmethod
    def of(cls, settings: TrafficSettings) -> "Sketches":
        return cls(settings.hll_lg_k, settings.pages_tracked, settings.page_characters)


def traffic(
    events: DataFrame, rule: PageViewRule, watermark_seconds: int, sketches: Sketches, tasks: int
) -> DataFrame:
    """One row for each window. That of an hour has its pages, the most viewed first.

    ``pages`` are structs of ``item`` and ``count``, an upper bound; ``pages_error`` is the sketch's
    error, as `page_error` reads it: no count is more than that too high. It is 0 until there are
    more pages than are tracked; then pages are listed that surely have more views than it.
    """
    return (
        events.transform(watermarked, "event_time", watermark_seconds, tasks)
        .transform(_with_page, rule, sketches.page_characters)
        .transform(_by_window, watermark_seconds)
        .transform(_totals, sketches)
    )


def page_error(pages_error: bytes) -> int:
    """An empty sketch has no error yet."""
    return int.from_bytes(pages_error, "little")


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


def _with_page(events: DataFrame, rule: PageViewRule, characters: int) -> DataFrame:
    return events.withColumn("page", F.when(is_page_view(rule), F.substring(page(), 1, characters)))


def _by_window(events: DataFrame, watermark_seconds: int) -> DataFrame:
    """Each event once for every window that it counts in."""
    keys = F.array(*map(_key, WINDOWS))
    # A column made by explode has lost its tie to event time, without which Spark neither drops
    # late events nor ever forgets a window. This metadata is that tie.
    event_time = {"spark.watermarkDelayMs": watermark_seconds * 1000}
    return events.withColumn("key", F.explode(keys)).select(
        F.col("key.period").alias("period", metadata=event_time),
        F.col("key.window").alias("window"),
        "visitor_id",
        "status",
        "bytes",
        "page",
    )


def _key(window: str) -> Column:
    # Spark takes the second field of a struct for the window's end, as F.window makes it.
    period = F.struct(window_start(window).alias("start"), window_end(window).alias("end"))
    return F.struct(period.alias("period"), F.lit(window).alias("window"))


def _totals(rows: DataFrame, sketches: Sketches) -> DataFrame:
    pages = F.expr(
        f"approx_top_k_accumulate(page, {sketches.pages})"
        f" FILTER (WHERE page IS NOT NULL AND window = '{PAGE_WINDOW}')"
    )
    status_class = F.floor(F.col("status") / 100)
    classes = [
        F.count_if(status_class == digit).alias(f"status_{digit}xx") for digit in range(2, 6)
    ]
    return (
        rows.groupBy("period", "window")
        .agg(
            F.count("*").alias("requests"),
            F.count("page").alias("page_views"),
            F.sum("bytes").alias("bytes"),
            *classes,
            F.count_if(~status_class.between(2, 5)).alias("status_other"),
            F.hll_sketch_agg("visitor_id", F.lit(sketches.lg_k)).alias("visitors"),
            pages.alias("pages"),
        )
        .select(
            "window",
            F.col("period.start").alias("window_start"),
            F.col("period.end").alias("window_end"),
            "requests",
            "page_views",
            "bytes",
            *(f"status_{name}" for name in STATUS_CLASSES),
            "visitors",
            F.hll_sketch_estimate("visitors").alias("visitors_estimate"),
            F.expr(f"approx_top_k_estimate(pages, {sketches.pages})").alias("pages"),
            F.expr(f"substring(pages.sketch, {ERROR_AT}, {ERROR_BYTES})").alias("pages_error"),
        )
    )
