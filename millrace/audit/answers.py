"""What the API answers, for the hours that an audit is about."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from millrace.audit.compare import Visitors
from millrace.audit.truth import SIZES, Figures, Window
from millrace.cluster.insight_api import InsightApi

TOP_PAGES = 100  # the most that the API gives
HOUR = SIZES["1h"]
# The API's bounds hold 95 %: two standard deviations to each side.
SIGMAS_BETWEEN_BOUNDS = 4


@dataclass
class Answers:
    """``top`` are the most viewed pages by hour, ``distinct`` how many pages have a count.

    ``errors`` is by how much the counts of an hour may be off.
    """

    windows: dict[Window, Figures] = field(default_factory=dict)
    visitors: dict[Window, Visitors] = field(default_factory=dict)
    top: dict[int, dict[str, int]] = field(default_factory=dict)
    distinct: dict[int, int] = field(default_factory=dict)
    errors: dict[int, int] = field(default_factory=dict)


def ask(api: InsightApi, hours: Iterable[int]) -> Answers:
    """Hours are given by their start, in seconds since 1970."""
    answers = Answers()
    for hour in hours:
        span = {"from": _iso(hour), "to": _iso(hour + HOUR)}
        for size in SIZES:
            for window in api.get("/v1/traffic", window=size, **span)["windows"]:
                start = round(datetime.fromisoformat(window["start"]).timestamp())
                answers.windows[size, start] = figures(window)
                answers.visitors[size, start] = _visitors(window["unique_visitors"])
        pages = api.get("/v1/pages/top", k=TOP_PAGES, **span)
        answers.top[hour] = {page["url"]: page["page_views"] for page in pages["pages"]}
        answers.distinct[hour] = pages["distinct_pages"]
        answers.errors[hour] = pages["error"]
    return answers


def figures(window: dict[str, Any]) -> Figures:
    """Returns a window's figures, which the API and the results topic give alike."""
    counts = {name: window[name] for name in ("requests", "page_views", "bytes")}
    return counts | window["status"]


def _visitors(found: dict[str, int]) -> Visitors:
    return Visitors(found["estimate"], (found["upper"] - found["lower"]) / SIGMAS_BETWEEN_BOUNDS)


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
