"""Asks each plane again and again whether it works, the way its clients do.

Ten times a second where an answer is due to a goal; twice elsewhere, because asking is work for the
machine that is measured.

`produce` isn't asked here: the load's own ledger knows when each partition acknowledged last.
"""

import itertools
import threading
import time
from array import array
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

import numpy as np

from millrace.cluster import cassandra, doors, kafka, redis, tunnel, zookeeper
from millrace.cluster.http import AnyHost, any_host
from millrace.drill.gaps import Times, growths
from millrace.drill.runbook import Plane
from millrace.plan import Plan

PERIOD_SECONDS = 0.1
PERIOD_WITHOUT_GOAL_SECONDS = 0.5
# A probe that hangs is a gap already; it only has to come back to see the end of it.
TIMEOUT_SECONDS = 1.0
# The name of everything that probes write: a topic, a znode, a folder, a key, a keyspace.
NAME = "millrace-drill"
KEYSPACE = "millrace_drill"
KEYS = 64
# The API is asked for windows from one hour before the drill on, whatever its length.
LONGEST_DRILL = timedelta(hours=24)

# Returns a value that grows while data flows, or None; whatever it raises is an interruption.
Probe = Callable[[], int | None]


class Sampler(threading.Thread):
    """Calls a probe at a fixed period and keeps when it succeeded, and with what value."""

    def __init__(self, name: str, probe: Probe, period: float = PERIOD_SECONDS) -> None:
        super().__init__(name=f"plane-{name}", daemon=True)
        self.plane = name
        self.error = ""
        self._probe = probe
        self._period = period
        self._stopping = threading.Event()
        self._times = array("d")
        self._values = array("d")

    def run(self) -> None:
        while not self._stopping.wait(self._period - time.time() % self._period):
            try:
                value = self._probe()
            except Exception as error:  # anything but an answer is an interruption
                self.error = f"{type(error).__name__}: {error}"
                continue
            self._values.append(value or 0)
            self._times.append(time.time())

    def stop(self) -> None:
        self._stopping.set()

    def successes(self) -> Times:
        """Unix times of the answers."""
        return np.array(self._times[:])  # a copy: an array that is being looked at can't grow

    def growths(self) -> Times:
        """Unix times of the answers that were larger than all before."""
        times = self.successes()
        return growths(times, np.array(self._values[: len(times)]))


@contextmanager
def sampling(plan: Plan, goals: Collection[str]) -> Iterator[dict[Plane, Sampler]]:
    """Plane → its running sampler, `read` standing for `process` as well.

    ``goals`` are the planes that have one.
    """
    cassandra.quiet()
    zookeeper.quiet()
    with ExitStack() as stack:
        probes = {
            Plane.READ: api_probe(plan, stack),
            Plane.KAFKA_CONTROL: kafka_probe(plan),
            Plane.ZOOKEEPER: zookeeper_probe(plan, stack),
            Plane.HDFS: hdfs_probe(plan, stack),
            Plane.YARN: yarn_probe(plan, stack),
            Plane.REDIS: redis_probe(plan),
            Plane.CASSANDRA: cassandra_probe(plan, stack),
        }
        closely = {Plane.READ, *goals}
        samplers = {
            name: Sampler(
                name, probe, PERIOD_SECONDS if name in closely else PERIOD_WITHOUT_GOAL_SECONDS
            )
            for name, probe in probes.items()
        }
        for sampler in samplers.values():
            sampler.start()
        try:
            yield samplers
        finally:
            for sampler in samplers.values():
                sampler.stop()
            for sampler in samplers.values():
                sampler.join(2 * cassandra.REQUEST_SECONDS)


def successes(samplers: dict[Plane, Sampler]) -> dict[Plane, Times]:
    """Returns Unix times of the answers."""
    seen = {name: sampler.successes() for name, sampler in samplers.items()}
    return {Plane.PROCESS: samplers[Plane.READ].growths()} | seen


