"""Every edge of the plan has been used by now: one that nobody needs is a door left open.

The last of these tests, after the cluster was made, healed, deployed to, looked at and loaded.
"""

import re
from collections import Counter

from millrace.cluster.ssh import on_all, run_on
from millrace.config import OUTSIDE
from millrace.plan import Plan
from millrace.plan.edges import Edge

# ip saddr @from_worker tcp dport 9092 counter packets 12 bytes 720 accept comment "…"
COUNTED = re.compile(r"saddr @from_(\S+) (tcp|udp) dport (\d+)(?:-\d+)? counter packets (\d+)")

Key = tuple[str, str, int]


def connections(plan: Plan) -> Counter[tuple[str, Key]]:
    """Group of servers and key of an edge → how many connections they let in by it.

    Since their rules were loaded, last after the tests that try every port of every host.
    """
    listed = on_all(plan.hosts, lambda host: run_on(plan, host, "nft list table inet edges").stdout)
    counts: Counter[tuple[str, Key]] = Counter()
    for host in plan.hosts:
        for client, protocol, port, packets in COUNTED.findall(listed[host.name]):
            counts[host.group, (of_one_place(client), protocol, int(port))] += int(packets)
    return counts


def key_of(edge: Edge) -> Key:
    return of_one_place(edge.client), edge.protocol, edge.first


def of_one_place(client: str) -> str:
    """Who calls from outside a laptop's cluster is this machine, whether it reads or operates."""
    return "outside" if client in OUTSIDE else client


def test_every_edge_is_used(plan: Plan):
    found = connections(plan)
    assert len(found) == len({(edge.server, key_of(edge)) for edge in plan.edges})
    assert [edge.name for edge in plan.edges if not found[edge.server, key_of(edge)]] == []
