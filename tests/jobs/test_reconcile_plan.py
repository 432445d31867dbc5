"""Which windows are counted again, in which chunks and on which terms; what is refused, and why."""

from datetime import datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.reconcile.plan import (
    Asked,
    Refused,
    are_archived,
    chunks,
    closed_range,
    exclusions,
    require_kept,
)
from millrace_jobs.recount.declared_rows import DeclaredRows
from millrace_jobs.recount.generations import Exclusion, Generation, Seen

from tests.jobs.test_recount import OUTPUT

NOON = datetime(2026, 1, 1, 12)
HOUR, DAY, MINUTE = timedelta(hours=1), timedelta(days=1), timedelta(minutes=1)


def asked(start: datetime, end: datetime, *, closed: bool = False) -> Asked:
    return Asked(start, end, "", closed, "me")


def generation(**changes: Any) -> Generation:
    facts: dict[str, Any] = {
        "number": 1,
        "start": NOON,
        "end": NOON + 6 * HOUR,
        "asked": NOON + 6 * HOUR,
        "done": NOON,
        "ends": {},
        "exclusions": (),
        "code": "v1",
        "version": 1,
        "since": NOON,
        "who": "me",
    }
    return Generation(**facts | changes)


minutes = st.integers(-3000, 3000).map(lambda number: NOON + number * MINUTE)


@given(minutes, minutes, minutes, st.booleans())
def test_what_is_counted_is_closed_and_was_asked_for(
    start: datetime, end: datetime, closed_before: datetime, closed: bool
) -> None:
    try:
        first, last = closed_range(asked(start, end, closed=closed), MINUTE, closed_before)
    except Refused as refusal:
        is_open = "open" in str(refusal)
        assert start >= end or (is_open and end > closed_before)
        assert not (closed and start < min(end, closed_before))
        return
    assert start == first < last <= min(end, closed_before)
    assert closed or last == end


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [
        (NOON + MINUTE, NOON + HOUR, "--from is inside a window; say 2026-01-01 12:00:00Z"),
        (NOON, NOON + 90 * MINUTE, "--to is inside a window; say 2026-01-01 13:00:00Z or"),
        (NOON, NOON, "--to must be later"),
        (NOON, NOON + 4 * HOUR, "from 2026-01-01 15:00:00Z on are open.* say --closed"),
        (NOON + 3 * HOUR, NOON + 4 * HOUR, "all of these windows are open"),
    ],
)
def test_a_range_that_can_not_be_counted_is_told_what_can(
    start: datetime, end: datetime, why: str
) -> None:
    with pytest.raises(Refused, match=why):
        closed_range(asked(start, end), HOUR, NOON + 3 * HOUR)


@given(
    st.integers(1, 120),
    st.integers(1, 120),
    st.integers(0, 59),
    st.none() | st.integers(0, 90),
    minutes,
)
def test_a_window_is_closed_once_no_event_can_be_in_time_for_it(
    length: int, slide: int, offset: int, join: int | None, watermark: datetime
) -> None:
    seconds = {"window_seconds": 60 * length, "slide_seconds": 60 * slide}
    seconds |= {"offset_seconds": 60 * min(offset, slide - 1)}
    output: Any = SimpleNamespace(
        **vars(OUTPUT) | seconds | {"join_seconds": join and 60 * join},
    )
    rows = DeclaredRows(SimpleNamespace(context=None, output=output))  # type: ignore[arg-type]
    edge = rows.closed_before(watermark)
    reach = timedelta(minutes=length + (join or 0))
    starts_at = (edge - datetime(1970, 1, 1)) % timedelta(minutes=slide)
    assert starts_at == timedelta(seconds=seconds["offset_seconds"])
    assert edge + reach > watermark  # the first one that is open
    assert edge - timedelta(minutes=slide) + reach <= watermark  # the last one that isn't


