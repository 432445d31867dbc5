#!/usr/bin/env python3
"""service-gate MOMENT SERVICE [--wait] [--accept HOST,…]: may this host's service be stopped?

MOMENT is one of
  before  exits 0 when the cluster can bear that this host's SERVICE is stopped: no partner of it
          is missing. It says what is missing, and stops nothing.
  after   exits 0 when all hosts of SERVICE do their part again, this one included: the next one
          may go.
  well    exits 0 when in addition nothing is left that settles once all of them were restarted.
  leads   exits 0 when this host leads: it should be the last one to be restarted.

--wait asks again until that is so, as long as the service's settings allow it. Hosts that
--accept names may be missing: an operator knows of them.

/etc/millrace/gate.json has all services' hosts, ports and patience. Where a service answers over a
socket it is asked there; a tool that starts a JVM is the last resort. Services that are asked by
the X-Health of their unit know of themselves only: ask each of their hosts.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

PLAN = Path(os.environ.get("SERVICE_GATE", "/etc/millrace/gate.json"))
UNITS = Path("/etc/systemd/system")
ANSWER_SECONDS = 5
TOOL_SECONDS = 60
AGAIN_SECONDS = 2
# A controller without news writes a record every 500 ms: one that is this far behind hears none.
VOTER_BEHIND_MS = 10_000
# A change of the schema is at all nodes within one. Versions that differ in it don't agree before
# the last node was restarted.
SETTLING_SECONDS = 30
# What a JournalNode hasn't acknowledged for less than a second is on its way; one that is out of
# sync says more behind it. (IPCLoggerChannel.appendReport)
TAKES_EDITS = re.compile(r"([\w.-]+):\d+ \(Written txid \d+(?: \(\d+ txns/\d{1,3}ms behind\))?\)")
UNDER_REPLICATED = re.compile(
    r"Topic: (?P<topic>\S+)\s+Partition: (?P<partition>\d+).*"
    r"Replicas: (?P<replicas>[\d,]+)\s+Isr: (?P<isr>[\d,]*)"
)
RING_NODE = re.compile(r"^([UD][NLJM])\s+(\S+)", re.MULTILINE)
SCHEMA = re.compile(r"^\s+[0-9a-f]{8}-[0-9a-f-]{27}: \[(.*)\]$", re.MULTILINE)


@dataclass(frozen=True)
class Missing:
    """What isn't there; ``host`` is None where nobody can say whose part it is. What ``settles``
    is waited for, but keeps no host from its restart: either it is over in seconds, or it is why
    hosts are restarted."""

    host: str | None
    what: str
    settles: bool = False

    def __str__(self) -> str:
        return f"{self.host}: {self.what}" if self.host else self.what


class NoAnswer(Exception):
    """Who was asked, and why nothing came of it."""


@dataclass(frozen=True)
class Service:
    """A service as this host sees it. ``hosts`` are name → address, ``ids`` name → the number by
    which the service knows a host, ``patience`` the seconds until all is well after a restart,
    ``others`` the same of all services."""

    host: str
    unit: str
    hosts: dict[str, str]
    ids: dict[str, int]
    ports: dict[str, int]
    patience: float
    redis_master: str
    others: dict[str, "Service"]

    @property
    def address(self) -> str:
        return self.hosts[self.host]

    def known(self, name_or_address: str) -> str | None:
        """Returns the host that is meant."""
        found = (h for h, a in self.hosts.items() if name_or_address in (h, a))
        return next(found, None)

    def numbered(self, number: int) -> str:
        return next((h for h, n in self.ids.items() if n == number), f"number {number}")


Check = Callable[[Service], Iterable[Missing]]


def http(address: str, port: int, path: str) -> Any:
    url = f"http://{address}:{port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as response:
            return json.load(response)
    except (OSError, ValueError) as error:
        raise NoAnswer(f"{address}:{port}: {error}") from None


def said(address: str, port: int, words: bytes) -> str:
    """Returns what a server says before it closes the connection."""
    try:
        with socket.create_connection((address, port), ANSWER_SECONDS) as connection:
            connection.sendall(words)
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    except OSError as error:
        raise NoAnswer(f"{address}:{port}: {error}") from None


def printed(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAnswer(str(error)) from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NoAnswer(f"{command[0]}: {lines[-1] if lines else done.returncode}")
    return done.stdout


def state_of(ask: Callable[[str], str], address: str) -> str:
    try:
        return ask(address)
    except NoAnswer as reason:
        return str(reason)


def one_of(states: dict[str, str], leads: str, follows: str) -> Iterator[Missing]:
    """Exactly one host leads, and all others follow. ``states``: host → that, or what is wrong."""
    for host, state in states.items():
        if state not in (leads, follows):
            yield Missing(host, state)
    if (number := list(states.values()).count(leads)) != 1:
        yield Missing(None, f"{number} hosts are {leads}")


# -- ZooKeeper


def zookeeper_mode(service: Service, address: str) -> str:
    """Returns ``leader``, ``follower``, or what a server says instead."""
    answer = said(address, service.ports["client"], b"srvr")
    modes = re.findall(r"^Mode: (\w+)", answer, re.MULTILINE)
    return modes[0] if modes else answer.strip() or "no answer"


def zookeeper(service: Service) -> Iterator[Missing]:
    modes = {
        host: state_of(partial(zookeeper_mode, service), a) for host, a in service.hosts.items()
    }
    yield from one_of(modes, "leader", "follower")


# -- Kafka


def under_replicated(text: str) -> dict[int, list[str]]:
    """Returns broker → partitions that lack its replica, from ``kafka-topics --describe``."""
    found: dict[int, list[str]] = {}
    for line in UNDER_REPLICATED.finditer(text):
        replicas, isr = (set(line[key].split(",")) - {""} for key in ("replicas", "isr"))
        for broker in replicas - isr:
            found.setdefault(int(broker), []).append(f"{line['topic']}-{line['partition']}")
    return found


def kafka_broker(service: Service) -> Iterator[Missing]:
    text = printed("kafka-topics", "--describe", "--under-replicated-partitions")
    for broker, partitions in sorted(under_replicated(text).items()):
        lack = f"{len(partitions)} partitions lack its replica, {partitions[0]} for one"
        yield Missing(service.numbered(broker), lack)


def behind(text: str) -> dict[int, str]:
    """Returns voter → ``leader``, or how it is behind; ``""`` for one that follows. From
    ``kafka-metadata-quorum describe --replication``."""
    head, *lines = (line.split() for line in text.splitlines() if line.strip())
    rows = [dict(zip(head, line, strict=False)) for line in lines]
    voters = [row for row in rows if row.get("Status") in ("Leader", "Follower")]
    now = max((int(row["LastCaughtUpTimestamp"]) for row in voters), default=0)
    found = {}
    for row in voters:
        late = now - int(row["LastCaughtUpTimestamp"])
        lag = f"its voter is {row['Lag']} records and {late / 1000:.0f} s behind"
        found[int(row["NodeId"])] = (
            "leader" if row["Status"] == "Leader" else lag if late > VOTER_BEHIND_MS else ""
        )
    return found


def controllers(service: Service) -> dict[int, str]:
    servers = ",".join(f"{a}:{service.ports['controller']}" for a in service.hosts.values())
    command = ("--bootstrap-controller", servers, "describe", "--replication")
    return behind(printed("kafka-metadata-quorum", *command))


def kafka_controller(service: Service) -> Iterator[Missing]:
    voters = controllers(service)
    for host, number in service.ids.items():
        if number not in voters:
            yield Missing(host, "no voter of the quorum")
        elif voters[number] not in ("", "leader"):
            yield Missing(host, voters[number])
    if "leader" not in voters.values():
        yield Missing(None, "the quorum has no leader")


# -- Cassandra


def cassandra(service: Service) -> Iterator[Missing]:
    states = {
        service.known(node): state
        for state, node in RING_NODE.findall(printed("nodetool", "status"))
    }
    for host in service.hosts:
        if (state := states.get(host, "not in the ring")) != "UN":
            yield Missing(host, state)
    agreed = SCHEMA.findall(printed("nodetool", "describecluster"))
    if len(agreed) > 1:
        apart = " | ".join(agreed)
        yield Missing(None, f"nodes don't agree on the schema: {apart}", settles=True)


# -- Redis


def redis_said(service: Service, address: str, *words: str) -> str:
    return printed("redis-cli", "-h", address, "-p", str(service.ports["client"]), *words)


def replication(service: Service, address: str) -> dict[str, str]:
    text = redis_said(service, address, "info", "replication")
    return dict(re.findall(r"^(\w+):(.*?)\r?$", text, re.MULTILINE))


def redis(service: Service) -> Iterator[Missing]:
    """One master, and each other server is its replica that is in sync."""
    own = replication(service, service.address)
    master = service.known(own.get("master_host", service.address))
    if own.get("role") != "master" and master:
        own = replication(service, service.hosts[master])
    if own.get("role") != "master":
        yield Missing(None, f"{master or own.get('master_host')} is no master")
        return
    replicas = [
        dict(re.findall(r"(\w+)=([^,]*)", v))
        for k, v in own.items()
        if re.fullmatch(r"slave\d+", k)
    ]
    online = {service.known(r["ip"]) for r in replicas if r.get("state") == "online"}
    for host in service.hosts:
        if host not in online | {master}:
            yield Missing(host, f"no replica of {master} that is in sync")


def redis_sentinel(service: Service) -> Iterator[Missing]:
    words = ("sentinel", "sentinels", service.redis_master)
    others = sentinels(redis_said(service, service.address, *words))
    for address, flags in others.items():
        if "down" in flags or "disconnected" in flags:
            yield Missing(service.known(address), f"its Sentinel is {flags}")
    known = {service.host, *map(service.known, others)}
    for host in service.hosts:
        if host not in known:
            yield Missing(host, "no Sentinel that this one knows")


def sentinels(text: str) -> dict[str, str]:
    """Returns address → flags of the other Sentinels, of lines that are keys and values."""
    found, address = {}, ""
    lines = iter(text.splitlines())
    for key, value in zip(lines, lines, strict=False):
        if key == "ip":
            address = value
        elif key == "flags":
            found[address] = value
    return found


# -- Hadoop


def bean(address: str, port: int, service: str, name: str) -> Any:
    """A JMX bean; a daemon that is still starting has not published all of them."""
    beans = http(address, port, f"/jmx?qry=Hadoop:service={service},name={name}")["beans"]
    if not beans:
        raise NoAnswer(f"{address}:{port}: still starting")
    return beans[0]


def of_namenode(service: Service, address: str, name: str) -> Any:
    port = service.others["namenode"].ports["http"]
    return bean(address, port, "NameNode", name)


def active_namenode(service: Service) -> str:
    """Returns its address."""
    for address in service.others["namenode"].hosts.values():
        try:
            if of_namenode(service, address, "NameNodeStatus")["State"] == "active":
                return address
        except NoAnswer:
            continue
    raise NoAnswer("no NameNode is active")


def namenode(service: Service) -> Iterator[Missing]:
    def state(address: str) -> str:
        safe_mode = of_namenode(service, address, "NameNodeInfo")["Safemode"]
        return str(safe_mode or of_namenode(service, address, "NameNodeStatus")["State"])

    masters = service.others["namenode"].hosts
    states = {host: state_of(state, address) for host, address in masters.items()}
    yield from one_of(states, "active", "standby")


def zkfc(service: Service) -> Iterator[Missing]:
    """Each one listens, and together they keep one NameNode active."""
    for host, address in service.hosts.items():
        try:
            socket.create_connection((address, service.ports["rpc"]), ANSWER_SECONDS).close()
        except OSError as error:
            yield Missing(host, f"its failover controller: {error}")
    yield from namenode(service)


def journalnode(service: Service) -> Iterator[Missing]:
    """Each one takes the writer's edits.

    A JournalNode that was away is left out until the next segment of the log. The writer notices
    only when it has edits to send, so one that just restarted has to have taken some itself: two of
    three without an open segment would stop the active NameNode.
    """
    status = of_namenode(service, active_namenode(service), "NameNodeInfo")["NameJournalStatus"]
    stream = next(j["stream"] for j in json.loads(status) if j["manager"].startswith("QJM"))
    taking = {service.known(address) for address in TAKES_EDITS.findall(stream)}
    for host, address in service.hosts.items():
        try:
            name = "Journal-millrace"
            written = bean(address, service.ports["http"], "JournalNode", name)["TxnsWritten"]
        except NoAnswer as reason:
            yield Missing(host, str(reason))
            continue
        if host not in taking:
            yield Missing(host, f"the active NameNode says: {stream}")
        elif not written:
            yield Missing(host, "no edits since it started; the next segment brings them")


def datanode(service: Service) -> Iterator[Missing]:
    """All are there, in service of every NameNode, and no block lacks a replica."""
    master = active_namenode(service)
    nodes = json.loads(of_namenode(service, master, "NameNodeInfo")["LiveNodes"]).values()
    live = {service.known(node["infoAddr"].split(":")[0]) for node in nodes}
    for host, address in service.hosts.items():
        if wrong := "not live" if host not in live else datanode_part(service, address):
            yield Missing(host, wrong)
    lacking = of_namenode(service, master, "FSNamesystemState")["UnderReplicatedBlocks"]
    if lacking and live >= set(service.hosts):
        yield Missing(None, f"{lacking} blocks lack a replica")


def datanode_part(service: Service, address: str) -> str | None:
    """Returns what is wrong with a DataNode that lives."""
    try:
        info = bean(address, service.ports["http"], "DataNode", "DataNodeInfo")
    except NoAnswer as reason:
        return str(reason)
    actors = json.loads(info["BPServiceActorInfo"])
    idle = (a for a in actors if a["ActorState"] != "RUNNING")
    return next((f"{a['ActorState']} to {a['NamenodeAddress']}" for a in idle), None)


def resourcemanager_state(service: Service, address: str) -> str:
    port = service.others["resourcemanager"].ports["http"]
    return str(http(address, port, "/ws/v1/cluster/info")["clusterInfo"]["haState"]).lower()


def resourcemanager(service: Service) -> Iterator[Missing]:
    ask = partial(resourcemanager_state, service)
    states = {host: state_of(ask, address) for host, address in service.hosts.items()}
    yield from one_of(states, "active", "standby")


def nodemanager(service: Service) -> Iterator[Missing]:
    """All are there; one that restarts keeps its place at the ResourceManager for a while."""
    masters = service.others["resourcemanager"]
    # A standby redirects to the active one.
    path = "/ws/v1/cluster/nodes?states=RUNNING"
    for address in masters.hosts.values():
        try:
            nodes = (http(address, masters.ports["http"], path)["nodes"] or {}).get("node", [])
            break
        except NoAnswer:
            continue
    else:
        raise NoAnswer("no ResourceManager answers")
    running = {service.known(node["nodeHostName"]) for node in nodes}
    for host, address in service.hosts.items():
        if host not in running:
            yield Missing(host, "not running, says the ResourceManager")
            continue
        try:
            http(address, service.ports["http"], "/ws/v1/node/info")
        except NoAnswer as reason:
            yield Missing(host, str(reason))


CHECKS: dict[str, Check] = {
    "zookeeper": zookeeper,
    "kafka_broker": kafka_broker,
    "kafka_controller": kafka_controller,
    "cassandra": cassandra,
    "redis": redis,
    "redis_sentinel": redis_sentinel,
    "journalnode": journalnode,
    "namenode": namenode,
    "zkfc": zkfc,
    "datanode": datanode,
    "resourcemanager": resourcemanager,
    "nodemanager": nodemanager,
}
# At which port a service serves once it has started.
SERVES = {
    "zookeeper": "client",
    "kafka_broker": "client",
    "kafka_controller": "controller",
    "cassandra": "native",
    "redis": "client",
    "redis_sentinel": "client",
    "journalnode": "rpc",
    "namenode": "rpc",
    "zkfc": "rpc",
    "datanode": "data",
    "resourcemanager": "http",
    "nodemanager": "rpc",
}
LEADS: dict[str, Callable[[Service], bool]] = {
    "zookeeper": lambda service: zookeeper_mode(service, service.address) == "leader",
    "kafka_controller": lambda service: controllers(service)[service.ids[service.host]] == "leader",
    "redis": lambda service: replication(service, service.address)["role"] == "master",
    "namenode": lambda service: active_namenode(service) == service.address,
    "zkfc": lambda service: active_namenode(service) == service.address,
    "resourcemanager": lambda s: resourcemanager_state(s, s.address) == "active",
}


def by_health(service: Service) -> Iterator[Missing]:
    """This host's own part, by the command that its unit has for it; else it has to be active."""
    text = (UNITS / f"{service.unit}.service").read_text()
    health = re.search(r"^X-Health=(.*)$", text, re.MULTILINE)
    command = health[1] if health else f"systemctl is-active {service.unit}"
    try:
        printed("/bin/sh", "-c", command)
    except NoAnswer as reason:
        yield Missing(service.host, str(reason))


