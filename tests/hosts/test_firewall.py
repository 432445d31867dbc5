"""Who may call which port of the running hosts: what the plan's edges say, and nothing else.

Every port that any host listens on is tried at every host: from a host of each group, from this
machine and from a container that is no host of the cluster.
"""

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from ipaddress import IPv4Network

import docker
import httpx
import pytest

from millrace.cluster import doors
from millrace.cluster.ssh import on_all, run_on
from millrace.common.paths import stack_name
from millrace.common.waiting import wait_until
from millrace.config import OPERATOR, OUTSIDE, PRODUCERS, READERS
from millrace.plan import Host, Plan, load_plan
from millrace.plan.edges import Edge
from millrace.status.collect import collect
from millrace.status.verdict import HEALTHY, judge
from tests.waiting import PATIENCE_SECONDS

# What operators run on hosts, and what only a fault brings about: no service calls by these edges
# from day to day.
APPLICATION = "APP=$(yarn application -list 2>/dev/null | grep -om1 'application_[0-9_]*') &&"
FAULT = """
FILE=/tmp/written-by-$(hostname)-$$
(yes | head -c 300000; exec sleep 120 2>/dev/null) | hadoop fs -appendToFile - $FILE &
for N in $(seq 30); do hadoop fs -cat $FILE 2>/dev/null | grep -q y && break; done
kill -KILL $!  # DataNodes agree on the last block of a writer that died
hdfs debug recoverLease -path $FILE -retries 10 && hadoop fs -rm -skipTrash $FILE
"""
# DataNodes whose heartbeats hang call by the lifeline's port after two of their intervals.
STANDBY_HANGS = """
STATE="http://{namenode}/jmx?qry=Hadoop:service=NameNode,name=NameNodeStatus"
curl -fsS "$STATE" | grep -q standby || exit 0
systemctl kill --signal=STOP namenode && sleep 15 && systemctl kill --signal=CONT namenode
"""
# A JournalNode fetches the segments that were ended while it was away.
JOURNALNODE_RETURNS = """
[ $(hostname) = {journalnode} ] || exit 0
trap "systemctl start journalnode" EXIT
systemctl stop journalnode && for N in 1 2; do runuser -u hdfs -- hdfs dfsadmin -rollEdits; done
systemctl start journalnode && sleep {until_it_looks}
"""
ON_DEMAND = {
    "zookeeper": "for S in {zookeepers}; do zkCli -server $S ls / || exit 1; done",
    "kafka_controller": "kafka-topics --list",
    "journalnode": "service-gate well journalnode && hdfs haadmin -getAllServiceState",
    "namenode": "service-gate well zkfc && hadoop fs -cat {checkpoints}/*/metadata",
    "datanode": "service-gate well datanode",
    "resourcemanager": "service-gate well resourcemanager"
    f" && {APPLICATION} yarn logs -applicationId $APP -log_files stdout -size 100"
    " && yarn rmadmin -getAllServiceState",
    "nodemanager": "service-gate well nodemanager && yarn application -list",
    "job_gateway": f"{APPLICATION} curl -fsSL -o /dev/null http://{{web}}/proxy/$APP/"
    f" && yarn rmadmin -getAllServiceState && ({FAULT})",
}
# What others wouldn't bear while they ask.
AFTERWARDS = {"namenode": STANDBY_HANGS, "journalnode": JOURNALNODE_RETURNS}
# Jobs tell the live page of windows that change; tests of hosts send no events.
WITH_EVENTS = {"redis-6379-from-worker", "coord-26379-from-worker"}
# A NameNode reads the edit log's segments by HTTP once JournalNodes have forgotten them.
WITH_FAULTS = {"coord-8480-from-master"}
SELDOM = WITH_EVENTS | WITH_FAULTS
# The ResourceManager has a NodeManager start a driver; a Redis asks the Sentinels whom to follow;
# ZooKeeper's voters keep a connection for the next election, and say nothing by it until then.
AT_STARTS = {"worker-8041-from-master", "coord-26379-from-redis", "coord-3888-from-coord"}
# What the operator calls from outside is in configs/reachability.yaml.
AMONG = [edge for edge in load_plan(stack_name()).edges if edge.client not in OUTSIDE]
# ip saddr @from_worker tcp dport 9092 counter packets 12 bytes 720 accept comment "…"
COUNTED = re.compile(r"saddr @from_(\S+) (tcp|udp) dport (\d+)(?:-\d+)? counter packets (\d+)")

