"""YARN over its daemons' REST APIs."""

from typing import Any

import httpx

from millrace.cluster import tunnel
from millrace.plan import Host, Plan

TIMEOUT_SECONDS = 4  # a frozen daemon accepts the call and never answers


def containers(plan: Plan, worker: Host) -> list[dict[str, Any]]:
    """Returns what a NodeManager runs now, each with ``id`` and ``state``; nothing when it is
    silent."""
    url = f"http://{tunnel.on_host(plan, worker, 'nodemanager', 'http')}/ws/v1/node/containers"
    try:
        answer = httpx.get(url, timeout=TIMEOUT_SECONDS).json()
    except httpx.HTTPError:
        return []
    return (answer["containers"] or {}).get("container", [])
