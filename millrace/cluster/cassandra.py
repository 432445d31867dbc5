"""Cassandra: sessions for those who read results, for those who ask how it is, and for probes."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from cassandra import (
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
    RequestExecutionException,
)
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import (
    AddressTranslator,
    ConstantReconnectionPolicy,
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)

from millrace.cluster import tunnel
from millrace.common.errors import UnreachableError
from millrace.plan import Plan
from millrace_shared.generations import NONE, OVERLAY, Overlay

UNANSWERED = (DriverException, NoHostAvailable, OSError)

READ_SECONDS = 20
CONCURRENCY = 16
GLANCE_SECONDS = 3.0
# The jobs' own settings: what a probe meets is what they meet.
REQUEST_SECONDS = 5.0
SPECULATE_AFTER_SECONDS = 0.5
RECONNECT_SECONDS = 2


@contextmanager
def reading(plan: Plan) -> Iterator[Session]:
    """Reads at a quorum of all replicas. Raises UnreachableError when none answers, also while in
    use."""
    profile = ExecutionProfile(
        load_balancing_policy=RoundRobinPolicy(),
        consistency_level=ConsistencyLevel.QUORUM,
        request_timeout=READ_SECONDS,
    )
    try:
        with _session(plan, profile) as session:
            yield session
    except (NoHostAvailable, DriverException, RequestExecutionException) as failure:
        raise UnreachableError(
            f"can't read Cassandra: {failure}", "`millrace status` shows what is down"
        ) from None


@contextmanager
def glancing(plan: Plan) -> Iterator[Session]:
    """Asks nodes one by one and doesn't wait for those that are down; raises UNANSWERED."""
    quiet()
    profile = ExecutionProfile(RoundRobinPolicy(), request_timeout=GLANCE_SECONDS)
    with _session(plan, profile, connect_timeout=GLANCE_SECONDS) as session:
        yield session


@contextmanager
def as_jobs_do(plan: Plan) -> Iterator[Session]:
    """Reads and writes at a local quorum; a second node is asked when the first one hesitates."""
    policy = DCAwareRoundRobinPolicy(plan.names.cassandra.datacenter)
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(policy),
        consistency_level=ConsistencyLevel.LOCAL_QUORUM,
        request_timeout=REQUEST_SECONDS,
        speculative_execution_policy=ConstantSpeculativeExecutionPolicy(SPECULATE_AFTER_SECONDS, 1),
    )
    reconnect = ConstantReconnectionPolicy(RECONNECT_SECONDS, max_attempts=None)
    with _session(plan, profile, reconnection_policy=reconnect, protocol_version=5) as session:
        yield session


def read_each(session: Session, query: str, bindings: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The rows of one query for each of many bindings, all in one list."""
    statement = session.prepare(query)
    results = execute_concurrent_with_args(session, statement, bindings, CONCURRENCY)
    return [row for _, rows in results for row in rows]


def overlay_of(session: Session, keyspace: str, rows: str) -> Overlay:
    """Which generation's rows readers see: of traffic, or of a declared job's table."""
    try:
        found = read_each(session, OVERLAY.format(keyspace=keyspace), [(rows,)])
    except InvalidRequest:
        return NONE  # the table is made by the first deployment that writes it
    return Overlay.parse(found[0].content, found[0].revision) if found else NONE


def quiet() -> None:
    """For whoever asks what is down: lost connections are the answer, not noise."""
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)


class Reached(AddressTranslator):
    """Nodes tell of each other by their own addresses."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def translate(self, addr: str) -> str:
        return self._plan.reached_at(addr)


@contextmanager
def _session(plan: Plan, profile: ExecutionProfile, **options: Any) -> Iterator[Session]:
    nodes = tunnel.reachable(plan, "cassandra", "native")
    cluster = Cluster(
        [node.host for node in nodes],
        port=nodes[0].port,
        address_translator=Reached(plan),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        **options,
    )
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()