# Prints which of `[[address, port], …]` take a connection. Once none has done so for the seconds
# that are given, none will.
TRY = """
import json, selectors, socket, sys, time
waiting, through = selectors.DefaultSelector(), []
for address, port in json.loads(sys.argv[1]):
    link = socket.socket(); link.setblocking(False); link.connect_ex((address, port))
    waiting.register(link, selectors.EVENT_WRITE, (address, port))
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end and waiting.get_map():
    for key, _ in waiting.select(0.1):
        if not key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            through.append(key.data)
            end = time.monotonic() + float(sys.argv[2])
        waiting.unregister(key.fileobj); key.fileobj.close()
print(json.dumps(through))
"""
SECONDS = 3.0
NO_HOST = -7  # an address of the network that the plan gives to nobody

Doors = set[tuple[str, int]]


@pytest.fixture(scope="module")
def listening(plan, host_named) -> Doors:
    """Address and port of whatever listens for other hosts."""
    return {
        (host.address, port) for host in plan.hosts for port in open_ports(host_named(host.name))
    }


@pytest.mark.extended
def test_every_edge_is_used(plan):
    """One that nobody needs is a door left open. The first test: others here try every port."""
    assert ask_for_everything(plan) == []
    counts = connections(plan)
    assert len(counts) == sum(bool(plan.sources(edge.client)) for edge in plan.edges)
    unused = {edge.name for edge in AMONG if not counts[edge.server, *key_of(edge)]}
    assert unused - SELDOM == set()


def ask_for_everything(plan: Plan, group: str | None = None, seconds: int = 240) -> list[str]:
    """What operators run on the hosts, or on those of one group; says what failed in that time."""
    hosts = [host for host in plan.hosts if group in (None, host.group)]
    failed = []
    for scripts in (ON_DEMAND, AFTERWARDS):
        ask = partial(demand, plan, scripts, seconds)
        failed += [said for each in on_all(hosts, ask).values() for said in each]
    trusted = doors.credentials(plan).context
    for door in (doors.INSIGHTS, doors.INTAKE, doors.OWN_INSIGHTS, doors.OWN_INTAKE):
        for url in doors.urls(plan, door):  # of both hosts, by way of one
            with suppress(httpx.HTTPError):
                if httpx.get(f"{url}/healthz", verify=trusted, timeout=PATIENCE_SECONDS).is_success:
                    continue
            failed.append(f"{url} doesn't answer")
    return failed


def demand(plan: Plan, scripts: Mapping[str, str], seconds: int, host: Host) -> list[str]:
    """On two hosts of each: one of a pair may find what it asks for at home. Says what failed."""
    [web, *_] = plan.addresses("resourcemanager", "http")
    [journalnode, *_] = plan.hosts_of("journalnode")
    looks = plan.services["journalnode"].settings["hdfs-site.xml"]["dfs.journalnode.sync.interval"]
    failed = []
    for service in host.services:
        if service not in scripts or host not in plan.hosts_of(service)[:2]:
            continue
        script = scripts[service].format(
            web=web,
            zookeepers=" ".join(plan.addresses("zookeeper", "client")),
            namenode=f"{host.address}:{plan.services['namenode'].ports['http']}",
            hosts=len(plan.hosts_of(service)),
            journalnode=journalnode.name,
            until_it_looks=looks / 1000 + 30,  # it has to start before
            checkpoints=plan.spark.settings.common.checkpoints,
        )
        command = f"sudo timeout {seconds} bash -c {shlex.quote(script)}"
        done = run_on(plan, host, command, timeout=seconds + 10)
        if done.returncode:
            failed.append(f"{host.name}: {script}\n{done.stdout}{done.stderr}")
    return failed


def connections(plan: Plan) -> Counter[tuple[str, str, str, int]]:
    """Group of servers, client, protocol and port → how many connections they let in.

    Since their rules were loaded, before their services were started.
    """
    rules = "sudo nft list table inet edges"
    listed = on_all(plan.hosts, lambda host: run_on(plan, host, rules).stdout)
    counts: Counter[tuple[str, str, str, int]] = Counter()
    for host in plan.hosts:
        for client, protocol, port, packets in COUNTED.findall(listed[host.name]):
            counts[host.group, client, protocol, int(port)] += int(packets)
    return counts


