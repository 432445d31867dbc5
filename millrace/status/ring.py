"""Cassandra's nodes as they see each other, at a hundredth of what `nodetool status` costs."""

import time
from typing import Any

from millrace.cluster import cassandra
from millrace.plan import Plan

GOSSIP = "SELECT address, heartbeat, status_with_port FROM system_views.gossip_info"
# A living node raises its heartbeat every second, and gossip brings it round in another one.
LISTEN = 2.5  # s

Gossip = dict[str, tuple[int, str]]  # address → heartbeat, status


def ring(plan: Plan) -> dict[str, str]:
    """Address → UN (up, normal), UJ (up, joining or leaving), DN; empty when no node answers.

    It is the view of the node that sees the most others: one that is cut off sees nobody.
    """
    try:
        with cassandra.glancing(plan) as session:
            before = _listen(session)
            time.sleep(LISTEN)
            after = _listen(session)
    except cassandra.UNANSWERED:
        return {}
    views = [states(before[node], after[node]) for node in before.keys() & after.keys()]
    return max(views, key=lambda view: list(view.values()).count("UN"), default={})


def states(before: Gossip, after: Gossip) -> dict[str, str]:
    """Returns what one node makes of the others, from what it knew at two moments."""
    return {
        address: _state(heartbeat > before.get(address, (-1, ""))[0], status)
        for address, (heartbeat, status) in after.items()
    }


def _state(alive: bool, status: str) -> str:
    if not alive:
        return "DN"
    return "UN" if status.startswith("NORMAL") else "UJ"


def _listen(session: Any) -> dict[str, Gossip]:
    """Node → what it has heard; nodes that don't answer are left out."""
    heard = {}
    for host in session.cluster.metadata.all_hosts():
        try:
            rows = session.execute(GOSSIP, host=host)
        except cassandra.UNANSWERED:
            continue
        heard[host.address] = {r.address: (r.heartbeat, r.status_with_port or "") for r in rows}
    return heard
