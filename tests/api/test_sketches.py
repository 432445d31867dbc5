"""Unique visitors over any range: the merge of its windows' sketches."""

from datasketches import hll_sketch, tgt_hll_type
from millrace_api.sketches import merge


def sketch(visitors: range, lg_k: int = 12) -> bytes:
    made = hll_sketch(lg_k, tgt_hll_type.HLL_8)
    for visitor in visitors:
        made.update(f"visitor-{visitor}")
    return made.serialize_updatable()


def test_visitors_of_several_windows_count_once() -> None:
    windows = [sketch(range(0, 6000)), sketch(range(3000, 9000)), sketch(range(8000, 10_000))]
    estimate = merge(windows)
    assert abs(estimate.count - 10_000) <= 200
    assert estimate.lower <= 10_000 <= estimate.upper
    assert estimate.upper - estimate.lower < 1000


def test_a_merge_is_as_precise_as_the_sketches() -> None:
    def width(lg_k: int) -> int:
        estimate = merge([sketch(range(0, 6000), lg_k), sketch(range(3000, 9000), lg_k)])
        return estimate.upper - estimate.lower

    assert width(14) < width(12) < width(10)


def test_few_visitors_are_counted_exactly() -> None:
    assert merge([sketch(range(5)), sketch(range(3, 8))]).count == 8


def test_windows_without_a_sketch_add_nobody() -> None:
    assert merge([]).count == 0
    assert merge([None, b"", sketch(range(2))]).count == 2
