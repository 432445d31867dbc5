"""The rules that role `firewall` renders, loaded by the kernel in a network of its own.

Two network namespaces: in one a host of the plan listens on every port that any service has, in the
other are all its callers, each by its address.
"""

import json
import shutil
import subprocess
import sys
from ipaddress import IPv4Network
from typing import Any

import pytest
from jinja2 import Environment as Jinja

from millrace.common.paths import ANSIBLE
from millrace.inventory import firewall_clients
from millrace.plan import Host, Plan, load_plan
from millrace.providers.docker_hosts import REJOIN, TABLE, partition_script

TEMPLATES = ANSIBLE / "roles" / "firewall" / "templates"
NEW_NETWORK = ["unshare", "--map-root-user", "--net"]
PLANS = {name: load_plan(name) for name in ("local", "dev")}
STRANGER = 250  # of the hosts' network, and no host
BETWEEN = 33333  # no service's port

needs_nft = pytest.mark.skipif(
    not (shutil.which("nft") and shutil.which("ip"))
    or subprocess.run([*NEW_NETWORK, "true"], capture_output=True).returncode != 0,
    reason="needs nft, ip and network namespaces",
)

# Prints what of `calls` (source, port) gets through. Callers' end is this process's namespace.
ROOM = """
import json, selectors, socket, subprocess, sys, time
room = json.loads(sys.stdin.read())
host, callers = room["host"], room["callers"]
def sh(*words, **more): return subprocess.run(words, check=True, **more)
listener = '''
import json, socket, subprocess, sys
ports, rules, script, address = json.loads(sys.stdin.readline())
sys.stdin.readline()  # its cable is plugged in
for command in (["link", "set", "lo", "up"], ["addr", "add", address + "/8", "dev", "inside"],
                ["link", "set", "inside", "up"], ["route", "add", "default", "dev", "inside"]):
    subprocess.run(["ip", *command], check=True)
opened = []
for port in ports:
    opened.append(socket.create_server(("0.0.0.0", port), backlog=64))
for text in rules:
    subprocess.run(["nft", "--check", "--file", "-"], input=text, text=True, check=True)
    subprocess.run(["nft", "--file", "-"], input=text, text=True, check=True)
subprocess.run(["sh", "-ec", script], check=True)
own = [p for p in ports if not socket.create_connection((address, p), 1).close()]
print(json.dumps(own), flush=True)
sys.stdin.read()
'''
inner = subprocess.Popen(["unshare", "--net", sys.executable, "-c", listener],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
inner.stdin.write(json.dumps([room["ports"], room["rules"], room["script"], host]) + "\\n")
inner.stdin.flush()
def own_network(pid):
    import os
    return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
while not own_network(inner.pid): time.sleep(0.01)
sh("ip", "link", "add", "outside", "type", "veth", "peer", "name", "inside")
sh("ip", "link", "set", "inside", "netns", str(inner.pid))
for caller in callers: sh("ip", "addr", "add", caller + "/32", "dev", "outside")
sh("ip", "link", "set", "outside", "up")
sh("ip", "route", "add", host + "/32", "dev", "outside")
inner.stdin.write("plugged in\\n"); inner.stdin.flush()
own = json.loads(inner.stdout.readline())
through, waiting = [], selectors.DefaultSelector()
for source in callers:
    for port in room["ports"]:
        link = socket.socket(); link.setblocking(False); link.bind((source, 0))
        link.connect_ex((host, port))
        waiting.register(link, selectors.EVENT_WRITE, (source, port))
quiet = time.monotonic() + room["seconds"]
while time.monotonic() < quiet and waiting.get_map():
    for key, _ in waiting.select(0.1):
        if not key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            through.append(key.data)
        waiting.unregister(key.fileobj); key.fileobj.close()
print(json.dumps({"own": own, "through": through}))
inner.stdin.close(); inner.wait()
"""


