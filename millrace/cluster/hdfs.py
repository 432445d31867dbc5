"""Files of HDFS from outside the cluster: WebHDFS of whichever NameNode is active."""

import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from millrace.common.errors import OperatorError
from millrace.plan import Plan

TIMEOUT = 20  # s
ATTEMPTS = 5
PAUSE_SECONDS = 2.0  # a failover takes some
T = TypeVar("T")


class Unreachable(Exception):
    """No NameNode or DataNode gave the answer; another attempt may get it."""


class Hdfs:
    """Paths are absolute, without scheme. Every method raises OperatorError when HDFS is away."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._http = httpx.Client(timeout=TIMEOUT)

    def names(self, folder: str) -> list[str]:
        """What a folder holds."""
        answer = self._patiently(lambda: self._ask(folder, "LISTSTATUS"))
        return [status["pathSuffix"] for status in answer["FileStatuses"]["FileStatus"]]

    def read(self, path: str) -> bytes:
        return self._patiently(lambda: self._fetch(path))

    def _fetch(self, path: str) -> bytes:
        location = self._ask(path, "OPEN", noredirect="true")["Location"]
        try:
            answer = self._http.get(self._reachable(location)).raise_for_status()
        except httpx.HTTPError as error:
            raise Unreachable(f"{location}: {error}") from None
        return answer.content

    def _reachable(self, location: str) -> str:
        """The operator's machine doesn't know the cluster's host names: the plan does."""
        name = urlsplit(location).hostname or ""
        return location.replace(f"//{name}:", f"//{self._plan.host(name).address}:", 1)

    def _ask(self, path: str, operation: str, **parameters: str) -> dict[str, Any]:
        """The active NameNode's answer; a standby refuses."""
        reasons = []
        for address in self._plan.addresses("namenode", "http"):
            url = f"http://{address}/webhdfs/v1{path}"
            try:
                answer = self._http.get(url, params={"op": operation, **parameters})
                content = answer.json()
            except (httpx.HTTPError, ValueError) as error:
                reasons.append(f"{url}: {error}")
                continue
            if answer.is_success:
                return dict(content)
            failure = content["RemoteException"]
            if failure["exception"] == "FileNotFoundException":
                raise OperatorError(f"HDFS has no {path}", "has the job run yet? `millrace status`")
            reasons.append(f"{address}: {failure['exception']}")
        raise Unreachable("; ".join(reasons))

    def _patiently(self, call: Callable[[], T]) -> T:
        for attempt in range(ATTEMPTS):
            try:
                return call()
            except Unreachable as error:
                failure = error
                if attempt + 1 < ATTEMPTS:
                    time.sleep(PAUSE_SECONDS)
        raise OperatorError(
            f"HDFS doesn't answer: {failure}", "`millrace status` shows what is down"
        )
