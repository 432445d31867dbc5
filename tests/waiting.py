"""Waiting in tests: generously where something has to come, and never to find out how long it took.

``tests/unit/suite/test_stopwatch.py`` refuses whatever else asserts a duration of the machine.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from millrace.common import waiting
from millrace.common.errors import OperatorError

# What comes at once on an idle machine comes by then on one whose cores are full with other work.
PATIENCE_SECONDS = 60.0
T = TypeVar("T")


def wait_until(check: Callable[[], T], seconds: float, what: str, every: float = 1.0) -> T:
    """The first truthy answer; an AssertionError raised by ``check`` counts as a no."""
    failure: Exception | None = None

    def answer() -> T | None:
        nonlocal failure
        failure = None
        try:
            return check()
        except (AssertionError, OperatorError) as error:
            failure = error
            return None

    if found := waiting.wait_until(answer, seconds, every):
        return found
    raise AssertionError(f"not within {seconds:g} s: {what}") from failure


def soon(check: Callable[[], T], what: str) -> T:
    """The first truthy answer to a question that costs nothing: asked again and again."""
    return wait_until(check, PATIENCE_SECONDS, what, every=0.005)


def pause(seconds: float, why: str) -> None:
    """Let a running cluster do what it does by the clock, as between two faults.

    Only for what no question can tell, and never for what a slow machine would not have done yet.
    """
    assert why
    time.sleep(seconds)
