"""Unique visitors: HyperLogLog sketches that Spark's ``hll_sketch_agg`` made, merged."""

from collections.abc import Iterable
from dataclasses import dataclass

from datasketches import hll_sketch, hll_union, tgt_hll_type

STANDARD_DEVIATIONS = 2  # about 95 % confidence


@dataclass(frozen=True)
class Estimate:
    """A count, and the bounds that hold the true one with 95 % confidence."""

    count: int
    lower: int
    upper: int


def union(sketches: Iterable[bytes | None]) -> bytes | None:
    """One sketch of what all of them saw together; None if there is none."""
    merged = _merged(sketches)
    return merged.serialize_compact() if merged else None


def merge(sketches: Iterable[bytes | None]) -> Estimate:
    """The distinct visitors that all sketches saw together; a window without one adds none."""
    merged = _merged(sketches)
    if merged is None:
        return Estimate(0, 0, 0)
    return Estimate(
        count=round(merged.get_estimate()),
        lower=int(merged.get_lower_bound(STANDARD_DEVIATIONS)),
        upper=round(merged.get_upper_bound(STANDARD_DEVIATIONS)),
    )


def _merged(sketches: Iterable[bytes | None]) -> hll_sketch | None:
    union: hll_union | None = None
    for stored in filter(None, sketches):
        sketch = hll_sketch.deserialize(stored)
        union = union or hll_union(sketch.lg_config_k)  # as precise as what the job stored
        union.update(sketch)
    return union and union.get_result(tgt_hll_type.HLL_8)  # as stored: HLL_4 takes 40 times as long
