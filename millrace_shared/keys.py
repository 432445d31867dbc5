"""Keys of who sends events and who reads insights, as one znode has them (names.zookeeper.keys).

Operators change them by `millrace keys`; the collector and the API follow (`Follower`). A secret is
shown once, to who made it: what is kept anywhere is its digest. It has 256 random bits, so a plain
digest betrays nothing.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from millrace_shared import strict

log = logging.getLogger(__name__)

COPY = "keys.json"  # a door's copy, in its data directory
LEAST_SECRET_BYTES = 32
# Metrics that doors have in common; alerts join them.
EXPIRES = "millrace_key_expires_timestamp_seconds"
USED = "millrace_key_used_timestamp_seconds"
LOOKED_AT = "millrace_keys_looked_at_timestamp_seconds"
ALL = "*"  # every stream, also one that is declared later
# What readers may ask for: traffic and results of declared jobs; what single people did; records
# that couldn't be read; how the cluster fares.
SCOPES = ("insights", "sessions", "letters", "operations")
OPERATOR = "operator"  # the toolkit's own key, which `millrace up` makes
USED_SECONDS = (
    60.0  # how exactly it is noted when a key was last used: each note is a write to disks
)


@dataclass(frozen=True)
class Secret:
    """``until``: seconds since 1970 after which it is refused; None as long as the key is."""

    sha256: str
    until: float | None = None


@dataclass(frozen=True)
class Key:
    """What somebody may do. Times are seconds since 1970.

    Attributes:
        secrets: one; two while the older one is exchanged.
        streams: those that it may write, or `ALL`.
        events_per_second: what it may write, over all hosts; 0 where it may write nothing.
        client_events_per_second: what one address may write with it, where everybody may have it,
            as a page's beacon's; None where one sender has it alone.
        scopes: of `SCOPES`, what it may read.
        expires: after which it is refused; None never.
    """

    secrets: list[Secret]
    streams: list[str] = field(default_factory=list)
    events_per_second: int = 0
    client_events_per_second: int | None = None
    scopes: list[str] = field(default_factory=list)
    expires: float | None = None
    made_at: float = 0.0
    made_by: str = ""

    def may_write(self, stream: str) -> bool:
        rates = (self.events_per_second, self.client_events_per_second)
        return 0 not in rates and (ALL in self.streams or stream in self.streams)

    def secrets_at(self, now: float) -> Iterator[Secret]:
        """Yields what is valid at that time."""
        if self.expires is None or now < self.expires:
            yield from (one for one in self.secrets if one.until is None or now < one.until)


class Keys(Mapping[str, Key]):
    """All keys by name."""

    def __init__(self, keys: Mapping[str, Key] | None = None) -> None:
        self._keys = dict(keys or {})
        self._names = {
            secret.sha256: name for name, key in self._keys.items() for secret in key.secrets
        }

    @classmethod
    def parse(cls, content: bytes) -> "Keys":
        """The keys of the znode's value; what newer versions say besides is left out.

        Raises ValueError or `strict.Misconfigured` for what isn't keys. Nothing at all isn't: a
        node that is there and empty was made by accident, and nobody's key has gone by it.
        """
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ValueError(f"keys are a JSON object by name, and no {type(found).__name__}")
        return cls({name: _key(name, one) for name, one in found.items()})

    def content(self) -> bytes:
        return json.dumps({name: asdict(key) for name, key in self._keys.items()}).encode()

    def find(self, secret: str, now: float) -> tuple[str, Key] | None:
        """The name and the key that a secret is valid for; None if there is none.

        A secret that is so short that it could be guessed is none, whatever the keys say.
        """
        content = secret.encode(errors="replace")
        name = self._names.get(sha256(content))
        if name is None or len(content) < LEAST_SECRET_BYTES:
            return None
        key = self._keys[name]
        valid = {one.sha256 for one in key.secrets_at(now)}
        return (name, key) if sha256(content) in valid else None

    def __getitem__(self, name: str) -> Key:
        return self._keys[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def sha256(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()


def _key(name: str, content: Any) -> Key:
    try:
        secrets = [asdict(strict.read_known(Secret, one)) for one in content["secrets"]]
        return strict.read_known(Key, content | {"secrets": secrets})
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{name} is no key: {error!r}") from None


class Registry(Protocol):
    """The part of ZooKeeper that a door follows; each method may raise anything when none
    answers, and none takes longer than some seconds."""

    def keys(self) -> bytes:
        """The znode's value. Raises if there is no such node: that isn't "no keys"."""
        ...

    def register(self) -> int:
        """Have this door's ephemeral node; how many doors of its kind have one."""
        ...

    def used(self) -> dict[str, float]:
        """When each key was last used at this door, as it has noted it."""
        ...

    def note_used(self, at: Mapping[str, float]) -> None: ...


