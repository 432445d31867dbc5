"""The service's own REST API, on whichever edge host answers."""

import time
from datetime import datetime
from typing import Any

from millrace.cluster import tunnel
from millrace.cluster.http import AnyHost, Unanswered
from millrace.common.errors import UnreachableError
from millrace.plan import Plan

TIMEOUT_SECONDS = 10
# A busy API says when to ask again; so does one whose store has no quorum at the moment.
PATIENCE_SECONDS = 20


class InsightApi:
    """Answers are JSON objects; every method raises UnreachableError when no host gives one.

    Hosts that say when to ask again (429, 503 with Retry-After) are asked then, within patience.
    """

    def __init__(self, plan: Plan) -> None:
        self._hosts = AnyHost(tunnel.addresses(plan, "insight_api", "http"), TIMEOUT_SECONDS)

    def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                answer: dict[str, Any] = self._hosts.get(path, **parameters).json()
            except Unanswered as failure:
                pause = failure.retry_after_seconds
                if pause is None or time.monotonic() + pause > deadline:
                    hint = "`millrace status` shows what is down"
                    raise UnreachableError(str(failure), hint) from None
            else:
                return answer
            time.sleep(pause)

    def progress(self, job: str) -> dict[str, Any]:
        """Returns how far a job is, its times as datetimes; empty before its first batch."""
        jobs = self.get("/v1/progress")["jobs"]
        found: dict[str, Any] = next((one for one in jobs if one["job"] == job), {})
        times = ("watermark", "max_event_time", "updated")
        return {
            key: datetime.fromisoformat(value) if key in times and value else value
            for key, value in found.items()
        }
