"""Whatever is switched and taken back, each window is of one generation, and of the right one."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_shared.generations import (
    MOST_BUCKETS,
    NONE,
    Layer,
    NothingBefore,
    Overlay,
    bucket_of,
    hour_of,
    window_of,
)

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOURS = 12
ranges = st.tuples(st.integers(0, HOURS - 1), st.integers(1, HOURS)).map(
    lambda pair: (pair[0], min(pair[0] + pair[1], HOURS))
)
switches = st.lists(st.tuples(ranges, st.integers(0, 5)), max_size=8)


def hour(number: int) -> datetime:
    return FIRST + number * HOUR


def seen(overlay: Overlay) -> list[tuple[int, int]]:
    """Generation and version of each hour, by asking for each."""
    return [(found.generation, found.version) for found in map(overlay.at, map(hour, range(HOURS)))]


def switched(changes: list[tuple[tuple[int, int], int]]) -> Overlay:
    overlay = NONE
    for version, ((start, end), generation) in enumerate(changes, 1):
        overlay = overlay.switched(Layer(hour(start), hour(end), generation, version))
    return overlay


@given(switches)
def test_each_window_is_of_the_generation_that_it_was_switched_to_last(changes) -> None:
    expected = [(0, 0)] * HOURS
    for version, ((start, end), generation) in enumerate(changes, 1):
        expected[start:end] = [(generation, version)] * (end - start)
    overlay = switched(changes)
    assert seen(overlay) == expected
    assert overlay.revision == len(changes)
    for one, following in zip(overlay.layers, overlay.layers[1:], strict=False):
        assert one.start < one.end <= following.start < following.end


@given(switches, ranges)
def test_pieces_are_the_whole_range_in_order(changes, asked) -> None:
    overlay, (start, end) = switched(changes), asked
    pieces = list(overlay.pieces(hour(start), hour(end)))
    assert (pieces[0].start, pieces[-1].end) == (hour(start), hour(end))
    for one, following in pairwise(pieces):
        assert one.end == following.start
    found = [
        (piece.generation, piece.version)
        for piece in pieces
        for _ in range((piece.end - piece.start) // HOUR)
    ]
    assert found == seen(overlay)[start:end]


@given(switches, ranges, st.integers(6, 9))
def test_taken_back_readers_see_what_they_saw_under_a_newer_version(
    changes, changed, generation
) -> None:
    before, (start, end) = switched(changes), changed
    after = before.switched(Layer(hour(start), hour(end), generation, 100))
    assert after.changed == (hour(start), hour(end))
    back = after.taken_back(200)
    assert [one for one, _ in seen(back)] == [one for one, _ in seen(before)]
    versions = [version for _, version in seen(back)]
    assert versions[start:end] == [200] * (end - start)
    assert back.revision == before.revision + 2
    assert {layer.generation for layer in back.replaced} == {generation}
    again = back.taken_back(300)
    assert [one for one, _ in seen(again)] == [one for one, _ in seen(before)]
    assert again.replaced == back.replaced


@given(switches, ranges, st.integers(6, 9))
def test_a_switch_that_is_made_again_still_knows_what_it_replaced(
    changes, changed, generation
) -> None:
    before, (start, end) = switched(changes), changed
    first = before.switched(Layer(hour(start), hour(end), generation, 100))
    again = first.switched(Layer(hour(start), hour(end), generation, 101))
    assert again.replaced == first.replaced == tuple(before.pieces(hour(start), hour(end)))
    assert seen(again)[start:end] == [(generation, 101)] * (end - start)
    assert again.version == 101


def test_what_was_told_is_told_until_the_next_change() -> None:
    to = Layer(hour(0), hour(1), 1, 1)
    first = NONE.switched(to)
    assert (NONE.is_told, first.is_told, first.told().is_told) == (True, False, True)
    assert first.told().layers == first.layers
    assert first.told().revision == first.revision + 1
    assert first.is_again(to)
    assert not first.is_again(Layer(hour(0), hour(2), 1, 1))
    assert not first.is_again(Layer(hour(0), hour(1), 2, 1))
    assert not first.taken_back(2).is_again(Layer(hour(0), hour(1), 0, 1))


def test_where_nothing_was_switched_nothing_is_taken_back() -> None:
    with pytest.raises(NothingBefore):
        NONE.taken_back(1)


@given(switches)
def test_what_is_stored_is_what_is_read(changes) -> None:
    overlay = switched(changes)
    assert Overlay.parse(overlay.content, overlay.revision) == overlay


@given(st.lists(st.tuples(st.integers(0, MOST_BUCKETS - 1), st.integers(0, 99)), min_size=2))
def test_no_two_generations_share_a_partition(places) -> None:
    there = set(places)
    assert len({bucket_of(*place) for place in there}) == len(there)
    of_generation_0 = {bucket for bucket, generation in there if generation == 0}
    assert of_generation_0 <= {bucket_of(bucket, 0) for bucket in of_generation_0}


def test_the_stream_s_rows_are_where_they_always_were() -> None:
    assert (bucket_of(7, 0), window_of("1h", 0), hour_of(FIRST, 0)) == (7, "1h", FIRST)
    assert (bucket_of(7, 2), window_of("1h", 2)) == (20007, "1h#2")
    assert hour_of(FIRST, 2) - FIRST == timedelta(milliseconds=2)
