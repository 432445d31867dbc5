"""How much is taken: of all together by what the process has room for, of each key by its rate."""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millrace_collector.refusals import TooMany, UnknownKey
from millrace_collector.settings import ApiKey

FULL_AGAIN_SECONDS = 1.0


class Buffer:
    """Bytes that requests hold until they are answered."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.used = 0

    @contextmanager
    def share(self) -> Iterator["Share"]:
        """A request's part, empty at first; given back as a whole."""
        share = Share(self)
        try:
            yield share
        finally:
            self.used -= share.used

    def take(self, size: int) -> None:
        if self.used + size > self._size:
            raise TooMany(
                "Too much waits for Kafka already; try again shortly.",
                retry_after_seconds=FULL_AGAIN_SECONDS,
            )
        self.used += size


class Share:
    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self.used = 0

    def take(self, size: int) -> None:
        """Raises TooMany when there isn't room for as much."""
        self._buffer.take(size)
        self.used += size


class Key:
    """Who sends; so many events a second, ``burst_seconds`` of them at once after a silence."""

    def __init__(self, settings: ApiKey, burst_seconds: float, now: Callable[[], float]) -> None:
        self.name = settings.name
        self._interval = 1 / settings.events_per_second
        self._burst_seconds = burst_seconds
        self._now = now
        self._done = 0.0  # when all its events so far would be done, one an interval

    def admit(self) -> None:
        """Raises TooMany while its events are ahead of its rate."""
        if (early := self._done - self._now() - self._burst_seconds) > 0:
            raise TooMany("This key sends too much; make a pause.", retry_after_seconds=early)

    def charge(self, events: int) -> None:
        """A batch is taken as a whole, however large; what is too much, the next one waits for."""
        self._done = max(self._done, self._now()) + events * self._interval


class Keys:
    def __init__(
        self,
        keys: list[ApiKey],
        burst_seconds: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys = {key.sha256: Key(key, burst_seconds, now) for key in keys}

    def find(self, secret: str) -> Key:
        """The key of that secret. Raises UnknownKey.

        A secret has 256 random bits, so its plain digest betrays nothing.
        """
        key = self._keys.get(hashlib.sha256(secret.encode()).hexdigest())
        if not key:
            raise UnknownKey("Send your key as `Authorization: Bearer KEY`, or as ?key=KEY.")
        return key