@given(minutes, st.integers(1, 5000), st.integers(1, 600))
def test_chunks_are_the_range_in_order(start: datetime, length: int, step: int) -> None:
    end, stride = start + length * MINUTE, step * MINUTE
    found = list(chunks(start, end, stride))
    assert (found[0][0], found[-1][1]) == (start, end)
    for one, following in pairwise(found):
        assert one[1] == following[0]
        assert (one[1] - datetime(1970, 1, 1)) % stride == timedelta(0)
    assert all(timedelta(0) < last - first <= stride for first, last in found)


ranges = st.tuples(st.integers(0, 5), st.integers(1, 6)).map(
    lambda pair: (NOON + pair[0] * HOUR, NOON + min(pair[0] + pair[1], 6) * HOUR)
)


@given(st.lists(st.tuples(ranges, st.sampled_from("abc")), max_size=4), ranges)
def test_each_window_is_counted_on_its_own_terms(
    excluded: list[tuple[tuple[datetime, datetime], str]], span: tuple[datetime, datetime]
) -> None:
    one = generation(exclusions=tuple(Exclusion(*where, what) for where, what in excluded))
    parts = list(one.parts(*span))
    assert (parts[0][0], parts[-1][1]) == span
    for start, end, terms in parts:
        assert start < end
        at = start
        while at < end:
            expected = [what for (first, last), what in excluded if first <= at < last]
            assert sorted(terms.without) == sorted(expected)
            at += HOUR


def test_what_readers_do_not_see_is_left_out_of_the_next_count_as_far_as_it_reaches() -> None:
    before = generation(exclusions=(Exclusion(NOON, NOON + 4 * HOUR, "bot"),))
    pieces = [
        Seen(NOON + HOUR, NOON + 2 * HOUR, 0, 0),
        Seen(NOON + 2 * HOUR, NOON + 3 * HOUR, 1, 9),
    ]
    span = NOON + HOUR, NOON + 3 * HOUR
    found = exclusions(pieces, lambda _: before, *span, "mine")
    assert found == (
        Exclusion(NOON + HOUR, NOON + 3 * HOUR, "mine"),
        Exclusion(NOON + 2 * HOUR, NOON + 3 * HOUR, "bot"),
    )
    assert exclusions(pieces[:1], lambda _: before, *span, "") == ()


def test_a_count_that_is_asked_for_again_is_gone_on_with_though_more_is_closed_by_now() -> None:
    begun = generation(end=NOON + 4 * HOUR, exclusions=(Exclusion(NOON, NOON + 4 * HOUR, "a"),))
    again = generation(number=2, exclusions=(Exclusion(NOON, NOON + 6 * HOUR, "a"),), version=5)
    assert begun.is_asked_by(again)
    for changes in (
        {"start": NOON - HOUR},
        {"asked": NOON + 5 * HOUR},
        {"exclusions": ()},
        {"code": "v2"},
    ):
        assert not generation(**{"exclusions": begun.exclusions} | changes).is_asked_by(again)


@pytest.mark.parametrize(
    ("start_days", "table_days", "refused"),
    [(28, 400, False), (29, 400, True), (4000, 28, False), (4000, 29.5, True)],
)
def test_what_the_archive_may_have_forgotten_is_not_counted(
    start_days: float, table_days: float, refused: bool
) -> None:
    where = (NOON - start_days * DAY - HOUR, NOON, 30 * DAY, NOON - table_days * DAY, "events")
    if not refused:
        require_kept(*where)
        return
    with pytest.raises(Refused, match=r"archive of events .* 30 days.* before 2025-12-03T12:00Z"):
        require_kept(*where)


@pytest.mark.parametrize(
    ("archived", "has_all"),
    [
        ({"events": {"0": 5, "1": 7}}, True),
        ({"events": {"0": 6, "1": 9, "2": 1}}, True),
        ({"events": {"0": 5, "1": 6}}, False),
        ({"events": {"0": 5}}, False),
        ({}, False),
    ],
)
def test_an_archive_has_all_that_a_job_has_read(archived: Any, has_all: bool) -> None:
    assert are_archived({"events": {"0": 5, "1": 7}}, archived) == has_all
