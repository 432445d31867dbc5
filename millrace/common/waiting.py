"""Waiting for a condition, but not for ever."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    ask: Callable[[], T],
    within_seconds: float,
    every_seconds: float = 1.0,
    *,
    done: Callable[[T], object] = bool,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """The first answer that is ``done``, or the last one when the time is up.

    ``done`` is truth unless given; `operator.not_` waits until nothing is wrong any more. Asks at
    once, then ``every_seconds`` after an answer, and once more when the time is up. What ``ask``
    raises ends the wait. ``now`` and ``sleep`` are seconds, for tests.
    """
    deadline = now() + within_seconds
    while True:
        asked = now()
        answer = ask()
        if done(answer) or asked >= deadline:
            return answer
        sleep(max(0.0, min(every_seconds, deadline - now())))
