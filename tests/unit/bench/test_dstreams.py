"""D-Streams' programs: lines and their recount, windows, stairs, the table."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import openloop, report
from bench.dstreams import recount, text, window
from bench.dstreams.recount import Interval
from bench.openloop import Offered, Stairs, offer
from tests.clock import Clock
from tests.unit.bench.test_load import read_records
from tests.unit.bench.test_service import COST


class TestLines:
    def test_they_have_a_hundred_bytes_and_known_words(self) -> None:
        known = set(text.vocabulary())
        assert {len(line) for line in text.lines()} == {text.LINE_BYTES}
        assert all(word in known for line in text.lines()[:2000] for word in line.split(" "))
        assert len(known) == text.VOCABULARY

    @given(first=st.integers(0, 45_000), count=st.integers(0, 3000))
    @settings(max_examples=15, deadline=None)
    def test_what_is_sent_is_the_pool_again_and_again(self, first: int, count: int) -> None:
        sent: dict[int, bytes] = {}
        for batch in text.batches(first, first + count):
            records = read_records(batch.records.tobytes())
            assert [place for place, *_ in records] == list(range(len(records)))
            for number, (_, _, value) in zip(batch.numbers.tolist(), records, strict=True):
                assert number % text.PARTITIONS == batch.partition
                sent[number] = value
        assert sorted(sent) == list(range(first, first + count))
        assert all(sent[n].decode() == text.lines()[n % text.POOL] for n in sent)


def in_partition(partition: int, count: int) -> list[str]:
    own = text.lines()[partition :: text.PARTITIONS]
    return (own * (1 + count // len(own)))[:count]


def counted(first: tuple[int, ...], until: tuple[int, ...]) -> Counter[str]:
    """Words of the lines between, one by one."""
    return Counter(
        word
        for partition, (low, high) in enumerate(zip(first, until, strict=True))
        for line in in_partition(partition, high)[low:]
        for word in line.split(" ")
    )


def intervals(*results: Any) -> list[Interval]:
    """Three of them, the first of which is no more in the window of the last."""
    reads = ((3, 2), (10_004, 2), (10_009, 8))  # more than the pool
    times = (1000, 20_000, 31_000)
    return [
        Interval(float(n), time, read, result)
        for n, (time, read, result) in enumerate(zip(times, reads, results, strict=True))
    ]


class TestRecount:
    @given(st.integers(0, 25_000), st.integers(0, 1))
    @settings(max_examples=10, deadline=None)
    def test_any_first_lines_of_a_partition_are_counted(self, count: int, partition: int) -> None:
        part, own = text.parts()[partition], in_partition(partition, count)
        words = Counter(word for line in own for word in line.split(" "))
        expected = [words[word] for word in text.vocabulary()]
        assert part.words(count).tolist() == expected
        assert part.matching(count) == sum(text.PATTERN in line for line in own)

    def test_grep_counts_each_interval(self) -> None:
        own = in_partition(0, 10_004)
        right = intervals(
            sum(text.PATTERN in line for line in own[:3] + in_partition(1, 2)),
            sum(text.PATTERN in line for line in own[3:]),
            sum(
                text.PATTERN in line
                for line in in_partition(0, 10_009)[10_004:] + in_partition(1, 8)[2:]
            ),
        )
        assert right[1].result > 100
        assert recount.wrong("grep", right) == []
        [mistake] = recount.wrong("grep", [right[0], replace(right[1], result=9), right[2]])
        assert mistake.startswith("interval 1 of grep: 9")

    def test_a_window_ends_with_its_interval_and_begins_30_s_before(self) -> None:
        windows = [
            counted((0, 0), (3, 2)),
            counted((0, 0), (10_004, 2)),
            counted((3, 2), (10_009, 8)),
        ]
        right = intervals(*map(dict, windows))
        assert recount.wrong("wordcount", right) == []
        windows[2][text.vocabulary()[0]] += 1
        assert len(recount.wrong("wordcount", intervals(*map(dict, windows)))) == 1
        top = [
            [list(each) for each in sorted(each.items(), key=lambda at: (-at[1], at[0]))[: text.K]]
            for each in map(dict, windows[:2])
        ]
        assert recount.wrong("topk", intervals(*top, None)) == ["interval 2 of topk: None"]
        top[1][0], top[1][1] = top[1][1], top[1][0]
        assert len(recount.wrong("topk", intervals(*top, None))) == 2


def counts(**of: int) -> pa.Table:
    return pa.table({window.WORD: list(of), window.COUNT: list(of.values())})


class TestWindow:
    def test_the_last_30_s_are_added_up_and_older_counts_forgotten(self, tmp_path: Path) -> None:
        folder = tmp_path / "intervals"
        for time_ms, own in ((1000, {"a": 1}), (1001, {"a": 2, "b": 5}), (31_000, {"b": 1})):
            window.keep(folder, time_ms, counts(**own))
        found = window.newest(folder, 31_000).sort_by(window.WORD)
        assert found.to_pydict() == {window.WORD: ["a", "b"], window.COUNT: [2, 6]}
        assert sorted(path.name for path in folder.iterdir()) == ["1001.arrow", "31000.arrow"]

    def test_a_batch_that_runs_again_finds_the_same(self, tmp_path: Path) -> None:
        for _ in range(2):
            window.keep(tmp_path / "intervals", 1000, counts(a=1))
        assert window.newest(tmp_path / "intervals", 1000).to_pylist() == [
            {"word": "a", "count": 1}
        ]

    def test_of_words_as_frequent_the_first_by_name_is_on_top(self) -> None:
        found = window.top(counts(c=2, b=2, a=1, d=3), 2)
        assert found[window.WORD].to_pylist() == ["d", "b"]


class TestStairs:
    stairs = Stairs([100, 200, 400], [2.0, 2.0, 2.0])

    def test_events_are_due_by_the_rate_of_their_stair(self) -> None:
        assert self.stairs.events == 1400
        assert self.stairs.times(np.array([0, 100, 200, 400, 600])).tolist() == [0, 1, 2, 3, 4]
        assert [self.stairs.due(at) for at in (0, 1, 3, 99)] == [0, 100, 400, 1400]

    @given(st.lists(st.floats(1, 1e5), min_size=1, max_size=5), st.floats(0, 20))
    def test_none_is_sent_before_it_is_due(self, rates: list[float], elapsed: float) -> None:
        stairs = Stairs(rates, [3.0] * len(rates))
        due = stairs.due(elapsed)
        assert not due or stairs.times(np.array([due - 1]))[0] <= elapsed + 1e-9

    def test_latency_is_from_when_a_line_was_due_to_the_first_result_with_it(self) -> None:
        seen = [
            Interval(started + 100.0, 0, (half, half), None)
            for started, half in ((2.5, 101), (4.25, 301), (9.0, 701))
        ]
        found = recount.stairs_seen(seen, self.stairs, Offered(100.0, 1400), first=2)
        assert [stair["rate"] for stair in found] == [100, 200, 400]
        # Its second half is judged, whose oldest line was due at 1, 3 and 5 s.
        assert [stair["ms"]["p100"] for stair in found] == pytest.approx(
            [1500, 1250, 4000], rel=0.01
        )
        assert [recount.highest(found, bound) for bound in (1000, 2000, 9000)] == [0, 200, 400]

    def test_a_pause_on_a_lower_stair_is_no_limit(self) -> None:
        stairs = [
            {"rate": rate, "never_seen": 0, "ms": {"p99": p99}}
            for rate, p99 in ((100, 900), (115, 3000), (132, 999), (152, 1000))
        ]
        assert recount.highest(stairs, 1000) == 132
        assert recount.highest(stairs[3:], 1000) == 0

    def test_a_stair_that_was_not_climbed_to_its_end_is_no_figure(self) -> None:
        seen = [Interval(103.0, 0, (200, 200), None)]
        found = recount.stairs_seen(seen, self.stairs, Offered(100.0, 600), first=0)
        assert [stair["rate"] for stair in found] == [100, 200]
        assert found[1]["never_seen"] == 200
        assert recount.highest(found, 9000) == 100


class StandIn:
    """A sender that acknowledges at once, and is held up by its first batch."""

    unacknowledged = 0

    def __init__(self, clock: Clock, held_up: float) -> None:
        self.sent: list[int] = []
        self._clock = clock
        self._held_up = held_up

    def put(self, made: list[int]) -> None:
        self.sent += made
        self._clock.sleep(self._held_up)
        self._held_up = 0.0

    def poll(self, seconds: float) -> None:
        self._clock.sleep(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time passes while the sender polls, or is held up."""
    clock = Clock()
    monkeypatch.setattr(openloop, "time", SimpleNamespace(time=clock))
    return clock


