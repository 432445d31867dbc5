"""The service's own REST API, on whichever edge host answers."""

from datetime import datetime
from typing import Any

from millrace.cluster.http import AnyHost, Unanswered
from millrace.common.errors import OperatorError
from millrace.plan import Plan

TIMEOUT_SECONDS = 10


class InsightApi:
    """Answers are JSON objects; every method raises OperatorError when no host gives one."""

    def __init__(self, plan: Plan) -> None:
        self._hosts = AnyHost(plan.addresses("insight_api", "http"), TIMEOUT_SECONDS)
        self.urls = self._hosts.urls

    def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._hosts.get(path, **parameters).json()
        except Unanswered as failure:
            raise OperatorError(str(failure), "`millrace status` shows what is down") from None
        return answer

    def progress(self, job: str) -> dict[str, Any]:
        """How far a job is, its times as datetimes; empty before its first batch."""
        jobs = self.get("/v1/progress")["jobs"]
        found = next((one for one in jobs if one["job"] == job), {})
        times = ("watermark", "max_event_time", "updated")
        return {
            key: datetime.fromisoformat(value) if key in times and value else value
            for key, value in found.items()
        }
