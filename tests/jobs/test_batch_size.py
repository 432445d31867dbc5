"""How large batches become, in a world where a batch takes some time and each record some."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.query.batch_size import GROWTH, BatchSize, Taken

LEAST, MOST, TARGET = 500, 60_000, 4.0

sizes = st.builds(
    lambda records, recent: BatchSize(LEAST, MOST, TARGET, records, tuple(recent)),
    st.integers(LEAST, MOST),
    st.lists(st.builds(Taken, st.integers(1, MOST), st.floats(0, 600)), max_size=8),
)
batches = st.builds(Taken, st.integers(1, MOST), st.floats(0, 600))


def batches_of(size: BatchSize, seconds: Callable[[int], float]) -> Iterator[Taken]:
    """Batches that never lack records, and of which the report comes when the next has begun."""
    under_way = size.records
    while True:
        ended = Taken(under_way, seconds(under_way))
        yield ended
        under_way, size = size.records, size.after(ended)


def start() -> BatchSize:
    return BatchSize.at_start(LEAST, MOST, TARGET)


@given(sizes, batches)
def test_a_size_stays_between_its_bounds_and_grows_by_so_much_at_most(
    size: BatchSize, batch: Taken
) -> None:
    after = size.after(batch)
    assert LEAST <= after.records <= MOST
    assert after.records <= max(LEAST, size.records, GROWTH * batch.records)


@given(sizes, st.floats(0, TARGET))
def test_a_full_batch_below_the_target_never_makes_the_next_one_smaller(
    size: BatchSize, seconds: float
) -> None:
    assert size.after(Taken(size.records, seconds)).records >= size.records


@given(sizes, batches)
def test_a_batch_that_was_small_for_lack_of_records_changes_nothing(
    size: BatchSize, batch: Taken
) -> None:
    small = replace(batch, records=max(1, size.records // 2 - 1))
    assert size.after(small).records == size.records


@given(st.floats(0.05, TARGET / 2), st.floats(0.00002, 0.001))
def test_batches_come_to_take_their_target_and_none_takes_much_longer(
    fixed: float, each: float
) -> None:
    took = list(islice(batches_of(start(), lambda records: fixed + each * records), 60))
    assert all(batch.seconds <= TARGET * 1.01 for batch in took)
    last = took[-1]
    assert last.records == MOST or last.seconds > TARGET * 0.9


@given(st.floats(TARGET, 60), st.floats(0.00002, 0.0001))
def test_a_job_doesnt_fall_behind_for_good_where_a_batch_as_such_takes_long(
    fixed: float, each: float
) -> None:
    took = list(islice(batches_of(start(), lambda records: fixed + each * records), 120))[60:]
    rate = sum(batch.records for batch in took) / sum(batch.seconds for batch in took)
    largest = MOST / (fixed + each * MOST)
    assert rate > min(largest, 0.5 / each) / 3  # not a few records in each of many long batches


@given(st.floats(0.05, 1), st.floats(0.00002, 0.0001), st.floats(2, 10))
def test_slower_cores_have_smaller_batches_at_once(
    fixed: float, each: float, slower: float
) -> None:
    size = start()
    for batch in islice(batches_of(size, lambda records: fixed + each * records), 30):
        size = size.after(batch)
    slow = Taken(size.records, slower * (fixed + each * size.records))
    after = size.after(slow)
    if slow.seconds > TARGET:
        assert after.records < size.records
        assert (
            fixed * slower + each * slower * after.records <= max(TARGET, 2 * fixed * slower) * 1.5
        )


def test_a_backlog_is_taken_in_steps_that_grow() -> None:
    warm = [batch.records for batch in islice(batches_of(start(), lambda _: 0.5), 9)]
    assert warm == [500, 500, 2000, 2000, 8000, 8000, 32000, 32000, 60000]
    cold = iter([8.0, 6.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0])
    grown = [batch.records for batch in islice(batches_of(start(), lambda _: next(cold)), 8)]
    assert grown == [500, 500, 1000, 1000, 1333, 2000, 5332, 5332]