class Store(Protocol):
    """Where a door keeps the keys over its restart: it opens when ZooKeeper doesn't answer, too."""

    def read(self) -> bytes | None: ...

    def write(self, content: bytes) -> None: ...


class FileStore:
    """A file that only the door can read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        """Written aside: half a copy is none."""
        partial = self._path.with_name(f"{self._path.name}.partial")
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(self._path)


class Follower:
    """Keys as a door knows them. `look` is called every few seconds, by one thread.

    Attributes:
        keys: None until any are known, by ZooKeeper or by the copy of before the restart.
        doors: how many hosts share a key's rate: those that are there, or all that there may be
            while ZooKeeper doesn't say.
    """

    def __init__(
        self, registry: Registry, store: Store, all_doors: int, now: Callable[[], float]
    ) -> None:
        self.keys: Keys | None = None
        self.doors = all_doors
        self._registry = registry
        self._store = store
        self._all_doors = all_doors
        self._now = now
        self._content: bytes | None = None
        self._stored: bytes | None = None
        self._used: dict[str, float] = {}
        self._noted: dict[str, float] | None = None

    def moments(self) -> dict[str, dict[str, float]]:
        """What every door tells Prometheus of its keys: metric → key → seconds since 1970."""
        keys = self.keys or Keys()
        ends = {name: key.expires for name, key in keys.items() if key.expires is not None}
        used = {name: at for name, at in self._used.items() if name in keys}
        return {EXPIRES: ends, USED: used}

    def find(self, secret: str) -> tuple[str, Key] | None:
        """As `Keys.find`, now; it counts as a use."""
        found = self.keys.find(secret, self._now()) if self.keys is not None else None
        if found:
            self._used[found[0]] = self._now()
        return found

    def open(self) -> None:
        """Start with the copy of before the restart, if there is one that can be read."""
        content = self._store.read()
        if content is None:
            return
        try:
            self._take(content)
        except (ValueError, strict.Misconfigured) as error:
            log.warning("the copy of the keys can't be read: %s", error)
        else:
            self._stored = content

    def look(self) -> None:
        """Have what ZooKeeper has now. Raises what `Registry` and `Store` raise; where ZooKeeper
        doesn't say, everything stays as it is, but that the rate is shared by all that there may
        be."""
        try:
            content = self._registry.keys()
            if content != self._content:
                self._take(content)
            self.doors = max(1, min(self._registry.register(), self._all_doors))
            self._note()
        except BaseException:
            self.doors = self._all_doors
            raise
        if content != self._stored:
            self._store.write(content)
            self._stored = content

    def _take(self, content: bytes) -> None:
        self.keys = Keys.parse(content)
        self._content = content

    def _note(self) -> None:
        """Notes uses that are so much later than those noted, of keys that there are."""
        if self._noted is None:
            self._noted = self._registry.used()
        noted, known = self._noted, self.keys or Keys()
        later = {
            name: at
            for name, at in self._used.copy().items()
            if name in known and at >= noted.get(name, float("-inf")) + USED_SECONDS
        }
        if later:
            used = {name: at for name, at in noted.items() if name in known} | later
            self._registry.note_used(used)
            self._noted = used
