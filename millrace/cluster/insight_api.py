"""The service's own REST API, on whichever edge host answers."""

import time
from datetime import datetime
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx

from millrace.cluster import doors, tunnel
from millrace.cluster.http import AnyHost, Unanswered
from millrace.common.errors import UnreachableError
from millrace.plan import Host, Plan

TIMEOUT_SECONDS = 10
# A busy API says when to ask again; so does one whose store has no quorum at the moment.
PATIENCE_SECONDS = 20


class InsightApi:
    """Answers are JSON objects; every method raises UnreachableError when no host gives one.

    Hosts that say when to ask again (429, 503 with Retry-After) are asked then, within patience.

    Args:
        host: whose own API is asked; else that of whichever host answers.
    """

    def __init__(self, plan: Plan, host: Host | None = None) -> None:
        self._plan = plan
        self._host = host

    @cached_property
    def _hosts(self) -> AnyHost:
        addresses = doors.addresses(self._plan, doors.INSIGHTS)
        if self._host is not None:
            own = tunnel.on_host(self._plan, self._host, doors.SERVICE, doors.OWN_INSIGHTS)
            addresses = [str(own)]
        return AnyHost(addresses, TIMEOUT_SECONDS, credentials=doors.credentials(self._plan))

    def get(self, path: str, /, **parameters: Any) -> dict[str, Any]:
        """Returns an answer. A parameter may have any name: columns are some."""
        answer: dict[str, Any] = self._ask(path, parameters).json()
        return answer

    def text(self, path: str) -> str:
        """Returns the answer as it comes; ``path`` may have a query."""
        parts = urlsplit(path)
        return self._ask(parts.path, dict(parse_qsl(parts.query))).text

    def _ask(self, path: str, parameters: dict[str, Any]) -> httpx.Response:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._hosts.get(path, **parameters)
            except Unanswered as failure:
                pause = failure.retry_after_seconds
                if pause is None or time.monotonic() + pause > deadline:
                    hint = "`millrace status` shows what is down"
                    raise UnreachableError(str(failure), hint) from None
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
