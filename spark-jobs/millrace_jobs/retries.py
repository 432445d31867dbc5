"""Try again, at growing intervals, for a bounded time."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0


def retry(
    action: Callable[[], ResultT],
    on: type[Exception] | tuple[type[Exception], ...],
    seconds: float,
    what: str,
    sleep: Callable[[float], None] = time.sleep,
) -> ResultT:
    """The result of ``action``; its last error once ``seconds`` of waiting are used up."""
    pause, left = FIRST_PAUSE_SECONDS, seconds
    while True:
        try:
            return action()
        except on as error:
            if left <= 0:
                raise
            log.warning("%s failed, trying again in %.1f s: %s", what, pause, error)
        sleep(pause)
        left -= pause
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