def rules_of(plan: Plan, host: Host) -> str:
    """As Ansible renders them."""
    jinja = Jinja(trim_blocks=True, autoescape=False)
    return jinja.from_string((TEMPLATES / "nftables.d" / "edges.nft.j2").read_text()).render(
        ansible_managed="managed",
        firewall_digest="0" * 64,
        firewall_clients=firewall_clients(plan, host),
    )


def every_port(plan: Plan) -> list[int]:
    fixed = {port for service in plan.services.values() for port in service.ports.values()}
    spans = [r for service in plan.services.values() for r in service.port_ranges.values()]
    ends = {port for r in spans for port in (r.first - 1, r.first, r.last, r.last + 1)}
    return sorted({22, BETWEEN, *fixed, *ends})


def callers(plan: Plan, host: Host) -> dict[str, str]:
    """Address → who that is to the plan: one host of each group, and those from outside."""
    found = {other.address: other.group for other in plan.hosts if other != host}
    one_each = {group: address for address, group in found.items()}
    network = IPv4Network(plan.network.subnet)
    more = {str(network[STRANGER]): "nobody"}
    if plan.network.gateway:
        more[plan.network.gateway] = "operator"
    for cidr in plan.sources("readers"):
        if cidr != "0.0.0.0/0":
            more[str(IPv4Network(cidr)[9])] = "readers"
    return {address: group for group, address in one_each.items()} | more


def expected(plan: Plan, host: Host, address: str, who: str, port: int) -> bool:
    """An oracle that knows no rules: does any edge allow it, or may everybody?"""
    names = {who} | ({"readers"} if plan.sources("readers") == ["0.0.0.0/0"] else set())
    return any(
        edge.client in names and edge.first <= port <= edge.last for edge in plan.edges_to(host)
    )


def try_all(plan: Plan, host: Host, rules: list[str], script: str = "true") -> dict[str, Any]:
    room = {
        "host": host.address,
        "callers": list(callers(plan, host)),
        "ports": every_port(plan),
        "rules": rules,
        "script": script,
        "seconds": 2.5,
    }
    done = subprocess.run(
        [*NEW_NETWORK, sys.executable, "-c", ROOM],
        input=json.dumps(room),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def one_of_each_group() -> list[tuple[str, str]]:
    return [
        (name, f"{group}-1")
        for name, plan in PLANS.items()
        for group in dict.fromkeys(host.group for host in plan.hosts)
    ]


@needs_nft
@pytest.mark.parametrize(("name", "host_name"), one_of_each_group())
def test_a_host_lets_in_whom_the_edges_name_and_nobody_else(name, host_name):
    plan = PLANS[name]
    host = plan.host(host_name)
    found = try_all(plan, host, [rules_of(plan, host)])
    wanted = {
        (address, port)
        for address, who in callers(plan, host).items()
        for port in every_port(plan)
        if expected(plan, host, address, who, port)
    }
    assert {(address, port) for address, port in found["through"]} == wanted
    assert found["own"] == every_port(plan)


@needs_nft
def test_rules_are_replaced_whole_and_twice_is_as_once():
    plan = PLANS["local"]
    host, other = plan.host("kafka-1"), plan.host("redis-1")
    first, second = rules_of(plan, other), rules_of(plan, host)
    once = try_all(plan, host, [second])
    assert try_all(plan, host, [first, second, second]) == once


@needs_nft
def test_a_partition_beats_the_rules_and_leaves_none_behind():
    plan = PLANS["local"]
    host = plan.host("kafka-1")
    rules = [rules_of(plan, host)]
    cut = partition_script(plan, host)
    partitioned = try_all(plan, host, rules, cut + cut)
    others = {h.address for h in plan.hosts}
    assert {source for source, _ in partitioned["through"]} & others == set()
    assert [plan.network.gateway, 22] in partitioned["through"]
    undone = cut + REJOIN.format(table=TABLE) + REJOIN.format(table=TABLE)
    nothing_left = "\ntest \"$(nft list tables)\" = 'table inet edges'"
    assert try_all(plan, host, rules, undone + nothing_left) == try_all(plan, host, rules)
