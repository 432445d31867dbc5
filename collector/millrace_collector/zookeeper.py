"""The collector's part of ZooKeeper: the keys, that this door is there, when each key was used."""

import json
from collections.abc import Mapping
from contextlib import suppress

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NodeExistsError, NoNodeError

from millrace_shared.names import ZookeeperNames

UNIT = "collector"
# Of the session, so of a door that died; and of a server that accepts a question and is frozen.
SECONDS = 4.0
RETRY = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}


class ZookeeperRegistry:
    """See `millrace_shared.keys.Registry`. What raises is asked again by the next look."""

    def __init__(self, client: KazooClient, znodes: ZookeeperNames, host: str) -> None:
        self._client = client
        self._keys = znodes.keys
        self._used = f"{znodes.keys}/{UNIT}-{host}"
        self._doors = f"{znodes.doors}/{UNIT}"
        self._host = host

    def keys(self) -> bytes:
        if not self._client.connected:  # what is asked nevertheless would wait in its memory
            raise ConnectionLoss("no server answers")
        content, _ = self._client.get_async(self._keys).get(timeout=SECONDS)
        return bytes(content)

    def register(self) -> int:
        """The node of a session before this one goes by itself; then it is made anew."""
        doors = self._there()
        if self._host not in doors:
            path = f"{self._doors}/{self._host}"
            with suppress(NodeExistsError):
                made = self._client.create_async(path, ephemeral=True, makepath=True)
                made.get(timeout=SECONDS)
        return len(doors | {self._host})

    def used(self) -> dict[str, float]:
        try:
            content, _ = self._client.get_async(self._used).get(timeout=SECONDS)
        except NoNodeError:
            return {}
        return dict(json.loads(content or b"{}"))

    def note_used(self, at: Mapping[str, float]) -> None:
        """Where the keys' own node isn't there, it isn't made by this one: empty, it would look as
        if there were no keys."""
        content = json.dumps(at).encode()
        try:
            self._client.set_async(self._used, content).get(timeout=SECONDS)
        except NoNodeError:
            self._client.create_async(self._used, content).get(timeout=SECONDS)

    def _there(self) -> set[str]:
        try:
            return set(self._client.get_children_async(self._doors).get(timeout=SECONDS))
        except NoNodeError:
            return set()


def connect(servers: str) -> KazooClient:
    """A client that never gives up; it is to be started."""
    return KazooClient(servers, timeout=SECONDS, connection_retry=RETRY)
