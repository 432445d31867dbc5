"""Results as the API gives them."""

from datetime import UTC, datetime
from typing import Any

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Api:
    """One that answers with a page's name."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **_: Any) -> dict[str, Any]:
        figures = {
            "requests": 1,
            "page_views": 1,
            "unique_visitors": {"estimate": 1},
            "bytes": 1,
            "status": dict.fromkeys(("2xx", "3xx", "4xx", "5xx"), 1),
            "final": True,
            "start": NOON.isoformat(),
        }
        noon = {"from": NOON.isoformat(), "to": NOON.isoformat()}
        answers: dict[str, dict[str, Any]] = {
            "/v1/extent": {"1h": noon},
            "/v1/traffic": {"windows": [figures]},
            "/v1/traffic/total": figures,
            "/v1/pages/top": {"error": 0, "pages": [{"url": self.url, "page_views": 1}]},
        }
        return answers[path]
