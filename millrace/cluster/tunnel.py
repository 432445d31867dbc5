"""Where this machine reaches the hosts' services, and how it gets there.

Straight, or where operators may only enter an edge host (``network.way_in: edge``) through SSH:
each address that is asked for gets a forward from its mirror on this machine (`Plan.reached_at`).
One connection serves all commands. It ends a minute after the last of them, and when its edge host
dies; a command that goes on opens it anew, through whichever edge host lets it in.
"""

import fcntl
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from operator import not_
from typing import TextIO

from millrace.cluster.access import entry, shared_socket, target, way_in
from millrace.common.errors import OperatorError, UnreachableError
from millrace.common.waiting import wait_until
from millrace.config import ENTRANCE
from millrace.plan import Host, Plan
from millrace.plan.parts import Endpoint

LOOK_SECONDS = 0.5
BOOT_SECONDS = 120
KEPT_SECONDS = 60  # that the connection is kept when nobody uses it


def addresses(plan: Plan, service: str, port: str) -> list[str]:
    """Returns ``address:port`` of each host of a service."""
    return [str(endpoint) for endpoint in reachable(plan, service, port)]


def reachable(plan: Plan, service: str, port: str) -> list[Endpoint]:
    """Returns what `addresses` does, for clients that want host and port apart."""
    return _reach(plan, plan.reachable(service, port))


def on_host(plan: Plan, host: Host, service: str, port: str) -> Endpoint:
    """Returns a service's port on one certain host."""
    return at(plan, Endpoint(host.address, plan.services[service].ports[port]))


def at(plan: Plan, endpoint: Endpoint) -> Endpoint:
    """Returns what a service says of another one's place."""
    [found] = _reach(plan, [endpoint])
    return found


def prepare(plan: Plan, endpoints: list[Endpoint]) -> None:
    """Have the ways to many places at once, for who then asks for them one by one."""
    _reach(plan, endpoints)


def enter(plan: Plan) -> None:
    """Have the way that `access.way_in` leads by, where hosts aren't entered straight."""
    if plan.by_edge:
        _way(plan.environment).need(plan, [])


def await_entrance(plan: Plan) -> None:
    """Enters as `enter` does, once a host that has just been made listens."""

    def ask() -> OperatorError | None:
        try:
            enter(plan)
        except OperatorError as refusal:
            return refusal
        return None

    if refusal := wait_until(ask, BOOT_SECONDS, done=not_):
        raise refusal


def _reach(plan: Plan, endpoints: list[Endpoint]) -> list[Endpoint]:
    if plan.by_edge:
        _way(plan.environment).need(plan, endpoints)
    return [Endpoint(plan.reached_at(address), port) for address, port in endpoints]


@cache
def _way(environment: str) -> "_Way":
    """One for each cluster that this process works on."""
    return _Way()


class _Way:
    """This process' part in the connection that all processes share; used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._needed: set[Endpoint] = set()
        self._keeper: threading.Thread | None = None

    def need(self, plan: Plan, endpoints: Iterable[Endpoint]) -> None:
        """Have their forwards, for as long as this process lives.

        Raises UnreachableError when no edge host lets this machine in.
        """
        with self._lock:
            if self._keeper and self._needed.issuperset(endpoints):
                return
            self._needed.update(endpoints)
            self._open(plan)
            if not self._keeper:
                self._keeper = threading.Thread(target=self._keep, args=[plan], daemon=True)
                self._keeper.start()

    def _keep(self, plan: Plan) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            if not _is_open(plan):
                with suppress(OperatorError), self._lock:  # tried again soon
                    self._open(plan)

    def _open(self, plan: Plan) -> None:
        with _alone(plan) as latest:
            if not _is_open(plan):
                latest.seek(0)
                entered = _enter(plan, but_last=latest.read())
                latest.truncate(0)
                latest.write(entered)
            _forward(plan, self._needed)


@contextmanager
def _alone(plan: Plan) -> Iterator[TextIO]:
    """Lets one process at a time open the connection; the file says who was entered latest."""
    with shared_socket(plan).with_suffix(".lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _is_open(plan: Plan) -> bool:
    with socket.socket(socket.AF_UNIX) as link, suppress(OSError):
        link.connect(str(shared_socket(plan)))
        return True
    return False


def _enter(plan: Plan, but_last: str) -> str:
    """The name of the edge host that let this machine in; one whose connection ended may hang."""
    shared_socket(plan).unlink(missing_ok=True)  # of one that was killed
    shared = ("-o", "ControlMaster=yes", "-o", f"ControlPersist={KEPT_SECONDS}")
    refusals = []
    for host in sorted(plan.hosts_of(ENTRANCE), key=lambda host: host.name == but_last):
        options = (*entry(plan), *shared, *way_in(plan, host))
        reason = _ssh(plan, "-fN", *options, target(plan, host))
        if reason is None:
            return host.name
        refusals.append(f"{host.name} ({host.address}) doesn't let this machine in: {reason}")
    raise UnreachableError("\n".join(refusals), "operators come in by SSH to an edge host")


def _forward(plan: Plan, endpoints: Iterable[Endpoint]) -> None:
    """What is forwarded already stays as it is."""
    wanted = [
        word
        for host, port in endpoints
        for word in ("-L", f"{plan.reached_at(host)}:{port}:{host}:{port}")
    ]
    if wanted and (reason := _ssh(plan, "-O", "forward", *wanted, plan.cluster)):
        raise OperatorError(
            f"SSH to an edge host forwards nothing: {reason}",
            "does another program hold these ports? On macOS each address needs an alias of lo0",
        )


def _ssh(plan: Plan, *arguments: str) -> str | None:
    """Runs ``ssh``; returns what it complains of, if it fails."""
    with tempfile.TemporaryFile("w+") as said:  # no pipe: what goes on in the background keeps it
        command = ["ssh", "-o", f"ControlPath={shared_socket(plan)}", *arguments]
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said).returncode:
            said.seek(0)
            return said.read().strip()
    return None
