"""Keys of readers, and the application over them: for tests, which read by `BEARER` mostly."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from millrace_api import app
from millrace_api.settings import Settings
from millrace_api.zookeeper import RegistryUnavailable

from millrace_shared.keys import SCOPES, Follower, Key, Keys, Secret, sha256
from tests.api.fakes import FakeFeed, FakeStore


def secret_of(name: str) -> str:
    """As long as it has to be."""
    return f"secret-of-{name}-".ljust(43, "x")


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret_of(name)}"}


def key(name: str, *scopes: str, **more: Any) -> Key:
    return Key([Secret(sha256(secret_of(name).encode()))], scopes=[*scopes], **more)


ALL = "all-scopes"
BEARER = bearer(ALL)


@dataclass
class FakeRegistry:
    content: bytes = b"{}"
    away: bool = False
    noted: dict[str, float] = field(default_factory=dict)
    looks: int = 0

    def keys(self) -> bytes:
        self.looks += 1
        if self.away:
            raise RegistryUnavailable("nobody answers")
        return self.content

    def register(self) -> int:
        return 1

    def used(self) -> dict[str, float]:
        return self.noted

    def note_used(self, at: Mapping[str, float]) -> None:
        self.noted = {**at}


@dataclass
class FakeCopy:
    content: bytes | None = None

    def read(self) -> bytes | None:
        return self.content

    def write(self, content: bytes) -> None:
        self.content = content


def following(
    keys: Mapping[str, Key] | None,
    now: Callable[[], float] = time.time,
    registry: FakeRegistry | None = None,
) -> Follower:
    """Keys that are known by now, and stay; None: ZooKeeper has never answered."""
    registry = registry or FakeRegistry()
    registry.away = keys is None
    registry.content = Keys(keys).content()
    follower = Follower(registry, FakeCopy(), 2, now)
    if keys is not None:
        follower.look()
    return follower


def create_app(
    settings: Settings,
    store: FakeStore,
    feed: FakeFeed,
    keys: Follower | None = None,
    **more: Any,
) -> FastAPI:
    """With a key that may read everything, if no others are given."""
    keys = keys or following({ALL: key(ALL, *SCOPES)})
    return app.create_app(settings, store, feed, keys, **more)
