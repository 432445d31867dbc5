"""The REST API's answers as tables."""

from datetime import datetime, timedelta
from typing import Any

from millrace.cluster.insight_api import InsightApi
from millrace.common.errors import OperatorError
from millrace.common.tables import Answer, Column, Row, Table

SHOWN_WINDOWS = 12
SHOWN_PAGES = 8
KINDS = ("2xx", "3xx", "4xx", "5xx")


def insights_view(api: InsightApi) -> Answer:
    """The latest hours that have traffic, the total of the latest week, and its top pages."""
    hours = api.get("/v1/extent")["1h"]
    if hours is None:
        raise OperatorError("there are no results yet", "`millrace replay FILE` sends traffic")
    week = latest(hours, days=7)
    windows = api.get("/v1/traffic", window="1h", **week)["windows"]
    total = api.get("/v1/traffic/total", **week)
    top = api.get("/v1/pages/top", k=SHOWN_PAGES, **week)
    return Answer.of(traffic=_traffic(windows[-SHOWN_WINDOWS:], total), pages=_pages(top))


def latest(hours: dict[str, str], days: int) -> dict[str, str]:
    """The last days of the range that has data: the API bounds how much it answers at once."""
    start, end = (datetime.fromisoformat(hours[key]) for key in ("from", "to"))
    return {"from": max(start, end - timedelta(days=days)).isoformat(), "to": end.isoformat()}


def _traffic(windows: list[dict[str, Any]], total: dict[str, Any]) -> Table:
    columns = (
        Column("hour", "hour (UTC)", _hour),
        *map(Column, ("requests", "page_views", "unique_visitors")),
        Column("bytes", "MB", lambda row: f"{row['bytes'] / 1e6:,.1f}"),
        *(Column(f"status_{kind}", kind) for kind in KINDS),
        Column("final", "state", lambda row: "final" if row["final"] else "open"),
    )
    rows = [
        {"hour": datetime.fromisoformat(window["start"]), **_counts(window)} for window in windows
    ]
    title = "traffic by the hour, the latest ones"
    return Table(title, columns, rows, foot={"hour": None, **_counts(total)})


def _hour(row: Row) -> str:
    return f"{row['hour']:%Y-%m-%d %H:%M}" if row["hour"] else "latest 7 days"


def _counts(counts: dict[str, Any]) -> Row:
    return {
        "requests": counts["requests"],
        "page_views": counts["page_views"],
        "unique_visitors": counts["unique_visitors"]["estimate"],
        "bytes": counts["bytes"],
        **{f"status_{kind}": counts["status"][kind] for kind in KINDS},
        "final": counts["final"],
    }


def _pages(top: dict[str, Any]) -> Table:
    error = f" (± {top['error']:,} views)" if top["error"] else ""
    columns = (Column("url", "page"), Column("page_views", "views"))
    return Table(f"top pages{error}", columns, top["pages"])
