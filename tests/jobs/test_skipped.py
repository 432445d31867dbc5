"""What is skipped is read by no batch, and everything else by exactly one."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.inputs.checkpoint import EARLIEST, Batch, Checkpoint, Offsets
from millrace_jobs.inputs.offset_log import Entry, OffsetLog, UnknownFormat
from millrace_jobs.inputs.skipped import (
    SkippedRange,
    ahead,
    around,
    explain_positions,
    joined,
    overlapping,
    rewriting,
    within_polls,
)
from pyspark.sql import SparkSession

TOPIC = "events"
ENDS = {"0": 20, "1": 20}

ranges_of_a_log = st.lists(
    st.builds(
        lambda partition, start, length: SkippedRange(TOPIC, partition, start, start + length),
        st.integers(0, 1),
        st.integers(0, 17),
        st.integers(1, 3),
    ),
    max_size=8,
)


class Log:
    """A query's log, and which offsets its batches have read; each step may be the last before a
    crash, after which the query begins anew."""

    def __init__(self, sizes: list[int], room: int = 0, poll: int = 1) -> None:
        self.room, self.poll = room, poll
        self.offsets: dict[int, Offsets] = {}
        self.committed = -1
        self.read: Counter[tuple[str, int]] = Counter()
        self._sizes = sizes

    def position(self) -> Offsets:
        return self.offsets.get(self.committed, {})

    def step_aside(self, skipped: list[SkippedRange]) -> bool:
        """One step around what is skipped; False when there is none to take."""
        begun = self.offsets.get(self.committed + 1)
        step = rewriting(self.position(), self.committed + 1, begun, skipped, self.room, self.poll)
        if step is None:
            return False
        self.offsets[step.number] = step.ends
        return True

    def plan(self) -> Batch:
        number, size = self.committed + 1, self._sizes[self.committed % len(self._sizes)]
        if number not in self.offsets:
            start = {p: self.position().get(TOPIC, {}).get(p, 0) for p in ENDS}
            self.offsets[number] = {TOPIC: {p: min(ENDS[p], start[p] + size) for p in ENDS}}
        return Batch.between(self.position(), self.offsets[number])

    def run(self) -> None:
        batch = self.plan()
        for partition, end in batch.end[TOPIC].items():
            for offset in range(max(0, batch.start[TOPIC][partition]), end):
                self.read[partition, offset] += 1
        self.committed += 1

    @property
    def is_over(self) -> bool:
        return self.position() == {TOPIC: ENDS}


@given(
    ranges_of_a_log,
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.integers(0, 40),
    st.integers(1, 5),
)
def test_what_is_skipped_is_never_read_and_all_else_once(
    skipped: list[SkippedRange], sizes: list[int], room: int, poll: int
) -> None:
    log = Log(sizes, room, poll)
    for _ in range(500):
        if log.is_over:
            break
        if log.step_aside(skipped):
            continue
        if overlapping(joined(skipped), log.plan()):  # what a driver finds as a batch begins
            assert log.step_aside(skipped)
            continue
        log.run()
    assert log.is_over
    left_out = {(f"{s.partition}", o) for s in skipped for o in range(s.start, s.end)}
    all_offsets = {(partition, o) for partition, end in ENDS.items() for o in range(end)}
    assert log.read == Counter(all_offsets - left_out)


def starts(log: Log, skipped: list[SkippedRange]) -> int:
    """How often a query is started until it has passed all of them."""
    number = 0
    log.plan()
    while not log.is_over:
        number += 1
        while log.step_aside(skipped):
            pass
        while not log.is_over and not overlapping(skipped, log.plan()):
            log.run()
    return number


def test_a_query_is_started_anew_once_for_each_skipped_range() -> None:
    skipped = [SkippedRange(TOPIC, 0, start, start + 1) for start in range(1, 20, 3)]
    assert starts(Log([20]), skipped) == len(skipped) + 1


def test_one_start_passes_a_skipped_range_of_each_partition() -> None:
    """Small batches would meet them one by one."""
    skipped = [
        SkippedRange(TOPIC, partition, start + partition, start + partition + 1)
        for partition in (0, 1)
        for start in range(2, 18, 3)
    ]
    assert starts(Log([1]), skipped) == len(skipped) + 1
    assert starts(Log([1], room=10), skipped) == len(skipped) // 2 + 2


def test_from_far_away_a_batch_ends_where_no_poll_reaches_what_is_skipped() -> None:
    committed, begun = {TOPIC: {"0": 0, "1": 0}}, {TOPIC: {"0": 3, "1": 3}}
    far, near = SkippedRange(TOPIC, 0, 100, 101), SkippedRange(TOPIC, 1, 5, 6)
    step = rewriting(committed, 4, begun, [far, near], room=400, poll=10)
    assert step
    assert step.ends == {TOPIC: {"0": 90, "1": 0}}
    first = Batch.between(committed, step.ends)
    assert not within_polls([far], first, 10)
    assert within_polls([far], first, 11)
    assert rewriting(committed, 4, step.ends, [far, near], room=400, poll=10) is None

    rest = rewriting(step.ends, 5, {TOPIC: {"0": 93, "1": 3}}, [far, near], room=400, poll=10)
    assert rest
    assert rest.ends == {TOPIC: {"0": 100, "1": 5}}


def test_a_batch_that_is_read_record_by_record_has_no_more_of_other_partitions() -> None:
    """They would keep it up: a partition is one task, and a record takes a millisecond."""
    committed, begun = {TOPIC: {"0": 50, "1": 7, "2": 9}}, {TOPIC: {"0": 900, "1": 900, "2": 10}}
    skipped = [SkippedRange(TOPIC, 0, 70, 71)]
    step = rewriting(committed, 4, begun, skipped, room=900, poll=10)
    assert step
    assert step.ends == {TOPIC: {"0": 70, "1": 27, "2": 10}}
    assert rewriting(committed, 4, step.ends, skipped, room=900, poll=10) is None
    begun_before = rewriting(committed, 4, begun, skipped, poll=10)
    assert begun_before
    assert begun_before.ends == {TOPIC: {"0": 70, "1": 900, "2": 10}}


def test_a_batch_is_extended_no_farther_than_there_is_room() -> None:
    committed, begun = {TOPIC: {"0": 0, "1": 0}}, {TOPIC: {"0": 3, "1": 3}}
    near, far = SkippedRange(TOPIC, 0, 10, 11), SkippedRange(TOPIC, 1, 11, 12)
    step = rewriting(committed, 4, begun, [near, far], room=20, poll=5)
    assert step
    assert step.ends == {TOPIC: {"0": 10, "1": 3}}
    assert rewriting(committed, 4, begun, [near, far]) is None


@given(ranges_of_a_log, st.sampled_from([0, EARLIEST, 5]), st.integers(5, 20))
def test_a_batch_is_read_around_what_is_skipped(
    skipped: list[SkippedRange], start: int, end: int
) -> None:
    batch = Batch({TOPIC: {"0": start, "1": 3}}, {TOPIC: {"0": end, "1": 7}})
    read = Counter(
        (partition, offset)
        for piece in around(batch, skipped)
        for partition, last in piece.end[TOPIC].items()
        for offset in range(max(0, piece.start[TOPIC][partition]), last)
    )
    left_out = {(f"{s.partition}", o) for s in skipped for o in range(s.start, s.end)}
    wanted = {("0", o) for o in range(max(0, start), end)} | {("1", o) for o in range(3, 7)}
    assert read == Counter(wanted - left_out)


def test_what_a_job_has_passed_is_ahead_of_it_no_more() -> None:
    passed, next_one = SkippedRange(TOPIC, 0, 2, 4), SkippedRange(TOPIC, 0, 4, 6)
    assert ahead([passed, next_one], {TOPIC: {"0": 6}}) == []
    apart = SkippedRange(TOPIC, 0, 8, 9)
    assert ahead([passed, apart], {TOPIC: {"0": 4}}) == [apart]


@pytest.mark.parametrize(
    ("now", "published", "explained"),
    [
        (5, 5, True),
        (5, 9, True),  # cut before the skipped range from 5 to 7
        (4, 9, False),
        (6, 9, False),
        (5, 6, False),  # what was published ended within it
        (9, 5, False),
    ],
)
def test_a_batch_of_other_offsets_is_explained_by_a_skip_alone(
    now: int, published: int, explained: bool
) -> None:
    skipped = [SkippedRange(TOPIC, 0, 5, 7)]
    read = {TOPIC: {"0": now}}
    assert explain_positions(read, {(TOPIC, 0): published}, skipped) == explained


LINES = ["v1", '{"batchWatermarkMs":7,"conf":{"a":"b"}}', '{"events":{"0":5,"1":6}}', "-"]


def test_an_entry_changes_in_nothing_but_its_offsets() -> None:
    entry = Entry.parse("\n".join(LINES))
    assert entry.render().splitlines() == LINES
    moved = entry.ending_at({TOPIC: {"0": 3, "1": 6}}).render().splitlines()
    assert moved == [*LINES[:2], '{"events":{"0":3,"1":6}}', "-"]


def test_a_log_of_another_version_is_left_alone() -> None:
    with pytest.raises(UnknownFormat, match="v2"):
        Entry.parse("v2\n{}")


def test_a_log_is_rewritten_in_its_folder(spark: SparkSession, tmp_path: Path) -> None:
    location = tmp_path / "checkpoint"
    (location / "offsets").mkdir(parents=True)
    (location / "offsets" / "0").write_text("\n".join(LINES[:3]))
    (location / "offsets" / "1").write_text("\n".join(LINES[:3]))
    (location / "commits").mkdir()
    (location / "commits" / "0").write_text("v1\n{}")
    checkpoint = Checkpoint(spark, str(location))
    step = rewriting(checkpoint.ends(0), 1, checkpoint.ends(1), [SkippedRange(TOPIC, 1, 6, 8)])
    assert step
    OffsetLog(spark, checkpoint).rewrite(step)
    assert checkpoint.ends(1) == {TOPIC: {"0": 5, "1": 8}}
    metadata = (location / "offsets" / "1").read_text().splitlines()[1]
    assert json.loads(metadata) == json.loads(LINES[1])
