"""Ranges of offsets that a job leaves out for good, and how its offsets log is led around them.

A task that reads a record which no executor can hold dies in Spark's source, before any expression
could leave it out. So the offsets log is rewritten: a batch ends before a skipped range, and once
it is committed its end moves behind that range. State and watermark are kept, because the batches
keep their numbers. The batch after it, if Spark has planned it by then, is kept, too, and ends
before the next range: planned anew, it would reach into that one, and the query start once more.
One that was never run ends there in every partition, so what is passed at once is a range in each.
From far away it takes two batches: the first ends where no poll reaches a range yet, so that only
the rest has to be read record by record, of partitions without such a range no more than of the
others. Pure: `offset_log` reads and writes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from millrace_jobs.inputs.checkpoint import EARLIEST, Batch, Offsets


@dataclass(frozen=True, order=True)
class SkippedRange:
    """Offsets of one partition, ``end`` not included."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}, offsets {self.start} to {self.end - 1}"


@dataclass(frozen=True)
class Rewriting:
    """What the offsets log is to say before the query goes on: all ends of a batch."""

    number: int
    ends: Offsets


def joined(ranges: Iterable[SkippedRange]) -> list[SkippedRange]:
    """The ranges in order, those that touch or overlap as one."""
    found: list[SkippedRange] = []
    for one in sorted(ranges):
        last = found[-1] if found else one
        is_next = (last.topic, last.partition) == (one.topic, one.partition)
        if found and is_next and one.start <= last.end:
            found[-1] = replace(last, end=max(last.end, one.end))
        else:
            found.append(one)
    return found


def ahead(ranges: Iterable[SkippedRange], position: Offsets) -> list[SkippedRange]:
    """Those that a job at this position has yet to pass."""
    return [one for one in joined(ranges) if one.end > _offset(position, one, EARLIEST)]


def overlapping(ranges: Iterable[SkippedRange], batch: Batch) -> list[SkippedRange]:
    """Those of which a batch would read something."""
    return [
        one
        for one in ranges
        if one.start < _offset(batch.end, one, 0) and one.end > _offset(batch.start, one, EARLIEST)
    ]


def within_polls(ranges: Iterable[SkippedRange], batch: Batch, poll: int) -> bool:
    """Whether a poll of so many records, begun within the batch, may have something of these."""
    ends = {
        topic: {number: end + poll for number, end in partitions.items()}
        for topic, partitions in batch.end.items()
    }
    return bool(overlapping(ranges, Batch(batch.start, ends)))


def rewriting(
    committed: Offsets,
    number: int,
    begun: Offsets | None,
    ranges: Iterable[SkippedRange],
    room: int = 0,
    poll: int = 1,
) -> Rewriting | None:
    """The next step of a job around what is skipped; None when its next batch may run.

    Safe to be repeated after a crash at any point: a position that was moved isn't in a range.

    Args:
        committed: the ends of the last committed batch, which is ``number - 1``.
        begun: those of the batch ``number``, if the log has it.
        ranges: none begins before the position unless it was cut by an earlier step.
        room: how many records of a topic the batch ``number`` may be extended to. 0 for one of
            which something may have been written: it may end before what is skipped, no more.
        poll: the records that are read at once where no poll reaches a range.
    """
    skipped = joined(ranges)
    if moved := {one: one.end for one in skipped if _stands_in(one, committed)}:
        # First the batch that begins there: none may end before its beginning.
        if begun and (
            short := {one: end for one, end in moved.items() if _offset(begun, one, 0) < end}
        ):
            return Rewriting(number, _with(begun, short))
        return Rewriting(number - 1, _with(committed, moved))
    if begun is None:
        return None
    batch = Batch.between(committed, begun)
    next_ones = [one for one in _next_ones(skipped, batch) if _is_in_reach(one, batch, room)]
    ends = {one: one.start for one in next_ones}
    farthest = max((_distance(one, batch) for one in next_ones), default=0)
    if room and farthest > 2 * poll:
        ends = {one: one.start - min(poll, max(_distance(one, batch), 0)) for one in next_ones}
    elif room and farthest > 0:
        begun = _shortened(batch, farthest)
    changed = _with(begun, ends)
    return Rewriting(number, changed) if changed != batch.end else None


