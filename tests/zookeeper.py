"""ZooKeeper in memory, as far as keys need it: nodes, versions, ephemeral nodes, sessions."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
)


class Nodes:
    """What the servers have. ``answers``: whether they do; each call is counted."""

    def __init__(self) -> None:
        self.content: dict[str, tuple[bytes, int]] = {}
        self.owners: dict[str, Client] = {}
        self.answers = True
        self.writes = 0

    def put(self, path: str, content: bytes) -> None:
        _, version = self.content.get(path, (b"", -1))
        self.content[path] = content, version + 1


class Client:
    """As kazoo's, for one session; the calls that end in ``_async`` are answered when asked."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.before_set: Callable[[], None] = lambda: None

    @property
    def connected(self) -> bool:
        return self._nodes.answers

    def end_session(self) -> None:
        for path in [path for path, owner in self._nodes.owners.items() if owner is self]:
            del self._nodes.owners[path], self._nodes.content[path]

    def get(self, path: str) -> tuple[bytes, Any]:
        content, version = self._node(path)
        return content, SimpleNamespace(version=version)

    def get_children(self, path: str) -> list[str]:
        below = [one.removeprefix(f"{path}/") for one in self._all() if one.startswith(f"{path}/")]
        if not below:
            self._node(path)
        return sorted({one.partition("/")[0] for one in below})

    def set(self, path: str, content: bytes, version: int = -1) -> None:
        self.before_set()
        _, known = self._node(path)
        if version not in (-1, known):
            raise BadVersionError
        self._nodes.put(path, content)
        self._nodes.writes += 1

    def create(
        self, path: str, content: bytes = b"", ephemeral: bool = False, makepath: bool = False
    ) -> None:
        parent = path.rpartition("/")[0]
        if path in self._all():
            raise NodeExistsError
        if parent and parent not in self._all():
            if not makepath:
                raise NoNodeError
            self.create(parent, makepath=True)
        self._nodes.put(path, content)
        self._nodes.writes += 1
        if ephemeral:
            self._nodes.owners[path] = self

    def __getattr__(self, name: str) -> Any:
        if not name.endswith("_async"):
            raise AttributeError(name)
        call = getattr(self, name.removesuffix("_async"))
        return lambda *args, **options: SimpleNamespace(get=lambda timeout: call(*args, **options))

    def _all(self) -> dict[str, tuple[bytes, int]]:
        if not self._nodes.answers:
            raise ConnectionLoss
        return self._nodes.content

    def _node(self, path: str) -> tuple[bytes, int]:
        if path not in self._all():
            raise NoNodeError
        return self._nodes.content[path]
