"""Server-sent events: every window that changes, as it changes.

The Redis stream is the source; its ids let a client that reconnects resume where it stopped. While
Redis is away the store is polled instead. Windows are whole values with a version, so a client that
gets one twice loses nothing by it.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta

from millrace_api.live import Feed, FeedUnavailable
from millrace_api.models import TrafficWindow
from millrace_api.progress import traffic_watermark
from millrace_api.ranges import MINUTE, Span, Window, floor
from millrace_api.store import Store, StoreUnavailable

POLL_SECONDS = 2.0
POLLED = timedelta(minutes=10)  # how far behind the newest event windows are looked at
RECONNECT = "retry: 2000\n\n"
HEARTBEAT = ": heartbeat\n\n"
ENTRY_ID = re.compile(r"\d{1,20}-\d{1,20}")


async def frames(feed: Feed, store: Store, last_event_id: str | None) -> AsyncIterator[str]:
    """Frames for one client, for as long as it stays."""
    yield RECONNECT
    position = last_event_id if last_event_id and ENTRY_ID.fullmatch(last_event_id) else None
    poll = Poll(store)
    source = ""
    while True:
        try:
            position = position or await feed.latest()
            if source != "redis":
                source = "redis"
                yield frame("source", source)
            entries = await feed.read(position)
            for position, window in entries:
                yield frame("window", window, position)
            if not entries:
                yield HEARTBEAT
        except FeedUnavailable:
            if source != "store":
                source = "store"
                yield frame("source", source)
            for window in await poll.changed():
                yield frame("window", window)
            yield HEARTBEAT
            await asyncio.sleep(POLL_SECONDS)


def frame(event: str, data: str, event_id: str | None = None) -> str:
    identity = f"id: {event_id}\n" if event_id else ""
    return f"{identity}event: {event}\ndata: {data}\n\n"


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
            rows = await self._store.traffic(Window.MINUTE, Span(end - POLLED, end))
        except StoreUnavailable:
            return []
        seen = self._version
        self._version = max([seen or 0, *(row.version for row in rows)])
        if seen is None:
            return []
        watermark = traffic_watermark(jobs)
        return [
            TrafficWindow.of(row, watermark).model_dump_json() for row in rows if row.version > seen
        ]