def _shortened(batch: Batch, records: int) -> Offsets:
    """The batch's ends, with so many records of a partition at most."""
    return {
        topic: {
            number: end if start == EARLIEST else min(end, start + records)
            for number, end in ends.items()
            for start in [batch.start.get(topic, {}).get(number, EARLIEST)]
        }
        for topic, ends in batch.end.items()
    }


def _next_ones(skipped: Iterable[SkippedRange], batch: Batch) -> list[SkippedRange]:
    """The first range of each of the batch's partitions that the batch hasn't behind it."""
    first: dict[tuple[str, int], SkippedRange] = {}
    for one in ahead(skipped, batch.start):
        if str(one.partition) in batch.end.get(one.topic, {}):
            first.setdefault((one.topic, one.partition), one)
    return list(first.values())


def _is_in_reach(one: SkippedRange, batch: Batch, room: int) -> bool:
    """Whether the batch reads something of it, or may be extended to where it starts."""
    if overlapping([one], batch):
        return True
    return bool(room) and 0 <= _distance(one, batch) <= room // len(batch.end[one.topic])


def _distance(one: SkippedRange, batch: Batch) -> int:
    """Records from where the batch begins to there; -1 where nobody knows where it begins."""
    start = _offset(batch.start, one, EARLIEST)
    return -1 if start == EARLIEST else one.start - start


def around(batch: Batch, ranges: Iterable[SkippedRange]) -> list[Batch]:
    """A batch as the batches that read it without what is skipped, each at most once."""
    pieces: dict[tuple[str, str], list[tuple[int, int]]] = {}
    skipped = joined(ranges)
    for topic, ends in batch.end.items():
        for partition, end in ends.items():
            start = batch.start[topic][partition]
            here = [r for r in skipped if (r.topic, str(r.partition)) == (topic, partition)]
            pieces[topic, partition] = list(_around(start, end, here))
    return [
        _piece(batch, {place: parts[turn] for place, parts in pieces.items() if turn < len(parts)})
        for turn in range(max(map(len, pieces.values()), default=0))
    ]


def explain_positions(
    read: Offsets, published: Mapping[tuple[str, int], int], ranges: Sequence[SkippedRange]
) -> bool:
    """Whether a batch differs from what was published only by having been cut before skips.

    Args:
        read: the batch's ends as its log has them now.
        published: the ends by topic and partition when it was published.
    """
    skipped = joined(ranges)
    return all(
        offset == now
        or any(
            (one.topic, one.partition) == (topic, partition)
            and one.start == now
            and one.end <= offset
            for one in skipped
        )
        for (topic, partition), offset in published.items()
        if (now := read.get(topic, {}).get(str(partition))) is not None
    )


def _offset(offsets: Offsets, one: SkippedRange, otherwise: int) -> int:
    return offsets.get(one.topic, {}).get(str(one.partition), otherwise)


def _stands_in(one: SkippedRange, position: Offsets) -> bool:
    return one.start <= _offset(position, one, EARLIEST) < one.end


def _with(offsets: Offsets, changes: Mapping[SkippedRange, int]) -> Offsets:
    changed = {topic: dict(partitions) for topic, partitions in offsets.items()}
    for one, offset in changes.items():
        changed[one.topic][str(one.partition)] = offset
    return changed


def _around(start: int, end: int, skipped: Sequence[SkippedRange]) -> Iterator[tuple[int, int]]:
    for one in skipped:
        if one.start >= end or one.end <= start:
            continue
        if start == EARLIEST or start < one.start:
            yield start, one.start
        start = max(start, one.end)
    if start < end:
        yield start, end


def _piece(batch: Batch, ranges: Mapping[tuple[str, str], tuple[int, int]]) -> Batch:
    """Partitions that the piece has nothing of are read from their end to their end."""

    def side(index: int) -> Offsets:
        return {
            topic: {
                partition: ranges[topic, partition][index] if (topic, partition) in ranges else end
                for partition, end in ends.items()
            }
            for topic, ends in batch.end.items()
        }

    return Batch(side(0), side(1))
