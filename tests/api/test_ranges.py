"""Ranges: taking one apart loses nothing, counts nothing twice and asks for as little as it can."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_api.ranges import (
    DAY,
    HOUR,
    MINUTE,
    BadParameter,
    Span,
    Window,
    decompose,
    floor,
    parse_moment,
    parse_span,
)

EPOCH = datetime(2015, 5, 17, tzinfo=UTC)
minutes = st.integers(min_value=-200_000, max_value=200_000)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start = EPOCH + draw(minutes) * MINUTE
    return Span(start, start + draw(st.integers(min_value=1, max_value=10_000)) * MINUTE)


@given(spans())
def test_the_pieces_cover_the_span_exactly_and_in_order(span: Span) -> None:
    pieces = decompose(span)
    assert pieces[0].span.start == span.start
    assert pieces[-1].span.end == span.end
    for piece, following in pairwise(pieces):
        assert piece.span.end == following.span.start
    for piece in pieces:
        assert piece.span.start < piece.span.end
        assert floor(piece.span.start, piece.window.length) == piece.span.start
        assert floor(piece.span.end, piece.window.length) == piece.span.end


@given(spans())
def test_no_whole_hour_is_read_as_minutes(span: Span) -> None:
    for piece in decompose(span):
        if piece.window is Window.MINUTE:
            first_hour = floor(piece.span.start + HOUR - MINUTE, HOUR)
            assert first_hour + HOUR > piece.span.end


@given(spans())
def test_partitions_hold_the_whole_span(span: Span) -> None:
    days, hours = list(span.days()), list(span.hours())
    assert days == sorted(set(days))
    assert hours == sorted(set(hours))
    assert days[0] == span.start.date()
    assert days[-1] == (span.end - timedelta.resolution).date()
    assert hours[0] <= span.start < hours[0] + HOUR
    assert hours[-1] < span.end <= hours[-1] + HOUR


def test_a_span_does_not_touch_the_partition_that_its_end_begins() -> None:
    span = Span(EPOCH, EPOCH + DAY)
    assert list(span.days()) == [EPOCH.date()]
    assert list(span.hours())[-1] == EPOCH + 23 * HOUR


def test_a_range_over_hours_and_edges() -> None:
    start, end = EPOCH + timedelta(hours=9, minutes=58), EPOCH + timedelta(hours=12, minutes=2)
    nine, twelve = EPOCH + 10 * HOUR, EPOCH + 12 * HOUR
    assert [(piece.window.value, piece.span) for piece in decompose(Span(start, end))] == [
        ("1m", Span(start, nine)),
        ("1h", Span(nine, twelve)),
        ("1m", Span(twelve, end)),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "2015-05-17T10:00:00Z",
        "2015-05-17T12:00:00+02:00",
        "2015-05-17T12:00:00 02:00",  # a '+' that was not escaped in the URL
        "20150517T100000Z",
    ],
)
def test_moments_in_any_zone_are_the_same(text: str) -> None:
    assert parse_moment("from", text) == datetime(2015, 5, 17, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "end", "parameter", "words"),
    [
        ("yesterday", "2015-05-17T10:00:00Z", "from", "not an ISO 8601 time"),
        ("2015-05-17T10:00:00", "2015-05-17T11:00:00Z", "from", "no time zone"),
        ("2015-05-17T10:00:00Z", "2015-05-17", "to", "no time zone"),
        ("2015-05-17T10:30:00Z", "2015-05-17T12:00:00Z", "from", "whole hour"),
        ("2015-05-17T10:00:00Z", "2015-05-17T10:00:00Z", "to", "later than 'from'"),
        ("2015-05-17T10:00:00Z", "2015-05-17T09:00:00Z", "to", "later than 'from'"),
        ("2015-05-17T10:00:00Z", "2016-05-17T10:00:00Z", "to", "31 days at most"),
        ("0001-01-01T00:00:00+14:00", "2015-05-17T10:00:00Z", "from", "out of range"),
    ],
)
def test_refusals_name_the_parameter_and_the_remedy(
    start: str, end: str, parameter: str, words: str
) -> None:
    with pytest.raises(BadParameter, match=words) as refusal:
        parse_span(start, end, step=HOUR, longest=31 * DAY)
    assert refusal.value.parameter == parameter
