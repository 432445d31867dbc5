"""What jobs were made to leave out is neither right nor lost: it is counted as skipped. Pure."""

from collections.abc import Collection, Iterable

import numpy as np
import pyarrow as pa

from millrace.audit.report import Plane
from millrace.cluster.skips import Skipped
from millrace.ledger.store import Ledger


def are_skipped(partition: np.ndarray, offset: np.ndarray, ranges: Iterable[Skipped]) -> np.ndarray:
    """Which of the places are in one of the ranges, all of which are of one topic."""
    found = np.zeros(len(partition), bool)
    for one in ranges:
        found |= (partition == one.partition) & (offset >= one.start) & (offset < one.end)
    return found


def without(records: pa.Table, ranges: Iterable[Skipped]) -> tuple[pa.Table, int]:
    """Records that a job has read, and how many it has skipped."""
    places = records["partition"].to_numpy(), records["offset"].to_numpy()
    skipped = are_skipped(*places, ranges)
    return records.filter(pa.array(~skipped)), int(skipped.sum())


def excuse(
    plane: Plane, ledger: Ledger, numbers: np.ndarray, ranges: Iterable[Skipped]
) -> np.ndarray:
    """Of a run's events that a plane lacks, those that nobody has left out; others are noted."""
    skipped = are_skipped(ledger.partition[numbers], ledger.offset[numbers], ranges)
    plane.skipped += int(skipped.sum())
    return numbers[~skipped]


def uncovered(ranges: Iterable[Skipped], by: Collection[Skipped]) -> int:
    """Counts the offsets of ranges that none of the others has; neither overlap each other."""
    return sum(max(0, one.records - sum(_common(one, other) for other in by)) for one in ranges)


def unarchived_notes(records: int) -> list[str]:
    """Says what an audit doesn't know, where the archive was made to leave out records that were
    counted: who sent them is known of the runs alone that are audited."""
    if not records:
        return []
    return [
        f"the archive was made to leave out {records} records that were counted (`millrace jobs"
        " skips archive`): those of other runs, if they are of these hours, count as duplicated"
    ]


def _common(one: Skipped, other: Skipped) -> int:
    if (one.topic, one.partition) != (other.topic, other.partition):
        return 0
    return max(0, min(one.end, other.end) - max(one.start, other.start))
