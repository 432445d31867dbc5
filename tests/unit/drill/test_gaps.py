"""Interruptions are measured between successes, whatever lies in between."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millrace.drill.gaps import growths, longest, over

moments = st.lists(st.floats(0, 100), max_size=50).map(sorted)


def test_the_longest_of_several_is_found_with_its_start():
    assert longest([1, 2, 5, 6], since=0, until=7) == (2, 3)


def test_silence_at_the_ends_of_the_range_counts():
    assert longest([8, 9], since=0, until=10) == (0, 8)
    assert longest([1, 2], since=0, until=10) == (2, 8)


def test_without_a_success_the_whole_range_is_the_gap():
    assert longest([], since=3, until=10) == (3, 7)


def test_successes_outside_the_range_are_none():
    assert longest([1, 2, 50], since=10, until=40) == (10, 30)


@given(moments)
def test_no_success_lies_inside_the_longest_gap(successes):
    gap = longest(successes, 0, 100)
    assert not [t for t in successes if gap.start < t < gap.start + gap.seconds - 1e-9]


@given(moments, st.floats(0, 100))
def test_one_success_more_never_makes_it_longer(successes, another):
    more = longest(sorted([*successes, another]), 0, 100)
    assert more.seconds <= longest(successes, 0, 100).seconds


@given(moments)
def test_gaps_fill_the_range(successes):
    gaps = over(successes, 0, 100, seconds=0)
    assert np.isclose(sum(gap.seconds for gap in gaps), 100)
    assert max(gap.seconds for gap in gaps) == longest(successes, 0, 100).seconds


@given(moments, st.floats(0, 100))
def test_only_gaps_over_the_limit_are_listed(successes, limit):
    assert all(gap.seconds > limit for gap in over(successes, 0, 100, limit))


def test_growth_is_what_was_never_reached_before():
    times, values = np.array([1.0, 2, 3, 4, 5, 6]), np.array([5.0, 5, 7, 6, 7, 9])
    assert growths(times, values).tolist() == [3, 6]


def test_an_answer_that_stays_the_same_is_no_growth():
    assert growths(np.array([1.0, 2.0]), np.array([4.0, 4.0])).tolist() == []
    assert growths(np.array([]), np.array([])).tolist() == []
