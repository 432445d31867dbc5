"""Files of HDFS from outside the cluster: WebHDFS of whichever NameNode is active."""

import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from millrace.cluster import tunnel
from millrace.cluster.http import AnyHost, Unanswered, is_ok
from millrace.common.errors import OperatorError, UnreachableError
from millrace.plan import Plan

TIMEOUT_SECONDS = 20
ATTEMPTS = 5
PAUSE_SECONDS = 2.0  # a failover takes some
MISSING = "FileNotFoundException"
T = TypeVar("T")


class Hdfs:
    """Paths are absolute, without scheme. Methods raise UnreachableError when HDFS is away."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        addresses = tunnel.addresses(plan, "namenode", "http")
        self._namenodes = AnyHost(addresses, TIMEOUT_SECONDS, accept=_is_active)

    def names(self, folder: str) -> list[str]:
        """Lists the names in a folder."""
        answer = self._patiently(lambda: self._ask(folder, "LISTSTATUS"))
        return [status["pathSuffix"] for status in answer["FileStatuses"]["FileStatus"]]

    def read(self, path: str) -> bytes:
        return self._patiently(lambda: self._fetch(path))

    def _fetch(self, path: str) -> bytes:
        location = self._ask(path, "OPEN", noredirect="true")["Location"]
        return self._namenodes.fetch(self._reachable(location))

    def _reachable(self, location: str) -> str:
        """The operator's machine doesn't know the cluster's host names: the plan does."""
        asked = urlsplit(location)
        host = self._plan.host(asked.hostname or "")
        return asked._replace(
            netloc=str(tunnel.on_host(self._plan, host, "datanode", "http"))
        ).geturl()

    def _ask(self, path: str, operation: str, **parameters: str) -> dict[str, Any]:
        answer = self._namenodes.get(f"/webhdfs/v1{path}", op=operation, **parameters)
        if _exception(answer) == MISSING:
            raise OperatorError(f"HDFS has no {path}", "has the job run yet? `millrace status`")
        return dict(answer.json())

    def _patiently(self, call: Callable[[], T]) -> T:
        for attempt in range(ATTEMPTS):
            try:
                return call()
            except Unanswered as error:
                failure = error
                if attempt + 1 < ATTEMPTS:
                    time.sleep(PAUSE_SECONDS)
        raise UnreachableError(
            f"HDFS doesn't answer: {failure}", "`millrace status` shows what is down"
        )


def _is_active(answer: httpx.Response) -> bool:
    """A standby refuses whatever it is asked; that a file is missing only the active one knows."""
    return is_ok(answer) or _exception(answer) == MISSING


def _exception(answer: httpx.Response) -> str:
    """The name of the Java exception that HDFS answers with; empty when it is none."""
    if is_ok(answer):
        return ""
    try:
        return str(answer.json()["RemoteException"]["exception"])
    except (ValueError, KeyError, TypeError):
        return ""
