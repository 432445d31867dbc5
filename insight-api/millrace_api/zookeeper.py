"""Keys in ZooKeeper, and the nodes by which doors know of each other."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.interfaces import IAsyncResult

from millrace_shared.names import ZookeeperNames

UNIT = "insight-api"  # doors of one kind count each other
# A server that is frozen keeps its connections; after so long another one is asked, and this door's
# node goes if it is this door that is frozen.
SESSION_SECONDS = 4.0
AGAIN = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}


class RegistryUnavailable(Exception):
    """ZooKeeper doesn't answer, or has no keys."""


class Registry:
    """Of `millrace_shared.keys`, over one connection, which is sought for as long as it takes."""

    def __init__(self, client: KazooClient, names: ZookeeperNames, host: str) -> None:
        self._client = client
        self._keys = names.keys
        self._used = f"{names.keys}/{UNIT}-{host}"
        self._doors = f"{names.doors}/{UNIT}"
        self._host = host

    def start(self) -> None:
        """Begin to connect; nobody waits for it."""
        self._client.start_async()

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def keys(self) -> bytes:
        """Raises RegistryUnavailable, as all of these do."""
        try:
            content, _ = self._answer(self._client.get_async, self._keys)
        except NoNodeError:
            raise RegistryUnavailable(
                f"ZooKeeper has no {self._keys}; `millrace up` and `millrace keys` make it"
            ) from None
        return content

    def register(self) -> int:
        """A session that was lost took the node along: it is made anew."""
        try:
            there = self._answer(self._client.get_children_async, self._doors)
        except NoNodeError:
            there = []
        if self._host in there:
            return len(there)
        with suppress(NodeExistsError):  # an earlier look's, which wasn't waited for
            path = f"{self._doors}/{self._host}"
            self._answer(self._client.create_async, path, b"", ephemeral=True, makepath=True)
        return len(there) + 1

    def used(self) -> dict[str, float]:
        try:
            content, _ = self._answer(self._client.get_async, self._used)
        except NoNodeError:
            return {}
        noted: dict[str, float] = json.loads(content or b"{}")
        return noted

    def note_used(self, at: Mapping[str, float]) -> None:
        """Where the keys' own node isn't there, it isn't made by this one: empty, it would look as
        if there were no keys."""
        content = json.dumps(at).encode()
        try:
            self._answer(self._client.set_async, self._used, content)
        except NoNodeError:
            try:
                self._answer(self._client.create_async, self._used, content)
            except NoNodeError:
                raise RegistryUnavailable(f"ZooKeeper has no {self._keys}") from None

    def _answer(self, ask: Any, *what: Any, **how: Any) -> Any:
        """Raises RegistryUnavailable if none comes in time. Nothing waits for a connection: what
        was asked meanwhile would all be asked at once."""
        if not self._client.connected:
            raise RegistryUnavailable("ZooKeeper can't be reached")
        asked: IAsyncResult = ask(*what, **how)
        try:
            return asked.get(timeout=SESSION_SECONDS)
        except (NoNodeError, NodeExistsError):
            raise
        except (KazooException, KazooTimeoutError) as error:
            raise RegistryUnavailable(f"ZooKeeper doesn't answer: {error!r}") from error


def client(servers: Sequence[tuple[str, int]]) -> KazooClient:
    """One that isn't connected yet."""
    addresses = ",".join(f"{host}:{port}" for host, port in servers)
    return KazooClient(addresses, timeout=SESSION_SECONDS, connection_retry=dict(AGAIN))
