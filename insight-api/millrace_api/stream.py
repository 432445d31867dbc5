"""What one viewer of the live stream gets: every window that changes, as it changes.

The stream's ids let a viewer that reconnects go on where it stopped. Windows are whole values with
a version, so one that comes twice does no harm; where some are missing, a ``resync`` says so.
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from millrace_api.hub import RESYNC, Hub, LiveEvent
from millrace_api.live import BATCH, Feed, FeedUnavailable

RECONNECT_MS = 2000
HEARTBEAT_SECONDS = 10  # below the idle time-outs of what may stand between, 60 s mostly
# A viewer that takes nothing for so long (a closed laptop) loses its place.
SEND_SECONDS = 30
MISSED_BATCHES = 5  # read again for a viewer that comes back
ENTRY_ID = re.compile(r"(\d{1,20})-(\d{1,20})")


class LiveStream(EventSourceResponse):
    """Server-sent events of one viewer, with heartbeats; its end once the viewer may not read them
    any more, before the next event."""

    def __init__(
        self, hub: Hub, client: str, last_event_id: str | None, may_read: Callable[[], bool]
    ) -> None:
        super().__init__(
            _frames(hub, client, last_event_id, may_read),
            ping=HEARTBEAT_SECONDS,
            ping_message_factory=lambda: ServerSentEvent(comment="heartbeat", sep="\n"),
            send_timeout=SEND_SECONDS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(SendTimeoutError):
            await super().__call__(scope, receive, send)


async def _frames(
    hub: Hub, client: str, last_event_id: str | None, may_read: Callable[[], bool]
) -> AsyncIterator[ServerSentEvent]:
    yield ServerSentEvent(retry=RECONNECT_MS, sep="\n")
    async for event in events(hub, client, last_event_id):
        if not may_read():
            return
        yield ServerSentEvent(event.data, event=event.event, id=event.id, sep="\n")


async def events(hub: Hub, client: str, last_event_id: str | None) -> AsyncIterator[LiveEvent]:
    """Events for one viewer, for as long as it stays; after ``last_event_id`` if that is one."""
    with hub.viewer(client) as viewer:  # from here on nothing is missed, so look back afterwards
        position = _order(last_event_id)
        if position:
            async for event in _missed(hub.feed, position):
                position = _order(event.id) or position
                yield event
        async for event in viewer.events():
            came = _order(event.id)
            if not (came and position and came <= position):
                yield event


async def _missed(feed: Feed, position: tuple[int, int]) -> AsyncIterator[LiveEvent]:
    """What the stream has after that position; ``resync`` if it can't be told, or is too much."""
    for _ in range(MISSED_BATCHES):
        try:
            entries = await feed.since("{}-{}".format(*position))
        except FeedUnavailable:
            break
        for entry, window in entries:
            yield LiveEvent("window", window, entry)
        if len(entries) < BATCH:
            return
        position = _order(entries[-1][0]) or position
    yield RESYNC


def _order(entry_id: str | None) -> tuple[int, int] | None:
    """An id's place in the stream; None for what is no id."""
    parts = ENTRY_ID.fullmatch(entry_id or "")
    return (int(parts[1]), int(parts[2])) if parts else None
