"""The keys, followed while the collector runs: whatever happens, it is tried again."""

import asyncio
import logging
from collections.abc import Callable

from millrace_shared.keys import Follower

log = logging.getLogger(__name__)


class Following:
    """Looks every few seconds.

    Attributes:
        looked_at: when ZooKeeper last said what the keys are, in seconds since 1970; 0 never.
    """

    def __init__(self, follower: Follower, look_seconds: float, now: Callable[[], float]) -> None:
        self.looked_at = 0.0
        self._follower = follower
        self._look_seconds = look_seconds
        self._now = now
        self._trouble = ""

    async def go_on(self) -> None:
        """Never returns, and no error ends it: a door that follows no longer would take a revoked
        key for good."""
        while True:
            await self.look()
            await asyncio.sleep(self._look_seconds)

    async def look(self) -> None:
        """One look, on a thread; a trouble is logged once, and its end."""
        try:
            await asyncio.to_thread(self._follower.look)
        except Exception as error:
            self._say(repr(error))
        else:
            self.looked_at = self._now()
            self._say("")

    def _say(self, trouble: str) -> None:
        if trouble and not self._trouble:
            log.warning("the keys stay as they were known: %s", trouble)
        elif self._trouble and not trouble:
            log.warning("the keys are followed again")
        self._trouble = trouble
