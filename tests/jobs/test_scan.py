"""Records that don't fit are found, each by itself, and nothing else is."""

import math
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.inputs import scan
from millrace_jobs.inputs.scan import Found, TooLarge, find


class Log:
    """A partition from ``first`` on, in producers' batches; ``large`` don't fit. Offsets that are
    gone are markers of transactions."""

    def __init__(
        self,
        large: set[int],
        batches: Sequence[int],
        first: int = 0,
        gone: set[int] = frozenset(),  # type: ignore[assignment]
    ) -> None:
        self.first, self.length, self._large, self._gone = first, sum(batches), large, gone
        self._batch_of = {}
        for size in batches:
            begins = len(self._batch_of)
            self._batch_of |= dict.fromkeys(range(begins, begins + size), begins)
        self.polls = 0

    def seek(self, offset: int, at_once: int) -> None:
        self._position, self._at_once = offset, at_once

    def poll(self) -> int:
        self.polls += 1
        position, fetched = self._position, 0
        while position < self.length and fetched < self._at_once:
            batch = self._batch_of[position]
            if any(offset in self._large for offset in range(batch, position + 1)):
                raise TooLarge
            fetched += position not in self._gone
            position += 1
        self._position = position
        return position

    def start(self) -> int:
        return self.first

    def end(self) -> int:
        return self.length


def always() -> bool:
    return True


@given(
    st.sets(st.integers(0, 59), max_size=10),
    st.lists(st.integers(1, 7), min_size=10, max_size=20),
    st.integers(0, 20),
    st.integers(0, 80),
    st.sets(st.integers(0, 59), max_size=10),
    st.integers(1, 9),
)
def test_exactly_what_can_not_be_read_is_found(
    large: set[int], batches: list[int], start: int, end: int, gone: set[int], at_once: int
) -> None:
    large -= gone
    log = Log(large, batches, gone=gone)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "AT_ONCE", at_once)
        found = find(log, start, end, always).offsets
    unreadable = [
        offset
        for offset in range(start, min(end, log.length))
        if any(one in large for one in range(log._batch_of[offset], offset + 1))
    ]
    assert set(unreadable) <= set(found)
    assert set(found) - set(unreadable) <= gone  # a marker in front of one is no record


def test_what_is_expired_is_not_looked_for() -> None:
    assert find(Log({2, 7}, [1] * 9, first=5), 0, 9, always) == Found([7])


def test_all_that_there_is_can_be_looked_at() -> None:
    assert find(Log({2, 7}, [1] * 9), 3, math.inf, always) == Found([7])


def test_a_scan_that_takes_too_long_says_how_far_it_came() -> None:
    left = iter([True] * 5 + [False])
    found = find(Log({1}, [1] * 300), 0, 300, lambda: next(left))
    assert found.offsets == [1]
    assert re.fullmatch(r"offset \d+ of 300 was reached when time was up", found.trouble)


def test_very_many_are_another_kind_of_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MOST_RECORDS", 3)
    assert "more than 3" in find(Log(set(range(9)), [1] * 9), 0, 9, always).trouble