def key_of(edge: Edge) -> tuple[str, str, int]:
    return edge.client, edge.protocol, edge.first


def open_ports(connection) -> set[int]:
    local = [
        line.split()[3].rsplit(":", 1) for line in connection.check_output("ss -Hltn").splitlines()
    ]
    inside = ("127.", "::1", "::ffff:127.")
    return {int(port) for address, port in local if not address.strip("[]").startswith(inside)}


def allowed(plan: Plan, clients: set[str], doors: Doors) -> Doors:
    host_at = {host.address: host for host in plan.hosts}
    return {
        (address, port)
        for address, port in doors
        for edge in plan.edges_to(host_at[address])
        if edge.client in clients and edge.first <= port <= edge.last
    }


def tried(answer: str) -> Doors:
    return {(address, port) for address, port in json.loads(answer)}


def one_of_each_group(plan: Plan) -> list[Host]:
    return list({host.group: host for host in plan.hosts}.values())


def test_a_host_of_each_group_gets_in_where_its_edges_lead_and_nowhere_else(
    plan, host_named, listening
):
    assert len(listening) > 5 * len(plan.hosts) // 2
    for host in one_of_each_group(plan):
        doors = {(address, port) for address, port in listening if address != host.address}
        answer = host_named(host.name).check_output(
            "python3 -c %s %s %s", TRY, json.dumps(sorted(doors)), str(SECONDS)
        )
        assert tried(answer) == allowed(plan, {host.group, READERS}, doors), host.name


def test_a_host_reaches_its_own_ports(plan, host_named):
    for host in one_of_each_group(plan):
        own = sorted((host.address, port) for port in open_ports(host_named(host.name)))
        answer = host_named(host.name).check_output(
            "python3 -c %s %s %s", TRY, json.dumps(own), str(SECONDS)
        )
        assert tried(answer) == set(own), host.name


def test_the_operator_gets_in_where_its_edges_lead_and_nowhere_else(plan, listening):
    doors = json.dumps(sorted(listening))
    answer = subprocess.check_output([sys.executable, "-c", TRY, doors, str(SECONDS)], text=True)
    assert tried(answer) == allowed(plan, {OPERATOR, PRODUCERS, READERS}, listening)


def test_a_container_in_no_group_reaches_the_api_only(plan, listening):
    client = docker.from_env()
    image = client.containers.get(f"{plan.cluster}-{plan.hosts[0].name}").attrs["Config"]["Image"]
    address = str(IPv4Network(plan.network.subnet)[NO_HOST])
    endpoint = client.api.create_endpoint_config(ipv4_address=address)
    container = client.containers.create(
        image,
        ["python3", "-c", TRY, json.dumps(sorted(listening)), str(SECONDS)],
        network=plan.cluster,
        networking_config={plan.cluster: endpoint},
    )
    try:
        container.start()
        assert container.wait(timeout=600)["StatusCode"] == 0
        through = tried(container.logs(stdout=True, stderr=False).decode())
    finally:
        container.remove(force=True)
    port = plan.services["edge_proxy"].ports["insights"]
    assert through == {(host.address, port) for host in plan.hosts_of("edge_proxy")}


def test_the_rules_are_loaded_at_boot_and_no_drill_left_any(plan, host_named):
    for host in plan.hosts:
        connection = host_named(host.name)
        shown = connection.check_output(
            "systemctl show -p ActiveState,UnitFileState firewall.service"
        )
        assert set(shown.splitlines()) == {"ActiveState=active", "UnitFileState=enabled"}
        assert connection.run("systemctl is-active firewall-rollback.timer").rc != 0
        tables = connection.check_output("nft list tables").splitlines()
        assert "table inet edges" in tables
        assert "table inet partition" not in tables


# A client that makes a new connection for each question, and the edge that it needs.
NEEDED = [
    ("journalnode", "namenode", "http"),
    ("datanode", "namenode", "http"),
    ("datanode", "datanode", "http"),
    ("nodemanager", "resourcemanager", "http"),
    ("nodemanager", "nodemanager", "http"),
    ("zkfc", "zkfc", "rpc"),
]


Handles = dict[str, str]  # host → handle of the rule there


