"""The REST API's answers as tables."""

from datetime import datetime, timedelta
from typing import Any

from rich.console import Group
from rich.table import Table

from millrace.cluster.insight_api import InsightApi
from millrace.common.errors import OperatorError

SHOWN_WINDOWS = 12
SHOWN_PAGES = 8


def insights_view(api: InsightApi) -> Group:
    """The latest hours that have traffic, the total of the latest week, and its top pages."""
    hours = api.get("/v1/extent")["1h"]
    if hours is None:
        raise OperatorError("there are no results yet", "`millrace replay FILE` sends traffic")
    week = latest(hours, days=7)
    windows = api.get("/v1/traffic", window="1h", **week)["windows"]
    total = api.get("/v1/traffic/total", **week)
    top = api.get("/v1/pages/top", k=SHOWN_PAGES, **week)
    return Group(_traffic(windows[-SHOWN_WINDOWS:], total), _pages(top))


def latest(hours: dict[str, str], days: int) -> dict[str, str]:
    """The last days of the range that has data: the API bounds how much it answers at once."""
    start, end = (datetime.fromisoformat(hours[key]) for key in ("from", "to"))
    return {"from": max(start, end - timedelta(days=days)).isoformat(), "to": end.isoformat()}


def _traffic(windows: list[dict[str, Any]], total: dict[str, Any]) -> Table:
    table = Table(title="traffic by the hour, the latest ones", title_justify="left")
    table.add_column("hour (UTC)")
    for column in ("requests", "page views", "unique visitors", "MB", "2xx", "3xx", "4xx", "5xx"):
        table.add_column(column, justify="right")
    table.add_column("state")
    for window in windows:
        hour = datetime.fromisoformat(window["start"])
        table.add_row(f"{hour:%Y-%m-%d %H:%M}", *_counts(window))
    table.add_section()
    table.add_row("latest 7 days", *_counts(total), style="bold")
    return table


def _counts(counts: dict[str, Any]) -> list[str]:
    return [
        f"{counts['requests']:,}",
        f"{counts['page_views']:,}",
        f"{counts['unique_visitors']['estimate']:,}",
        f"{counts['bytes'] / 1e6:,.1f}",
        *(f"{counts['status'][kind]:,}" for kind in ("2xx", "3xx", "4xx", "5xx")),
        "final" if counts["final"] else "open",
    ]


def _pages(top: dict[str, Any]) -> Table:
    error = f" (± {top['error']:,} views)" if top["error"] else ""
    table = Table(title=f"top pages{error}", title_justify="left")
    table.add_column("page")
    table.add_column("views", justify="right")
    for page in top["pages"]:
        table.add_row(page["url"], f"{page['page_views']:,}")
    return table
