"""YARN's side of an application, by the REST interface of whichever ResourceManager is active."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any

from millrace_gateway.decide import Run

ACTIVE = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
ENDED = "FINISHED,FAILED,KILLED"
# Enough of the past to see a crash loop.
ENDED_CONSIDERED = 20


class Unreachable(Exception):
    """No ResourceManager answers as the active one."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A standby sends its callers to the active one; we ask that one ourselves."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Yarn:
    """The applications of one user.

    Args:
        resourcemanagers: web addresses (host:port) of all of them, active or not.
        user: whose name a kill carries.
        timeout: seconds for one of them to answer.
    """

    def __init__(self, resourcemanagers: Sequence[str], user: str, timeout: float) -> None:
        self._addresses = list(resourcemanagers)
        self._user = user
        self._timeout = timeout
        self._opener = urllib.request.build_opener(_NoRedirect)

    def active(self, application: str) -> list[Run]:
        """Runs that hold or wait for containers, in the order they started."""
        return self._runs(application, ACTIVE)

    def ended(self, application: str) -> list[Run]:
        """The latest runs that are over, in the order they started."""
        return self._runs(application, ENDED)[-ENDED_CONSIDERED:]

    def running(self) -> list[str]:
        """The ids of all that hold or wait for containers, whosoever they are."""
        found = self._ask(f"/ws/v1/cluster/apps?states={ACTIVE}")
        return [app["id"] for app in (found["apps"] or {}).get("app", [])]

    def hosts(self) -> int:
        """The number of hosts that YARN can give containers on."""
        return int(self._ask("/ws/v1/cluster/metrics")["clusterMetrics"]["activeNodes"])

    def kill(self, run: str) -> None:
        query = urllib.parse.urlencode({"user.name": self._user})
        self._ask(f"/ws/v1/cluster/apps/{run}/state?{query}", {"state": "KILLED"})

    def _runs(self, application: str, states: str) -> list[Run]:
        query = urllib.parse.urlencode(
            {
                "applicationTags": f"millrace:{application}",
                "states": states,
                "deSelects": "resourceRequests,timeouts,appNodeLabelExpression",
            }
        )
        found = self._ask(f"/ws/v1/cluster/apps?{query}")
        return sorted(map(_run, (found["apps"] or {}).get("app", [])), key=lambda run: run.started)

    def _ask(self, path: str, content: dict[str, str] | None = None) -> dict[str, Any]:
        for address in list(self._addresses):
            request = urllib.request.Request(
                f"http://{address}{path}",
                data=json.dumps(content).encode() if content else None,
                headers={"Content-Type": "application/json", "Accept": "application/json"},
                method="PUT" if content else "GET",
            )
            try:
                with self._opener.open(request, timeout=self._timeout) as response:
                    answer: dict[str, Any] = json.load(response)
            except (OSError, HTTPException, ValueError):
                continue  # away, or a standby: neither answers with JSON
            # It will most likely be the active one the next time as well.
            self._addresses.remove(address)
            self._addresses.insert(0, address)
            return answer
        raise Unreachable(f"no active ResourceManager among {', '.join(sorted(self._addresses))}")


def _run(app: dict[str, Any]) -> Run:
    tags = app.get("applicationTags", "").split(",")
    return Run(
        id=app["id"],
        state=app["state"],
        version=next((t.removeprefix("version:") for t in tags if t.startswith("version:")), ""),
        started=app["startedTime"] / 1000,
        finished=app["finishedTime"] / 1000,
        containers=max(0, app["runningContainers"]),  # -1 of one that has ended
    )
