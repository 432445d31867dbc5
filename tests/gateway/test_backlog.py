"""Who is behind since when, and when that will be over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_gateway.backlog import REMEMBERED_SECONDS, Backlogs, seconds_left
from millrace_gateway.lag import Lag

EVERY = 10.0
JOBS = {"traffic": 30, "archive": 120}


def looked(*lags: Lag | None, job: str = "traffic") -> Backlogs:
    """After looks that found these; None is one that Kafka didn't answer."""
    found = Backlogs.none()
    for number, lag in enumerate(lags):
        found = found.after({job: lag} if lag else {}, JOBS, number * EVERY)
    return found


def test_who_has_no_overdue_records_is_not_behind():
    assert looked(Lag(5000, 0), Lag(0, 0)).behind() == {}


def test_a_job_is_behind_since_the_first_look_that_found_it_so():
    found = looked(Lag(900, 0), Lag(5000, 10), None, Lag(5000, 10))
    assert found.behind()["traffic"].since == EVERY
    again = looked(Lag(5000, 10), Lag(0, 0), Lag(5000, 10))
    assert again.behind()["traffic"].since == 2 * EVERY


def test_when_kafka_is_silent_it_stays_as_it_was():
    assert looked(Lag(5000, 10)).behind() == looked(Lag(5000, 10), None).behind()


def test_a_job_that_is_no_more_is_not_behind():
    assert looked(Lag(9, 9)).after({}, {"archive": 120}, 5.0).behind() == {}


def test_a_rate_takes_some_looks():
    falls = [Lag(1000 - 100 * number, 9) for number in range(4)]
    assert looked(*falls[:3]).behind()["traffic"].seconds is None
    assert looked(*falls).behind()["traffic"].seconds == pytest.approx(70)


def test_what_grows_is_never_over():
    assert (
        looked(*[Lag(1000 * number, 9) for number in range(9)]).behind()["traffic"].seconds is None
    )


def test_a_rate_is_todays():
    """An hour in which it grew says nothing of the minute in which it falls."""
    grew = [Lag(100 * number, 9) for number in range(400)]
    falls = [Lag(39_900 - 100 * number, 9) for number in range(int(REMEMBERED_SECONDS / EVERY) + 1)]
    found = looked(*grew, *falls).behind()["traffic"]
    assert found.seconds == pytest.approx(found.records / 10)


@given(st.integers(1, 10**7), st.floats(1, 10**4), st.integers(4, 12))
def test_at_an_even_rate_it_is_over_when_it_is(records, per_second, looks):
    total = (looks - 1) * EVERY
    found = tuple(
        (number * EVERY, records + round(per_second * (total - number * EVERY)))
        for number in range(looks)
    )
    assert seconds_left(found) == pytest.approx(records / per_second, rel=0.05, abs=1)


@given(st.integers(1000, 10**6), st.floats(100, 5000))
def test_batches_that_come_and_go_hide_no_trend(records, per_second):
    """An archive takes all that came every 20 s, and a little more."""
    found = tuple(
        (at, int(2 * records + 10**5 - per_second * at / 10 + (at % 20) * per_second))
        for at in (number * EVERY for number in range(13))
    )
    left = seconds_left(found)
    assert left is not None
    assert left == pytest.approx(found[-1][1] / (per_second / 10), rel=1)