def api_probe(plan: Plan, stack: ExitStack) -> Probe:
    """Asks for all requests counted in the hours of the drill; the other edge host is asked at
    once."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    span = {"from": hour.isoformat(), "to": (hour + LONGEST_DRILL).isoformat(), "window": "1h"}
    hosts = stack.enter_context(
        any_host(
            doors.addresses(plan, doors.INSIGHTS),
            TIMEOUT_SECONDS,
            TIMEOUT_SECONDS / 2,
            doors.credentials(plan),
        )
    )

    def probe() -> int:
        windows = hosts.get("/v1/traffic", **span).json()["windows"]
        return sum(window["requests"] for window in windows)

    return probe


def kafka_probe(plan: Plan) -> Probe:
    """The controller checks a topic that it is not asked to make."""
    # A broker that died is left soon.
    client = kafka.fast_failover_client(plan) | {"topic.metadata.refresh.interval.ms": 1000}
    admin = kafka.admin(client)
    topic = kafka.NewTopic(NAME, 1, plan.replication.kafka.factor)

    def probe() -> None:
        asked = admin.create_topics([topic], validate_only=True, request_timeout=TIMEOUT_SECONDS)
        asked[NAME].result(2 * TIMEOUT_SECONDS)

    return probe


def zookeeper_probe(plan: Plan, stack: ExitStack) -> Probe:
    """A znode is written, which takes a quorum."""
    client = stack.enter_context(zookeeper.retrying_client(plan))
    client.ensure_path(NAME)
    return lambda: client.set_async(NAME, b"").get(timeout=TIMEOUT_SECONDS) and None


def hdfs_probe(plan: Plan, stack: ExitStack) -> Probe:
    """The active NameNode logs an edit, which takes a quorum of JournalNodes."""
    hosts = _hosts(plan, stack, "namenode")
    path = f"/webhdfs/v1/tmp/{NAME}"
    user = plan.services["namenode"].user
    hosts.ask("PUT", path, {"op": "MKDIRS", "user.name": user})

    def probe() -> None:
        now = str(round(time.time() * 1000))
        hosts.ask("PUT", path, {"op": "SETTIMES", "user.name": user, "modificationtime": now})

    return probe


def yarn_probe(plan: Plan, stack: ExitStack) -> Probe:
    """The active ResourceManager tells the cluster's metrics; the standby only redirects."""
    hosts = _hosts(plan, stack, "resourcemanager")

    def probe() -> None:
        hosts.get("/ws/v1/cluster/metrics")

    return probe


def redis_probe(plan: Plan) -> Probe:
    """A write at the master that the Sentinels name at this moment."""
    master = redis.Master(plan, TIMEOUT_SECONDS / 2)
    return lambda: master.set(NAME, "")


def cassandra_probe(plan: Plan, stack: ExitStack) -> Probe:
    """A row is written and read again, each time by a quorum."""
    session = stack.enter_context(cassandra.as_jobs_do(plan))
    datacenter = plan.names.cassandra.datacenter
    session.execute(
        f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = "
        f"{{'class': 'NetworkTopologyStrategy', '{datacenter}': {plan.replication.cassandra}}}"
    )
    session.execute(
        f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.probe (key int PRIMARY KEY, count bigint)"
    )
    write = session.prepare(f"INSERT INTO {KEYSPACE}.probe (key, count) VALUES (?, ?)")
    read = session.prepare(f"SELECT count FROM {KEYSPACE}.probe WHERE key = ?")
    write.is_idempotent = read.is_idempotent = True
    counter = itertools.count()

    def probe() -> None:
        # Keys in turn: each node is some key's coordinator.
        count = next(counter)
        session.execute(write, (count % KEYS, count))
        session.execute(read, (count % KEYS,))

    return probe


def _hosts(plan: Plan, stack: ExitStack, service: str) -> AnyHost:
    return stack.enter_context(
        any_host(tunnel.addresses(plan, service, "http"), TIMEOUT_SECONDS, TIMEOUT_SECONDS / 2)
    )
