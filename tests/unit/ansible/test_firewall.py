"""The rules that role `firewall` renders, loaded by the kernel in a network of its own.

Two network namespaces: in one a host of the plan listens on every port that any service has, in the
other are all its callers, each by its address.
"""

import json
import shutil
import subprocess
import sys
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from jinja2 import Environment as Jinja

from millrace.common.paths import ANSIBLE
from millrace.config import OUTSIDE
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

# The callers' end of a cable is in one namespace, the host's in another: what is done at the host's
# (its part is `inside`), and at the callers' (`outside`).
HOST = """
import json, socket, subprocess, sys
def load(rules):
    for option in (["--check"], []):
        subprocess.run(["nft", *option, "--file", "-"], input=rules, text=True, check=True)
def say(what): print(json.dumps(what), flush=True)
room = json.loads(sys.stdin.readline())
sys.stdin.readline()  # the cable is plugged in
for command in (["link", "set", "lo", "up"], ["addr", "add", room["host"] + "/8", "dev", "inside"],
                ["link", "set", "inside", "up"], ["route", "add", "default", "dev", "inside"]):
    subprocess.run(["ip", *command], check=True)
exec(room["inside"])
"""
ROOM = """
import json, os, selectors, socket, subprocess, sys, time
text = sys.stdin.read()
room = json.loads(text)
def ip(*words): subprocess.run(["ip", *words], check=True)
inner = subprocess.Popen(["unshare", "--net", sys.executable, "-c", room["program"]],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
inner.stdin.write(text + "\\n"); inner.stdin.flush()
def own_network(pid):
    return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
while not own_network(inner.pid): time.sleep(0.01)
ip("link", "add", "outside", "type", "veth", "peer", "name", "inside")
ip("link", "set", "inside", "netns", str(inner.pid))
for caller in room["callers"]: ip("addr", "add", caller + "/32", "dev", "outside")
ip("link", "set", "outside", "up")
ip("route", "add", room["host"] + "/32", "dev", "outside")
inner.stdin.write("plugged in\\n"); inner.stdin.flush()
def hear(): return json.loads(inner.stdout.readline())
exec(room["outside"])
inner.stdin.close(); inner.wait()
"""

# Which ports each caller gets through to.
LISTEN = """
opened = [socket.create_server(("0.0.0.0", port), backlog=64) for port in room["ports"]]
for text in room["rules"]: load(text)
subprocess.run(["sh", "-ec", room["script"]], check=True)
say([p for p in room["ports"] if not socket.create_connection((room["host"], p), 1).close()])
sys.stdin.read()
"""
CALL = """
own, through, waiting = hear(), [], selectors.DefaultSelector()
for source in room["callers"]:
    for port in room["ports"]:
        link = socket.socket(); link.setblocking(False); link.bind((source, 0))
        link.connect_ex((room["host"], port))
        waiting.register(link, selectors.EVENT_WRITE, (source, port))
quiet = time.monotonic() + room["seconds"]
while time.monotonic() < quiet and waiting.get_map():
    for key, _ in waiting.select(0.1):
        if not key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            through.append(key.data)
            quiet = time.monotonic() + room["seconds"]  # after the last one that gets through
        waiting.unregister(key.fileobj); key.fileobj.close()
print(json.dumps({"own": own, "through": through}))
"""

# A connection each way is open when the rules come, which would let none in; the host only waits.
WAIT = """
[port], caller = room["ports"], room["callers"][0]
server = socket.create_server((room["host"], port))
say("listening")
taken, _ = server.accept()
opened = socket.create_connection((caller, port))
for text in room["rules"]: load(text)
say("loaded")
found = []
for link in (taken, opened):
    link.settimeout(60)
    try: found.append(link.recv(9).decode())
    except TimeoutError: found.append("nothing")
say(found)
"""
SEND = """
[port], caller = room["ports"], room["callers"][0]
server = socket.create_server((caller, port))
hear()
opened = socket.create_connection((room["host"], port), source_address=(caller, 0))
taken, _ = server.accept()
hear()
opened.send(b"a request"); taken.send(b"an answer")
found = hear()
try:
    socket.create_connection((room["host"], port), 0.5, (caller, 0)); found.append("let in")
except TimeoutError: found.append("refused")
print(json.dumps(found))
"""


def rules_of(plan: Plan, host: Host) -> str:
    """As Ansible renders them; on AWS they guard the instance's role, too."""
    jinja = Jinja(trim_blocks=True, autoescape=False)
    return jinja.from_string((TEMPLATES / "nftables.d" / "edges.nft.j2").read_text()).render(
        ansible_managed="managed",
        firewall_digest="0" * 64,
        firewall_clients=firewall_clients(plan, host),
        firewall_identity_users=[0] if plan.aws else [],
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
    """An oracle that knows no rules: does any edge allow it to somebody of that address?"""
    outside = {
        client
        for client in OUTSIDE
        if any(IPv4Address(address) in IPv4Network(cidr) for cidr in plan.sources(client))
    }
    names = {who} | outside
    return any(
        edge.client in names and edge.first <= port <= edge.last for edge in plan.edges_to(host)
    )


def in_room(inside: str, outside: str, **room: Any) -> Any:
    room |= {"program": HOST, "inside": inside, "outside": outside}
    done = subprocess.run(
        [*NEW_NETWORK, sys.executable, "-c", ROOM],
        input=json.dumps(room),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def try_all(plan: Plan, host: Host, rules: list[str], script: str = "true") -> dict[str, Any]:
    return in_room(
        LISTEN,
        CALL,
        host=host.address,
        callers=list(callers(plan, host)),
        ports=every_port(plan),
        rules=rules,
        script=script,
        seconds=2.5,
    )


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


def test_only_root_asks_for_the_role_of_an_instance():
    rules = {name: rules_of(plan, plan.hosts[0]) for name, plan in PLANS.items()}
    assert "ip daddr 169.254.169.254 meta skuid != { 0 } counter reject" in rules["dev"]
    assert "169.254.169.254" not in rules["local"]


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


@needs_nft
def test_connections_that_are_open_survive_the_rules():
    """Also a host's first ones: until then its kernel tracked no connections."""
    plan = PLANS["local"]
    host = plan.host("kafka-1")
    stranger = str(IPv4Network(plan.network.subnet)[STRANGER])
    found = in_room(
        WAIT,
        SEND,
        host=host.address,
        callers=[stranger],
        ports=[BETWEEN],
        rules=[rules_of(plan, host)],
    )
    assert found == ["a request", "an answer", "refused"]
