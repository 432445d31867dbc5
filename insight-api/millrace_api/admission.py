"""Who is answered when, so that nobody's requests delay everybody's.

Light requests and heavy ones wait in lanes of their own, each with so many places and a queue that
ends; a client, which is an address, has so many requests a second and so many heavy ones at once.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from cachetools import TTLCache

from millrace_api.settings import Settings

AGAIN_SECONDS = 2.0
AGAIN_SECONDS_AT_MOST = 30.0
LATEST_WEIGHS = 0.2  # in the mean of how long places are taken
# Beyond so many the ones that asked longest ago are forgotten, and with them what they used.
CLIENTS_REMEMBERED = 10_000


class Refused(Exception):
    """Not now; asking again after ``retry_after_seconds`` is the right thing to do."""

    def __init__(self, message: str, retry_after_seconds: float = AGAIN_SECONDS) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Busy(Refused):
    """The server has too much to do."""


class TooMany(Refused):
    """This client asks too much."""


class Lane:
    """``places`` requests at once; ``queue`` more wait, each for ``wait_seconds`` at most.

    A place that ``rests`` stays empty for as long as it was taken: its requests have no more than
    half of what they could use, however many there are.
    """

    def __init__(
        self, name: str, places: int, queue: int, wait_seconds: float, *, rests: bool = False
    ) -> None:
        self._name = name
        self._places_in_all = places
        self._places = asyncio.Semaphore(places)
        self._queue = queue
        self._wait_seconds = wait_seconds
        self._rests = rests
        self._waiting = 0
        self._taken_seconds = 0.0

    def again_seconds(self) -> float:
        """When those who wait now will have had their turn, as long as places are mostly taken.

        Told to come back any earlier, a crowd comes back to be refused, again and again.
        """
        turns = (self._waiting + self._places_in_all) / self._places_in_all
        return min(max(AGAIN_SECONDS, turns * self._taken_seconds), AGAIN_SECONDS_AT_MOST)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Busy if the queue is full, or no place becomes free in time."""
        if self._places.locked() and self._waiting >= self._queue:
            raise self._busy(f"{self._waiting} {self._name} requests wait already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._places.acquire()
        except TimeoutError:
            raise self._busy(f"Other {self._name} requests take long") from None
        finally:
            self._waiting -= 1
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            took = loop.time() - began
            rest = took if self._rests else 0.0
            self._taken_seconds += LATEST_WEIGHS * (took + rest - self._taken_seconds)
            loop.call_later(rest, self._places.release) if rest else self._places.release()

    def _busy(self, why: str) -> Busy:
        return Busy(f"{why}; try again later.", self.again_seconds())


class RateLimit:
    """So many requests a second for each client, and ``burst`` at once after a silence (GCRA)."""

    def __init__(
        self, per_second: float, burst: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval = 1 / per_second
        self._allowance = burst * self._interval
        self._now = now
        # When each client's requests so far would be done, one an interval.
        self._done: TTLCache[str, float] = TTLCache(
            CLIENTS_REMEMBERED, ttl=self._allowance, timer=now
        )

    def admit(self, client: str) -> None:
        """Count a request, or raise ``TooMany``, which counts nothing."""
        now = self._now()
        done = max(self._done.get(client, now), now) + self._interval
        if (early := done - now - self._allowance) > 0:
            raise TooMany("You ask too often; make a pause.", early)
        self._done[client] = done


class Admission:
    """The lanes, and what each client uses of them."""

    def __init__(self, settings: Settings) -> None:
        wait = settings.lane_wait_seconds
        self._light_windows = settings.light_windows
        self._light = Lane("light", settings.light_places, settings.light_queue, wait)
        self._heavy = Lane("heavy", settings.heavy_places, settings.heavy_queue, wait, rests=True)
        self._client_heavy = settings.client_heavy
        self._heavy_of: Counter[str] = Counter()

    @asynccontextmanager
    async def lane(self, client: str, windows: int) -> AsyncIterator[None]:
        """A place for work that reads about so many windows; nothing to read needs none."""
        if windows <= 0:
            yield
        elif windows <= self._light_windows:
            async with self._light.place():
                yield
        else:
            async with self._heavy_place(client):
                yield

    @asynccontextmanager
    async def _heavy_place(self, client: str) -> AsyncIterator[None]:
        if self._heavy_of[client] >= self._client_heavy:
            raise TooMany(
                f"{self._client_heavy} heavy requests of yours are being answered or wait;"
                " ask one after the other, or for shorter ranges.",
                self._heavy.again_seconds(),
            )
        self._heavy_of[client] += 1
        try:
            async with self._heavy.place():
                yield
        finally:
            self._heavy_of[client] -= 1
            if not self._heavy_of[client]:
                del self._heavy_of[client]


@dataclass(frozen=True)
class Asker:
    """The client of one request."""

    client: str
    admission: Admission

    def lane(self, windows: int) -> AbstractAsyncContextManager[None]:
        """See ``Admission.lane``."""
        return self.admission.lane(self.client, windows)
