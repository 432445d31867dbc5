"""A wait ends with its condition or with its deadline, whatever each question costs."""

import operator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.common.waiting import wait_until


class Clock:
    """Time that passes by sleeping and by asking."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.seconds += seconds


def test_the_answer_that_ends_the_wait_is_returned():
    clock, answers = Clock(), iter(["", None, "there", "later"])
    found = wait_until(lambda: next(answers), 60, 5, now=clock.now, sleep=clock.sleep)
    assert found == "there"
    assert clock.seconds == 10


def test_when_the_time_is_up_the_last_answer_tells_why():
    clock, numbers = Clock(), count(1)
    left = wait_until(
        lambda: [f"problem {next(numbers)}"],
        12,
        5,
        done=operator.not_,
        now=clock.now,
        sleep=clock.sleep,
    )
    assert left == ["problem 4"]  # at 0, 5, 10 and, once more, at 12 s
    assert clock.seconds == 12


def test_what_asking_raises_ends_the_wait():
    def ask() -> bool:
        raise ConnectionError("away")

    with pytest.raises(ConnectionError):
        wait_until(ask, 60)


seconds = st.floats(0.001, 100)


@given(true_from=st.floats(0, 200), within=seconds, every=seconds, cost=seconds)
def test_what_is_true_in_time_is_found_and_nothing_is_waited_for_longer(
    true_from, within, every, cost
):
    clock = Clock()

    def ask() -> bool:
        begun = clock.seconds
        clock.sleep(cost)
        return begun >= true_from

    every = max(every, within / 100)  # bounds the example, not the contract
    found = wait_until(ask, within, every, now=clock.now, sleep=clock.sleep)
    assert found or true_from > within
    assert clock.seconds <= max(within, true_from if found else 0) + every + 2 * cost
    if not found:
        assert clock.seconds >= within
