"""When an event may be sent.

The jobs drop events that are older than the newest one they have seen by more than their watermark
W. A topic's partitions are read side by side, each to a slightly different point of *wall time*:
a broker that just failed over, or a transaction that reaches one partition a moment later than
another, can put seconds between them. At a pace of W/10 of event time per second those seconds
would have to be ten before an honest event came out late. Hence the speed limit, "max" included;
and hence no transaction, which becomes visible as a whole, spans more than W/10.

By the same reasoning two events that are *any* time apart are safe ten seconds apart: at "max" a
gap of months in a log costs ten seconds.
"""

import time
from collections.abc import Callable

from millrace.common.errors import OperatorError

SHARE_OF_WATERMARK = 10


class Pace:
    """Spreads events over wall time by their event time.

    A replay that has fallen behind (its Kafka was away) keeps its speed and doesn't catch up:
    catching up is a burst of event time, which is what the limit is for. `behind` adds it up.
    """

    def __init__(
        self, speed: float | None, watermark: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        limit = watermark / SHARE_OF_WATERMARK
        if speed is not None and speed > limit:
            raise OperatorError(
                f"{speed:g}x is faster than a watermark of {watermark / 3600:g} h allows",
                f"up to {limit:g}x no event is dropped as late; --speed max is just that",
            )
        self._promised = speed is not None
        self._speed = speed or limit
        self._longest_wait = float("inf") if speed else float(SHARE_OF_WATERMARK)
        self._clock = clock
        self._newest: int | None = None
        self._due = 0.0
        self.behind = 0.0

    def wait(self, event_time: int | None) -> float:
        """Seconds until an event of that time may be sent; an event out of order needn't wait."""
        now = self._clock()
        if event_time is not None and (self._newest is None or event_time > self._newest):
            self._advance(event_time, now)
        return max(0.0, self._due - now)

    def _advance(self, event_time: int, now: float) -> None:
        if self._newest is None:
            self._due = now
        else:
            step = (event_time - self._newest) / self._speed
            self._due += min(step, self._longest_wait)
        self._newest = event_time
        if self._due < now:
            self.behind += now - self._due if self._promised else 0.0
            self._due = now


def parse_speed(text: str) -> float | None:
    """Returns ``60x`` as 60.0, ``max`` as None. Raises OperatorError for anything else."""
    if text == "max":
        return None
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise OperatorError(f"--speed {text}: expected 1x, 60x, any other factor, or max")
    return speed


def longest_span(watermark: float) -> float:
    """Seconds of event time that one transaction may span."""
    return watermark / SHARE_OF_WATERMARK
