"""Waiting in tests: generously where something has to come, and never to find out how long it took.

``tests/unit/suite/test_stopwatch.py`` refuses whatever else asserts a duration of the machine.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from millrace.common.errors import OperatorError

# What comes at once on an idle machine comes by then on one whose cores are full with other work.
PATIENCE_SECONDS = 60.0
T = TypeVar("T")


def wait_until(check: Callable[[], T], seconds: float, what: str, every: float = 1.0) -> T:
    """The first truthy answer; an AssertionError raised by ``check`` counts as a no."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if answer := check():
                return answer
            failure = None
        except (AssertionError, OperatorError) as error:
            failure = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}") from failure
        time.sleep(every)


def soon(check: Callable[[], T], what: str) -> T:
    """The first truthy answer to a question that costs nothing: asked again and again."""
    return wait_until(check, PATIENCE_SECONDS, what, every=0.005)


def pause(seconds: float, why: str) -> None:
    """Let a running cluster do what it does by the clock, as between two faults.

    Only for what no question can tell, and never for what a slow machine would not have done yet.
    """
    assert why
    time.sleep(seconds)
