"""How much is taken: of all together by what the process has room for, of each key by its rate."""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millrace_collector.refusals import BufferFull, TooLarge, TooMany, UnknownKey
from millrace_collector.settings import ApiKey, Settings

AGAIN_SECONDS = 1.0
LEAST_SECRET_BYTES = 32


class Buffer:
    """Bytes that requests hold until they are answered."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0

    @contextmanager
    def share(self) -> Iterator["Share"]:
        """A request's part, empty at first; given back as a whole."""
        share = Share(self)
        try:
            yield share
        finally:
            share.give_back(share.used)


class Share:
    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self.used = 0

    def take(self, size: int) -> None:
        """Raises BufferFull when there isn't room for as much now, TooLarge when there never is."""
        if self.used + size > self._buffer.size:
            raise TooLarge("The request takes more memory than there is; send fewer records.")
        if self._buffer.used + size > self._buffer.size:
            raise BufferFull(
                "Too much waits for Kafka already; send all again shortly.",
                retry_after_seconds=AGAIN_SECONDS,
            )
        self._buffer.used += size
        self.used += size

    def give_back(self, size: int) -> None:
        self._buffer.used -= size
        self.used -= size


class Allowance:
    """So many a second, and at once no more than ``most``, which is there again after a silence.

    Nothing is taken on credit: who may send is told so before more is done.
    """

    def __init__(self, what: str, per_second: float, most: float, now: Callable[[], float]) -> None:
        self.most = max(1, int(most))
        self._what = what
        self._per_second = per_second
        self._now = now
        self._left: float = self.most
        self._at = now()

    @property
    def left(self) -> float:
        return min(self.most, self._left + (self._now() - self._at) * self._per_second)

    def charge(self, amount: int, again: int = 0) -> None:
        """Raises as `check`, and charges nothing then."""
        self.check(amount, again)
        self._left, self._at = self.left - amount, self._now()

    def check(self, amount: int, again: int = 0) -> None:
        """Could as much be charged now?

        Args:
            again: what it will take when it is sent again, if that is more.

        Raises TooMany when less is left, TooLarge when there is never as much.
        """
        if amount > self.most:
            raise TooLarge(
                f"This key may send {self.most:,} {self._what} at once; send fewer records."
            )
        if amount > (left := self.left):
            wanted = min(self.most, max(amount, again))
            raise TooMany(
                f"This key may send {self._per_second:,.0f} {self._what} a second; make a pause.",
                retry_after_seconds=(wanted - left) / self._per_second,
            )


class Key:
    """Who sends. Its requests are worked on one after the other: who sends many at once has no more
    turns than others, and what is left of an allowance is one request's, not lost in parts on many
    that are refused in the end."""

    def __init__(self, key: ApiKey, settings: Settings, now: Callable[[], float]) -> None:
        events, seconds = key.events_per_second, settings.burst_seconds
        a_second = events * settings.event_bytes
        # The slowest key, too, may send the largest record: in a CloudEvent, in Base64, compressed.
        largest = max((one.record_bytes for one in settings.streams.values()), default=0)
        self.name = key.name
        self.turn = asyncio.Lock()
        self.events = Allowance("records", events, events * seconds, now)
        self.bytes = Allowance("bytes", a_second, max(a_second * seconds, 4 * largest), now)


class Keys:
    def __init__(self, settings: Settings, now: Callable[[], float]) -> None:
        self._keys = {key.sha256: Key(key, settings, now) for key in settings.keys}

    def find(self, secret: str) -> Key:
        """The key of that secret. Raises UnknownKey.

        A secret has 256 random bits, so its plain digest betrays nothing. One that is so short that
        it could be guessed is none, whatever the settings say: an empty file would let all in.
        """
        content = secret.encode()
        key = self._keys.get(hashlib.sha256(content).hexdigest())
        if not key or len(content) < LEAST_SECRET_BYTES:
            raise UnknownKey("Send your key as `Authorization: Bearer KEY`, or as ?key=KEY.")
        return key
