"""What a batch owes and brings, by example and by property: whatever is lost or doubled shows."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from millrace_gateway.books.account import (
    EARLIEST,
    Entry,
    Piece,
    after,
    offsets,
    owed,
    without,
)

ENDS = st.lists(st.integers(0, 8), min_size=1, max_size=8).map(
    lambda steps: [sum(steps[: n + 1]) for n in range(len(steps))]
)
RANGES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(1, 10)).map(
        lambda found: Piece(found[0], found[1], found[1] + found[2])
    )
)
ENTRY = Entry("events", 0.0, "c", 1, 0, 10, 8, 2, 0)


def covered(pieces: list[Piece]) -> list[tuple[int, int]]:
    return sorted(
        (piece.partition, n) for piece in pieces for n in range(max(piece.start, 0), piece.end)
    )


def test_a_batch_owes_what_it_read() -> None:
    read = {0: (10, 20), 1: (5, 5)}
    assert owed({0: 10, 1: 5}, read) == [Piece(0, 10, 20)]
    assert after({0: 10, 1: 5}, read) == {0: 20, 1: 5}


def test_a_partition_that_is_new_is_owed_from_its_beginning() -> None:
    assert owed({}, {0: (EARLIEST, 7)}) == [Piece(0, EARLIEST, 7)]
    assert Piece(0, EARLIEST, 7).offsets == 7


def test_the_next_batch_owes_what_one_left_out() -> None:
    assert owed({0: 10}, {0: (20, 30)}) == [Piece(0, 10, 30)]


def test_what_is_read_again_is_owed_once() -> None:
    """An older checkpoint: the books don't go back with it."""
    assert owed({0: 30}, {0: (10, 20)}) == []
    assert after({0: 30}, {0: (10, 20)}) == {0: 30}
    assert owed({0: 30}, {0: (20, 40)}) == [Piece(0, 30, 40)]


def test_the_difference_is_what_went_nowhere_or_came_twice() -> None:
    assert ENTRY.difference == 0
    assert replace(ENTRY, archived=5).difference == 3
    assert replace(ENTRY, archived=11).difference == -3
    assert replace(ENTRY, records=None).difference == 0  # Kafka has forgotten: nobody knows


@given(ENDS, st.sets(st.integers(0, 7)))
def test_batches_together_owe_each_offset_once_whichever_commits_are_taken_away(
    ends: list[int], away: set[int]
) -> None:
    reached: dict[int, int] = {}
    pieces: list[Piece] = []
    start = EARLIEST
    for number, end in enumerate(ends):
        read = {0: (start, end)}
        # The first says where the books begin; the last that nothing is left after it.
        if number not in away or number in (0, len(ends) - 1):
            pieces += owed(reached, read)
            reached = after(reached, read)
        start = end
    assert covered(pieces) == [(0, n) for n in range(ends[-1])]


@given(RANGES, RANGES)
def test_what_is_left_of_pieces_and_what_is_skipped_are_apart(
    pieces: list[Piece], skipped: list[Piece]
) -> None:
    left = without(pieces, skipped)
    gaps = set(covered(skipped))
    assert covered(left) == [place for place in covered(pieces) if place not in gaps]
    assert offsets(left) == len(covered(left))
    assert all(piece.offsets > 0 for piece in left)


def test_a_skipped_range_at_a_beginning_that_is_unknown() -> None:
    assert without([Piece(0, EARLIEST, 9)], [Piece(0, 0, 4)]) == [Piece(0, 4, 9)]
    assert without([Piece(0, EARLIEST, 9)], [Piece(0, 2, 4)]) == [
        Piece(0, EARLIEST, 2),
        Piece(0, 4, 9),
    ]
