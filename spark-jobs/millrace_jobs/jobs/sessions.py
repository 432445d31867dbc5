"""What each visitor did, in slots of half an hour."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def sessions(events: DataFrame, settings: dict[str, Any]) -> DataFrame:
    """Each visitor's events by slot: how many, when, from which page to which."""
    # As long as the gap: no two events in a slot are further apart, so each is in one session.
    slot = F.window("event_time", f"{settings['session_gap_seconds']} seconds")
    moment = F.struct("event_time", "event_id")  # ties broken, or a second run differs
    return events.groupBy(slot, "visitor_id").agg(
        F.count("*").alias("events"),
        F.count_if(F.col("kind") == "page_view").alias("pages"),
        F.min("event_time").alias("first"),
        F.max("event_time").alias("last"),
        F.min_by("url", moment).alias("entry_page"),
        F.max_by("url", moment).alias("exit_page"),
    )