def missing(name: str, service: Service) -> list[Missing]:
    try:
        return list(CHECKS.get(name, by_health)(service))
    except NoAnswer as reason:
        return [Missing(None, str(reason))]
    # A daemon that starts answers before it knows all of itself.
    except (LookupError, TypeError, ValueError) as odd:
        return [Missing(None, f"an answer that isn't complete: {odd!r}")]


def serves(name: str, service: Service) -> bool:
    if name not in SERVES:
        return not missing(name, service)
    try:
        place = (service.address, service.ports[SERVES[name]])
        socket.create_connection(place, ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def in_the_way(
    found: Iterable[Missing], host: str, accepted: Container[str | None]
) -> list[Missing]:
    """Returns what forbids to stop the service on ``host``: all but the host itself, and hosts
    that an operator knows to be missing."""
    return [one for one in found if one.host != host and one.host not in accepted]


def loaded(name: str) -> Service:
    """Raises OSError and ValueError as the file does, KeyError for a service that isn't here."""
    plan = json.loads(PLAN.read_text())
    services: dict[str, Service] = {}
    for each, facts in plan["services"].items():
        services[each] = Service(
            plan["host"], redis_master=plan["redis_master"], others=services, **facts
        )
    if plan["host"] not in services[name].hosts:
        raise KeyError(name)
    return services[name]


def wrong(
    moment: str,
    name: str,
    service: Service,
    accepted: Container[str | None] = (),
    waited: float = SETTLING_SECONDS,
) -> list[Missing]:
    """Returns what is missing at that moment, ``waited`` seconds after it was first asked for."""
    found = missing(name, service)
    if moment == "after" or (moment == "before" and waited >= SETTLING_SECONDS):
        found = [one for one in found if not one.settles]
    if moment != "before":
        return found
    # What doesn't serve takes nothing away when it is restarted.
    found = in_the_way(found, service.host, accepted)
    return found if found and serves(name, service) else []


def leads(name: str, service: Service) -> bool:
    try:
        return name in LEADS and LEADS[name](service)
    except (NoAnswer, KeyError):
        return False


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("moment", choices=["before", "after", "well", "leads"])
    parser.add_argument("service", metavar="SERVICE")
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--accept", default="")
    asked = parser.parse_args()
    try:
        service = loaded(asked.service)
    except (OSError, ValueError, KeyError) as error:
        parser.error(f"{asked.service} doesn't run on this host, by {PLAN}: {error!r}")
    if asked.moment == "leads":
        return 0 if leads(asked.service, service) else 1
    began, accepted = time.monotonic(), {*asked.accept.split(",")}
    while found := wrong(
        asked.moment, asked.service, service, accepted, waited := time.monotonic() - began
    ):
        if not asked.wait or waited >= service.patience:
            print(*(f"{asked.service}: {one}" for one in found), sep="\n", file=sys.stderr)
            return 1
        time.sleep(AGAIN_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
