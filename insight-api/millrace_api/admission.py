"""Who is answered when, so that nobody's requests delay everybody's.

Light requests and heavy ones wait in lanes of their own, each with so many places and a queue that
ends; a client, which is an address, has so many requests a second and so many heavy ones at once.
"""

import asyncio
import itertools
import time
from bisect import insort
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass

from cachetools import TTLCache

from millrace_api.settings import Settings

AGAIN_SECONDS = 2.0
AGAIN_SECONDS_AT_MOST = 30.0
LATEST_WEIGHS = 0.2  # in the mean of how long places are taken
# Beyond so many the ones that asked longest ago are forgotten, and with them what they used.
CLIENTS_REMEMBERED = 10_000


class RequestRejected(Exception):
    """Not now; asking again after ``retry_after_seconds`` is the right thing to do."""

    def __init__(self, message: str, retry_after_seconds: float = AGAIN_SECONDS) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Busy(RequestRejected):
    """The server has too much to do."""


class TooMany(RequestRejected):
    """This client asks too much."""


class Lane:
    """``places`` requests at once; ``queue`` more wait, each for ``wait_seconds`` at most.

    Those with the lowest rank go first, and of equals who came first. If more wait than may, the
    one who would have gone last is refused.

    A place that ``rests`` stays empty for as long as it was taken: its requests have no more than
    half of what they could use, however many there are.
    """

    def __init__(
        self, name: str, places: int, queue: int, wait_seconds: float, *, rests: bool = False
    ) -> None:
        self._name = name
        self._places = self._free = places
        self._queue = queue
        self._wait_seconds = wait_seconds
        self._rests = rests
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []  # in order: rank, number
        self._numbers = itertools.count()
        self._taken_seconds = 0.0

    def again_seconds(self) -> float:
        """When those who wait now will have had their turn, as long as places are mostly taken.

        Told to come back any earlier, a crowd comes back to be refused, again and again.
        """
        turns = (len(self._waiting) + self._places) / self._places
        return min(max(AGAIN_SECONDS, turns * self._taken_seconds), AGAIN_SECONDS_AT_MOST)

    @asynccontextmanager
    async def place(self, rank: int = 0) -> AsyncIterator[None]:
        """Busy if too many wait, or no place becomes free in time."""
        await self._enter(rank)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            took = loop.time() - began
            rest = took if self._rests else 0.0
            self._taken_seconds += LATEST_WEIGHS * (took + rest - self._taken_seconds)
            loop.call_later(rest, self._leave) if rest else self._leave()

    async def _enter(self, rank: int) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (rank, next(self._numbers), turn)
        insort(self._waiting, waiter)
        if len(self._waiting) > self._queue:
            *_, last = self._waiting.pop()
            if not last.done():
                last.set_exception(self._busy(f"{self._queue} {self._name} requests wait already"))
        try:
            async with asyncio.timeout(self._wait_seconds):
                await turn
        except BaseException as error:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif not turn.cancelled() and turn.exception() is None:  # it left as its turn came
                self._leave()
            if isinstance(error, TimeoutError):
                raise self._busy(f"Other {self._name} requests take long") from None
            raise

    def _leave(self) -> None:
        while self._waiting:
            *_, turn = self._waiting.pop(0)
            if not turn.done():  # else its client has left
                turn.set_result(None)
                return
        self._free += 1

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
    """The lanes, and what each client uses of them.

    A request's rank is how many of its client's are there already: who asks one thing doesn't wait
    behind all that others ask at once.
    """

    def __init__(self, settings: Settings) -> None:
        wait = settings.lane_wait_seconds
        self._light_windows = settings.light_windows
        self._light = Lane("light", settings.light_places, settings.light_queue, wait)
        self._heavy = Lane("heavy", settings.heavy_places, settings.heavy_queue, wait, rests=True)
        self._client_heavy = settings.client_heavy
        self._light_of: Counter[str] = Counter()
        self._heavy_of: Counter[str] = Counter()

    @asynccontextmanager
    async def lane(self, client: str, windows: int) -> AsyncIterator[None]:
        """A place for work that reads about so many windows; nothing to read needs none."""
        if windows <= 0:
            yield
            return
        is_light = windows <= self._light_windows
        if not is_light and self._heavy_of[client] >= self._client_heavy:
            raise TooMany(
                f"{self._client_heavy} heavy requests of yours are being answered or wait;"
                " ask one after the other, or for shorter ranges.",
                self._heavy.again_seconds(),
            )
        lane, there = (self._light, self._light_of) if is_light else (self._heavy, self._heavy_of)
        with _counted(there, client) as rank:
            async with lane.place(rank):
                yield


@contextmanager
def _counted(there: Counter[str], client: str) -> Iterator[int]:
    """How many of the client's there were already; one more until it is left."""
    there[client] += 1
    try:
        yield there[client] - 1
    finally:
        there[client] -= 1
        if not there[client]:
            del there[client]


@dataclass(frozen=True)
class Client:
    """Who sent one request: an address, with what it may take up."""

    address: str
    admission: Admission

    def lane(self, windows: int) -> AbstractAsyncContextManager[None]:
        """See ``Admission.lane``."""
        return self.admission.lane(self.address, windows)
