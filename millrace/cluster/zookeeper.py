"""ZooKeeper: drivers as they register themselves, orders to them, the operators' lock, probes."""

import getpass
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from millrace.cluster import tunnel
from millrace.common.errors import OperatorError, UnreachableError
from millrace.common.waiting import wait_until
from millrace.plan import Plan
from millrace_shared.driver_record import DriverRecord
from millrace_shared.strict import Misconfigured

Drivers = dict[str, list[DriverRecord]]  # the living ones of each application

TIMEOUT_SECONDS = 4  # a frozen server accepts the call and never answers
FIRST_CONNECTION_SECONDS = 10
LOCK_SECONDS = 30  # longer than any restart of ZooKeeper's, one server after the other


@dataclass(frozen=True)
class Coordination:
    """What applications and operators have agreed on: see `drivers`, `disabled`, `upkeep`."""

    drivers: Drivers
    disabled: set[str]
    upkeep: dict[str, Any] | None


def coordination(plan: Plan, seconds: float) -> Coordination:
    """Asks for all in one session. Raises UnreachableError when none begins in so many seconds."""
    what = "who drives, which jobs are disabled and how the upkeep went"
    with glancing(plan, what, seconds) as client:
        return Coordination(_drivers(client, plan), _disabled(client, plan), _upkeep(client, plan))


def drivers(plan: Plan) -> Drivers:
    """The living drivers. Raises UnreachableError when ZooKeeper doesn't answer."""
    with glancing(plan, "who drives") as client:
        return _drivers(client, plan)


def disabled(plan: Plan) -> set[str]:
    """The jobs that an operator wants not to run. Raises UnreachableError when ZooKeeper doesn't
    answer."""
    with glancing(plan, "which jobs are disabled") as client:
        return _disabled(client, plan)


def upkeep(plan: Plan) -> dict[str, Any] | None:
    """Returns what the last upkeep came to: see millrace_gateway.upkeep.Record; None before the
    first look.

    UnreachableError when ZooKeeper doesn't answer.
    """
    with glancing(plan, "how the upkeep went") as client:
        return _upkeep(client, plan)


def disable(plan: Plan, job: str) -> None:
    """Order that the job is not to run. Raises UnreachableError when ZooKeeper doesn't answer."""
    with glancing(plan, "whether it takes the order") as client:
        client.ensure_path(_order(plan, job))


def enable(plan: Plan, job: str) -> None:
    """Take that order back. Raises UnreachableError when ZooKeeper doesn't answer."""
    with glancing(plan, "whether it takes the order") as client, suppress(NoNodeError):
        client.delete(_order(plan, job))


def ask(plan: Plan, path: str, question: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Put a question into a node; the answer with the same ``id`` that appears below it.

    UnreachableError when ZooKeeper doesn't answer, or nobody answers in time.
    """
    quiet()
    with _answering(f"what becomes of {path}"), retrying_client(plan) as client:
        client.ensure_path(path)
        until = time.time() + seconds  # later, nobody waits for the answer
        client.set(path, json.dumps(question | {"until": until}).encode())
        found: dict[str, Any] = {}

        def is_answered() -> bool:
            with suppress(NoNodeError):
                content, _ = client.get(f"{path}/answer")
                found.update(json.loads(content or "{}"))
            return found.get("id") == question["id"]

        if not wait_until(is_answered, seconds):
            raise UnreachableError(
                f"nobody answered the question in {path} within {seconds:.0f} s",
                "does the job run, and does a driver lead? `millrace status`, `millrace who`",
            )
        return found


@contextmanager
def glancing(plan: Plan, what: str, seconds: float = TIMEOUT_SECONDS) -> Iterator[KazooClient]:
    """A client that gives up soon; UnreachableError then, also while in use."""
    quiet()
    client = _client(plan)
    try:
        with _answering(what):
            client.start(seconds)
            yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def _answering(what: str) -> Iterator[None]:
    """UnreachableError in place of what the client raises."""
    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        raise UnreachableError(
            f"ZooKeeper doesn't say {what}: {error}", "`millrace status` shows what is down"
        ) from error


@contextmanager
def retrying_client(plan: Plan) -> Iterator[KazooClient]:
    """A client that goes from server to server for as long as it takes."""
    client = _client(plan, {"max_tries": -1, "delay": 0.1, "max_delay": 0.5})
    try:
        client.start(FIRST_CONNECTION_SECONDS)
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def alone(plan: Plan, what: str) -> Iterator[bool]:
    """Nobody else changes the cluster by a playbook meanwhile. Raises OperatorError if somebody
    does.

    False where ZooKeeper doesn't answer: not yet, or as it is what has to be mended. A holder that
    died lets go after `LOCK_SECONDS`.
    """
    quiet()
    client = _client(plan, {"max_tries": -1, "delay": 0.1, "max_delay": 0.5}, LOCK_SECONDS)
    lock = client.Lock(
        f"{PurePosixPath(plan.names.zookeeper.jobs).parent}/operators",
        f"{what}, by {getpass.getuser()} on {socket.gethostname()} (pid {os.getpid()})",
    )
    try:
        try:
            client.start(TIMEOUT_SECONDS)
            held = lock.acquire(blocking=False)
        except (KazooException, KazooTimeoutError):
            yield False
            return
        if not held:
            at_work = ", ".join(lock.contenders())
            raise OperatorError(f"the cluster is being changed: {at_work}", "wait until that ends")
        yield True
    finally:
        client.stop()  # its session ends, and with it the lock
        client.close()


def quiet() -> None:
    """For whoever asks what is down: lost connections are the answer, not noise."""
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)


def _client(
    plan: Plan, retry: dict[str, float] | None = None, session_seconds: float = TIMEOUT_SECONDS
) -> KazooClient:
    servers = ",".join(tunnel.addresses(plan, "zookeeper", "client"))
    return KazooClient(servers, timeout=session_seconds, connection_retry=retry)


def _order(plan: Plan, job: str) -> str:
    """The node whose being there disables a job; the drivers look for it."""
    return f"{plan.names.zookeeper.jobs}/{job}/disabled"


def _drivers(client: KazooClient, plan: Plan) -> Drivers:
    root = plan.names.zookeeper.applications
    return {name: list(_registered(client, f"{root}/{name}/drivers")) for name in plan.applications}


def _disabled(client: KazooClient, plan: Plan) -> set[str]:
    return {job for job in plan.jobs if client.exists(_order(plan, job))}


def _upkeep(client: KazooClient, plan: Plan) -> dict[str, Any] | None:
    try:
        content, _ = client.get(plan.names.zookeeper.upkeep)
    except NoNodeError:
        return None
    record: dict[str, Any] | None = json.loads(content) if content else None
    return record


def _registered(client: KazooClient, folder: str) -> Iterator[DriverRecord]:
    with suppress(NoNodeError):  # never started; or it has gone since it was listed
        for name in client.get_children(folder):
            with suppress(NoNodeError):
                content, _ = client.get(f"{folder}/{name}")
                yield _record(f"{folder}/{name}", content)


def _record(node: str, content: bytes) -> DriverRecord:
    try:
        return DriverRecord.parse(content)
    except (ValueError, Misconfigured) as error:
        raise OperatorError(
            f"ZooKeeper's node {node} is no driver's record: {error}",
            "use the checkout that the jobs were deployed from, or deploy them from this one",
        ) from None
