"""One reader of the live stream, whatever the number of viewers.

The Redis stream is the source. While Redis is away the store is polled instead, once for everybody.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from millrace_api import generations
from millrace_api.live import Feed, FeedUnavailable
from millrace_api.models import TrafficWindow
from millrace_api.progress import traffic_job
from millrace_api.ranges import MINUTE, Span, Window, floor
from millrace_api.store import Store, StoreUnavailable
from millrace_shared.generations import TRAFFIC, Overlay

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0  # between looks at the store, and between tries to reach Redis
POLLED = timedelta(minutes=10)  # how far behind the newest event windows are looked at
# Some 20 batches of the job. A viewer that is further behind is better off with a fresh look.
LONGEST_QUEUE = 500


@dataclass(frozen=True)
class LiveEvent:
    """``id`` is the stream's, for events that came through it."""

    event: str
    data: str
    id: str | None = None


RESYNC = LiveEvent("resync", "events are missing here: ask for the range again")
REPLACED = LiveEvent("resync", "rows of the past were replaced: ask for the range again")


class Viewer:
    """What one viewer has still to be sent: bounded, however slowly it reads."""

    def __init__(self, client: str) -> None:
        self.client = client
        self._waiting: asyncio.Queue[LiveEvent] = asyncio.Queue(LONGEST_QUEUE)

    def put(self, event: LiveEvent) -> None:
        """Never waits. If the queue is full, all that waits gives way to one ``resync``."""
        if self._waiting.full():
            while not self._waiting.empty():
                self._waiting.get_nowait()
            self._waiting.put_nowait(RESYNC)
        self._waiting.put_nowait(event)

    async def events(self) -> AsyncIterator[LiveEvent]:
        """Everything from now on, without an end."""
        while True:
            yield await self._waiting.get()


class Hub:
    """Reads the feed and hands each event to every viewer."""

    def __init__(self, feed: Feed, store: Store) -> None:
        self.feed = feed
        self._store = store
        self._poll = Poll(store)
        self._source = ""
        self._position: str | None = None  # the entry that was read last
        self._viewers: set[Viewer] = set()

    def viewers(self, client: str | None = None) -> int:
        """How many there are, or how many of one client."""
        return sum(client in (None, viewer.client) for viewer in self._viewers)

    @contextmanager
    def viewer(self, client: str) -> Iterator[Viewer]:
        """A viewer that gets all events from here on, the feed's present source first."""
        viewer = Viewer(client)
        if self._source:
            viewer.put(LiveEvent("source", self._source))
        self._viewers.add(viewer)
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)

    async def run(self) -> None:
        """Read for as long as the server runs. After Redis was away, go on where it stopped."""
        while True:
            try:
                self._position = self._position or await self.feed.latest()
                self._read_from("redis")
                for entry, window in await self.feed.read(self._position):
                    self._publish(LiveEvent("window", window, entry))
                    self._position = entry
            except FeedUnavailable as error:
                log.info("Redis is away, polling the store: %s", error)
                self._read_from("store")
                if self._viewers:
                    for window in await self._poll.changed():
                        self._publish(LiveEvent("window", window))
                await asyncio.sleep(POLL_SECONDS)

    async def follow_switches(self) -> None:
        """Tell viewers when readers are switched to another count of the past: the stream has none
        of its rows."""
        seen: Overlay | None = None
        while True:
            try:
                overlay = await self._store.overlay(TRAFFIC)
                if seen is not None and overlay != seen:
                    self._publish(REPLACED)
                seen = overlay
            except StoreUnavailable as error:
                log.debug("whose rows readers see can't be read: %s", error)
            await asyncio.sleep(POLL_SECONDS)

    def _read_from(self, source: str) -> None:
        if source != self._source:
            self._source = source
            self._publish(LiveEvent("source", source))

    def _publish(self, event: LiveEvent) -> None:
        for viewer in self._viewers:
            viewer.put(event)


class Poll:
    """Finds what changed in the store since it was asked last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._version: int | None = None

    async def changed(self) -> list[str]:
        """JSON of the minute windows near the newest event with a version not seen before.

        The first call only notes where the store stands, as a new reader of the stream would.
        """
        try:
            jobs = await self._store.progress()
            newest = max((job.max_event_time for job in jobs if job.max_event_time), default=None)
            if newest is None:
                return []
            end = floor(newest, MINUTE) + MINUTE
            overlay = await self._store.overlay(TRAFFIC)
            polled = Span(end - POLLED, end)
            rows = await generations.traffic(self._store, overlay, Window.MINUTE, polled)
        except StoreUnavailable:
            return []
        seen = self._version
        self._version = max([seen or 0, *(row.version for row in rows)])
        if seen is None:
            return []
        job = traffic_job(jobs)
        watermark = job.watermark if job else None
        return [
            TrafficWindow.of(row, watermark).model_dump_json() for row in rows if row.version > seen
        ]
