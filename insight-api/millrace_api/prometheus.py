"""Asking the Prometheus of an edge host, and the other one if it doesn't answer.

Each knows everything by itself. The one that answered last is asked first, so one that is away or
has only begun again is left alone.
"""

import asyncio
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode

from millrace_api.admission import AGAIN_SECONDS
from millrace_api.settings import Endpoint

log = logging.getLogger(__name__)

# By nobody's proxy: it is a neighbour.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class PrometheusUnavailable(Exception):
    """None of them answered; the message says why, one by one."""


class Prometheus:
    """``places`` questions at once; an answer that takes longer than the time-out is none.

    After all have failed nobody is asked for a moment: who waits in line learns it at once.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        timeout_seconds: float,
        places: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoints = list(endpoints)
        self._timeout_seconds = timeout_seconds
        self._places = asyncio.Semaphore(places)
        self._now = now
        self._failure = ""
        self._again = 0.0

    async def range(self, query: str, start: int, end: int, step: int) -> list[dict[str, Any]]:
        """Series as `metric` and `values`, pairs of a time and a text. Times and step in seconds.

        Raises PrometheusUnavailable, also for a query that is refused.
        """
        asked = {"query": query, "start": start, "end": end, "step": step}
        answer = await self._ask(
            "query_range", asked | {"timeout": f"{self._timeout_seconds * 1000:.0f}ms"}
        )
        return answer["result"]

    async def now(self, query: str) -> list[dict[str, Any]]:
        """Series as `metric` and `value`, a time and a text. Raises as ``range`` does."""
        return (await self._ask("query", {"query": query}))["result"]

    async def alerts(self) -> list[dict[str, Any]]:
        """Those that fire, and those that wait to. Raises PrometheusUnavailable."""
        return (await self._ask("alerts", {}))["alerts"]

    async def _ask(self, path: str, parameters: dict[str, Any]) -> dict[str, Any]:
        async with self._places:
            if self._now() < self._again:
                raise PrometheusUnavailable(self._failure)
            failures = []
            for endpoint in tuple(self._endpoints):
                try:
                    return await asyncio.to_thread(self._get, endpoint, path, parameters)
                except (OSError, HTTPException, ValueError, KeyError) as error:
                    failures.append(f"{endpoint[0]}: {_why(error)}")
                    self._endpoints.sort(key=endpoint.__eq__)
            self._failure = "; ".join(failures)
            self._again = self._now() + AGAIN_SECONDS
            raise PrometheusUnavailable(self._failure)

    def _get(self, endpoint: Endpoint, path: str, parameters: dict[str, Any]) -> dict[str, Any]:
        host, port = endpoint
        url = f"http://{host}:{port}/api/v1/{path}?{urlencode(parameters)}"
        with OPENER.open(url, timeout=self._timeout_seconds) as answer:
            return json.load(answer)["data"]


def _why(error: Exception) -> str:
    """A refusal in Prometheus' own words."""
    if isinstance(error, urllib.error.HTTPError):
        try:
            return json.load(error)["error"]
        except (OSError, HTTPException, ValueError, KeyError):
            return f"status {error.code}"
    reason = getattr(error, "reason", error)
    return getattr(reason, "strerror", None) or str(reason) or type(error).__name__
