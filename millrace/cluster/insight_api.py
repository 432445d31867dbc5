"""The REST API, asked on whichever edge host answers."""

from typing import Any

import httpx

from millrace.common.errors import OperatorError
from millrace.plan import Plan


class Api:
    """Both edge hosts' API: whichever answers."""

    def __init__(self, plan: Plan) -> None:
        self.urls = [f"http://{address}" for address in plan.addresses("insight_api", "http")]

    def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        """The JSON answer of the first host that gives one; OperatorError if none does."""
        reasons = []
        for url in self.urls:
            try:
                answer = httpx.get(url + path, params=parameters, timeout=10)
                answer.raise_for_status()
            except httpx.HTTPError as error:
                reasons.append(f"{url}{path}: {error}")
            else:
                found: dict[str, Any] = answer.json()
                return found
        raise OperatorError("\n".join(reasons), "`millrace status` shows what is down")
