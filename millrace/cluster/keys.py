"""The keys of a cluster, in ZooKeeper: read, changed where nobody else has meanwhile, and had back
from a door's own copy where ZooKeeper has lost them."""

import getpass
import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from millrace.cluster import zookeeper
from millrace.cluster.ssh import on_all, run_on
from millrace.common.errors import OperatorError, UnreachableError
from millrace.plan import DATA_ROOT, Host, Plan
from millrace_shared.keys import COPY, Keys
from millrace_shared.strict import Misconfigured

Edit = Callable[[Keys], Keys]

DOORS = ("collector", "insight_api")  # services that follow the keys
TRIES = 5  # of a change, while others change keys as well
ANSWER_SECONDS = 10.0
# Its time in seconds since 1970, and the copy; nothing where there is none.
READ_COPY = "sudo sh -c 'test ! -e {path} || {{ stat -c %Y {path} && cat {path}; }}'"


@dataclass(frozen=True)
class Use:
    """When a key was last used, in seconds since 1970, and at which door: ``collector-edge-1``."""

    at: float
    door: str


@dataclass(frozen=True)
class Copy:
    written_at: int
    content: bytes


class KeyRegistry:
    """``copies`` finds the doors' copies where ZooKeeper has no keys at all."""

    def __init__(self, client: KazooClient, node: str, copies: Callable[[], list[Copy]]) -> None:
        self._client = client
        self._node = node
        self._copies = copies

    def keys(self) -> Keys:
        return self._read()[0]

    def change(self, edit: Edit) -> Keys:
        """Applies an edit to what the keys are then; returns what they are now.

        Raises what the edit raises, and OperatorError when others change keys all the time.
        """
        for _ in range(TRIES):
            keys, version = self._read()
            changed = edit(keys)
            if changed == keys and version is not None:
                return keys
            with suppress(BadVersionError, NoNodeError, NodeExistsError):
                self._write(changed, version)
                return changed
        raise OperatorError("others change keys all the time; nothing was changed", "run it again")

    def used(self) -> dict[str, Use]:
        """The last use of each key, at whichever door it was."""
        uses: dict[str, Use] = {}
        for door in self._doors():
            content, _ = self._client.get(f"{self._node}/{door}")
            for name, at in json.loads(content or b"{}").items():
                if name not in uses or uses[name].at < at:
                    uses[name] = Use(at, door)
        return uses

    def _doors(self) -> list[str]:
        try:
            return list(self._client.get_children(self._node))
        except NoNodeError:
            return []

    def _read(self) -> tuple[Keys, int | None]:
        """The keys, and the node's version; None where ZooKeeper has none and they are a copy's."""
        try:
            content, stat = self._client.get(self._node)
        except NoNodeError:
            return self._lost(), None
        if not content:  # by accident, as of a node beneath it: see Keys.parse
            return self._lost(), stat.version
        return _parsed(content, f"ZooKeeper's node {self._node}"), stat.version

    def _lost(self) -> Keys:
        found = max(self._copies(), key=lambda copy: copy.written_at, default=None)
        return _parsed(found.content, "a door's copy") if found else Keys()

    def _write(self, keys: Keys, version: int | None) -> None:
        if version is None:
            self._client.create(self._node, keys.content(), makepath=True)
        else:
            self._client.set(self._node, keys.content(), version)


@contextmanager
def registry(plan: Plan) -> Iterator[KeyRegistry]:
    """Raises UnreachableError when ZooKeeper doesn't answer, now or while it is used."""
    with zookeeper.glancing(plan, "which keys there are", ANSWER_SECONDS) as client:
        yield KeyRegistry(client, plan.names.zookeeper.keys, lambda: copies(plan))


def copies(plan: Plan) -> list[Copy]:
    """The copies that doors' hosts have, by SSH.

    Raises UnreachableError where none is found and a host didn't answer: it may have one, and would
    lose it to keys that begin anew.
    """
    hosts = [host for host in plan.hosts if set(DOORS) & set(host.services)]
    found = on_all(hosts, lambda host: _copies_of(plan, host))
    known = [copy for of_host in found.values() for copy in of_host or []]
    silent = [name for name, of_host in found.items() if of_host is None]
    if silent and not known:
        raise UnreachableError(
            f"ZooKeeper has no keys, and {', '.join(silent)} didn't say whether a copy is there",
            "`millrace status` shows what is down; once the host is back, run it again",
        )
    return known


def made_by() -> str:
    return f"{getpass.getuser()} on {socket.gethostname()}"


def _copies_of(plan: Plan, host: Host) -> list[Copy] | None:
    """None where the host doesn't answer."""
    found = []
    for service in (name for name in DOORS if name in host.services):
        path = f"{DATA_ROOT}/{plan.services[service].unit}/{COPY}"
        try:
            done = run_on(plan, host, READ_COPY.format(path=path))
        except subprocess.TimeoutExpired:
            return None
        if done.returncode:
            return None
        written_at, _, content = done.stdout.partition("\n")
        if content:
            found.append(Copy(int(written_at), content.encode()))
    return found


def _parsed(content: bytes, of: str) -> Keys:
    try:
        return Keys.parse(content)
    except (ValueError, Misconfigured) as error:
        raise OperatorError(
            f"{of} holds no keys: {error}",
            "use the checkout of the last `millrace up`; nothing was changed",
        ) from None