class TestOpenLoop:
    stairs = Stairs([1000], [0.2])

    @pytest.mark.parametrize("held_up", [0.0, 0.1])
    def test_all_are_sent_once_and_a_load_held_up_is_late(
        self, clock: Clock, held_up: float
    ) -> None:
        sender = StandIn(clock, held_up)
        offered = offer(sender, self.stairs, lambda low, high: [list(range(low, high))], 0.01)
        assert sender.sent == list(range(200))
        assert offered.sent == 200
        assert held_up <= offered.behind < held_up + 0.02  # or a tick later

    def test_it_ends_when_it_is_told_to(self, clock: Clock) -> None:
        sender = StandIn(clock, 0.0)
        offered = offer(
            sender,
            self.stairs,
            lambda low, high: [list(range(low, high))],
            0.01,
            lambda offered: offered.sent > 20,
        )
        assert 20 < offered.sent == len(sender.sent) < 200


RECORD = COST | {
    "kind": "dstreams",
    "settings": {"cores": 2},
    "result": {
        "runs": [
            {
                "program": program,
                "rates": {"1000": rate, "2000": 2 * rate},
                "fetch": 1_000_000.0,
                "correct": True,
            }
            for program, rate in (("grep", 640_000), ("wordcount", 100_000), ("grep", 320_000))
        ]
    },
}


def test_rates_stand_beside_d_streams_per_core() -> None:
    [section] = report.sections(RECORD)
    assert [row[2:] for row in section.rows] == [
        ["160,000", "1.50 (1.00–2.00)", "0.48 (0.32–0.64)", "2 of 2"],
        ["160,000", "3.00 (2.00–4.00)", "0.96 (0.64–1.28)", "2 of 2"],
        ["–", "–", "0.10", "1 of 1"],
        ["–", "–", "0.20", "1 of 1"],
    ]
    assert section.rows[0][:2] == ["grep, < 1 s", "240,000 (160,000–320,000)"]
    assert report.tables(RECORD)
    assert "## D-Streams" in report.records_page([RECORD], [])
