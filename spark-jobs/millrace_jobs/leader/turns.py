"""Who goes first while cores are short: results, then what nobody waits for.

Shares of Spark's fair scheduler order tasks that wait for a place, and a laptop has more places
than cores. So archives begin no batch while results are behind; for a minute at most, then they
have one.
"""

import time
from collections.abc import Sequence

from millrace_jobs.query.pacing import Pacing

LONGEST_WAIT_SECONDS = 60.0
TOLD_SECONDS = 10.0  # who is behind for less isn't worth a word to other drivers


class Turns:
    """Looks at the queries of a leading driver, each time anew."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def look(self, queries: Sequence[Pacing]) -> None:
        """Give each query its limit for now."""
        behind = [one.job for one in queries if not one.waits and one.is_behind()]
        now = time.time()
        self._since = {name: self._since.get(name, now) for name in behind}
        for one in queries:
            has_patience = one.waits and one.can_make_up() and one.waited() < LONGEST_WAIT_SECONDS
            one.apply(is_held=has_patience and bool(behind))

    def behind_since(self) -> dict[str, float]:
        """Jobs that are behind for more than a moment; since when, in seconds since 1970."""
        told = time.time() - TOLD_SECONDS
        return {name: since for name, since in self._since.items() if since <= told}