@contextmanager
def laid(host_named, hosts: list[Host], rule: str) -> Iterator[Handles]:
    """A rule before all others, on some hosts and for a while."""
    handles: Handles = {}
    try:
        for host in hosts:
            added = host_named(host.name).check_output(
                f"nft --echo --handle insert rule inet edges input {shlex.quote(rule)}"
            )
            handles[host.name] = added.rpartition("handle")[2].split()[0]
        yield handles
    finally:
        for name, handle in handles.items():
            gone = partial(_is_gone, host_named(name), handle)
            assert wait_until(gone, 5 * PATIENCE_SECONDS), f"{name} still has the rule {handle}"


def _is_gone(connection, handle: str) -> bool:
    """Deletes the rule; a host that is too busy to let SSH in is asked again."""
    try:
        connection.run(f"nft delete rule inet edges input handle {handle}")
        rules = connection.check_output("nft -a list chain inet edges input").splitlines()
    except RuntimeError:
        return False
    return not any(rule.endswith(f"# handle {handle}") for rule in rules)


@pytest.mark.parametrize(("client", "service", "port"), NEEDED)
def test_an_edge_is_needed(plan, host_named, hosts_of, client, service, port):
    """No new connection gets in by it; those that are open go on."""
    first, *_ = hosts_of(client).values()
    health = f"service-gate well {client}"
    first.check_output(health)
    group, number = plan.hosts_of(client)[0].group, plan.services[service].ports[port]
    drop = f"ip saddr @from_{group} tcp dport {number} tcp flags syn drop"
    with laid(host_named, plan.hosts_of(service), drop):
        assert first.run(health).rc != 0
    first.check_output(health)


NOTICED_SECONDS = 60  # a scrape, and a heartbeat of whatever is idle
ASKED_SECONDS = 90  # Hadoop's clients go on asking


@pytest.fixture
def _healed(plan):
    """What was cut off goes on by itself, before others are."""
    yield
    assert wait_until(lambda: judge(plan, collect(plan, fresh=True)).state == HEALTHY, 600, 10)


# These tests themselves come in by the other one, and couldn't give it back.
MISSED = [edge for edge in AMONG if edge.name not in SELDOM | AT_STARTS and edge.purpose != "ssh"]


@pytest.mark.extended
@pytest.mark.usefixtures("_healed")
@pytest.mark.parametrize("server", sorted({edge.server for edge in MISSED}))
def test_each_edge_that_is_taken_away_is_missed(plan, host_named, server):
    """Connections that are open are reset, and no new one gets in: some client meets it."""
    edges = {edge for edge in MISSED if edge.server == server}
    # Who can't call by one edge may not get to where it would have called by another.
    alone = {
        edge for edge in unmissed(plan, host_named, edges) if unmissed(plan, host_named, {edge})
    }
    assert {edge.name for edge in alone} == set()


def unmissed(plan: Plan, host_named, edges: set[Edge]) -> set[Edge]:
    """Those by which nobody called, neither by itself nor asked to. Each is taken away until
    somebody has."""
    with ExitStack() as stack:
        cuts = {edge: stack.enter_context(ExitStack()) for edge in edges}
        handles = {
            edge: cut.enter_context(laid(host_named, servers_of(plan, edge), refusal(edge)))
            for edge, cut in cuts.items()
        }

        def left() -> set[Edge]:
            for edge in [edge for edge in cuts if was_refused(host_named, handles[edge])]:
                cuts.pop(edge).close()
            return set(cuts)

        wait_until(lambda: not left(), NOTICED_SECONDS)
        asked: set[str] = set()
        while callers := sorted({edge.client for edge in left()} - asked):
            ask_for_everything(plan, callers[0], ASKED_SECONDS)
            asked.add(callers[0])
        if left():  # a client may call on behalf of another group's host
            ask_for_everything(plan, None, ASKED_SECONDS)
        return left()


def servers_of(plan: Plan, edge: Edge) -> list[Host]:
    return [host for host in plan.hosts if host.group == edge.server]


def refusal(edge: Edge) -> str:
    verdict = "reject with tcp reset" if edge.protocol == "tcp" else "drop"
    return f"ip saddr @from_{edge.client} {edge.protocol} dport {edge.ports} counter {verdict}"


def was_refused(host_named, handles: Handles) -> bool:
    """Whether the rule has met a packet on any of its hosts."""
    return any(
        re.search(rf"counter packets [1-9]\d* .* handle {handle}$", listed(host_named(name)), re.M)
        for name, handle in handles.items()
    )


def listed(connection) -> str:
    return connection.check_output("nft --handle list chain inet edges input")
