"""Work beside the requests that goes on whatever happens.

What a piece of work expects to go wrong it sees to itself. Anything else is a bug, or a row that
nobody foresaw: it is logged and counted, and the work begins again. Nobody would notice its end.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None]]

AGAIN_SECONDS = 5.0


@asynccontextmanager
async def in_background(
    name: str, work: Work, failed: Callable[[str], None]
) -> AsyncIterator[None]:
    """Cancelled on leaving, if it hasn't ended by then. ``failed`` is told of each failure."""
    task = asyncio.create_task(supervised(name, work, failed))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def supervised(name: str, work: Work, failed: Callable[[str], None]) -> None:
    """Ends when the work does: most goes on for as long as the server runs."""
    before = ""
    while True:
        try:
            return await work()
        except Exception as error:
            failed(name)
            is_new = repr(error) != before  # its trace is told once, not every few seconds for days
            log.error("%s failed, and begins again: %r", name, error, exc_info=is_new)
            before = repr(error)
        await asyncio.sleep(AGAIN_SECONDS)
