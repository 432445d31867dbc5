"""Latency modes: events and the check of their results, percentiles, the table."""

import json

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import report
from bench.modes import __main__ as modes
from bench.modes import events
from bench.modes.events import Check
from tests.unit.bench.test_load import read_records
from tests.unit.bench.test_service import COST


class TestEvents:
    @given(first=st.integers(0, 10**9), count=st.integers(0, 2000))
    @settings(max_examples=20)
    def test_what_is_sent_makes_the_results_that_are_expected(self, first: int, count: int) -> None:
        sent: dict[int, dict[str, str]] = {}
        for batch in events.batches(first, first + count):
            records = read_records(batch.records.tobytes())
            assert [place for place, *_ in records] == list(range(len(records)))
            for number, (_, _, value) in zip(batch.numbers.tolist(), records, strict=True):
                assert number % events.PARTITIONS == batch.partition
                sent[number] = json.loads(value)
        assert sorted(sent) == list(range(first, first + count))
        assert all(int(event["id"]) == number for number, event in sent.items())
        kept = {number for number, event in sent.items() if event["type"] == "view"}
        assert kept == {n for n in sent if events.number_of(events.result(n)) == n}

    @pytest.mark.parametrize("value", [b"", b"{}", b'{"id":"0000000001"}', b'{"id":"0000000003"} '])
    def test_what_is_no_result_is_of_no_event(self, value: bytes) -> None:
        assert events.number_of(value) is None


class TestCheck:
    right = tuple(map(events.result, (0, 3, 6, 9)))

    def test_all_results_once_are_right(self) -> None:
        assert events.check(self.right, 12) == Check(0, 0, 0)

    def test_lost_doubled_and_strange_ones_are_told_apart(self) -> None:
        found = [*self.right[1:], *self.right[2:], events.result(12), b"x", b"x"]
        assert events.check(found, 12) == Check(lost=1, duplicates=2, strange=3)

    @given(st.lists(st.integers(0, 3), min_size=1))
    def test_every_result_is_counted_once(self, which: list[int]) -> None:
        found = events.check([self.right[each] for each in which], 12)
        assert len(which) == 4 - found.lost + found.duplicates


class TestLatency:
    def test_an_event_is_seen_when_its_first_result_is(self) -> None:
        results = [(7.0, events.result(3)), (8.0, events.result(0)), (9.0, events.result(3))]
        numbers, seen = modes.first_seen([*results, (9.5, b"strange")])
        assert (numbers.tolist(), seen.tolist()) == ([0, 3], [8.0, 7.0])

    def test_percentiles_are_of_all_and_finer_than_a_millisecond(self) -> None:
        found = modes.percentiles(np.array([0.0042] * 98 + [1.5, 3.0]))
        assert found["p50"] == pytest.approx(4.2, rel=0.001)
        assert found["p99"] == pytest.approx(1500, rel=0.001)
        assert found["p100"] == pytest.approx(3000, rel=0.001)


RECORD = COST | {
    "kind": "modes",
    "settings": {"rate": 5000.0},
    "result": {
        "about": {"real-time": "fast"},
        "runs": [
            {
                "mode": mode,
                "ms": {"p50": p99 / 2, "p99": p99},
                "lost": 0,
                "duplicates": 2,
                "load_behind_ms": p99 / 10,
                "correct": True,
            }
            for mode, p99 in (
                ("micro-batch", 400.0),
                ("real-time", 10.0),
                ("micro-batch", 900.0),
                ("real-time", 30.0),
                ("flink", 15.0),
            )
        ],
    },
}


def test_modes_stand_beside_real_time() -> None:
    [section] = report.sections(RECORD)
    assert section.rows[0][2:] == ["650.0 (400.0–900.0)", "0", "4", "2 of 2"]
    assert section.notes == [
        "The p99 of flink is 1.5 times that of real-time.",
        "The p99 of micro-batch is 35.0 (30.0–40.0) times that of real-time.",
        "The load was 90 ms late at worst, which is in the figures.",
        "real-time: fast.",
    ]
    assert report.tables(RECORD)
    assert "## Latency modes at 5,000 events/s" in report.records_page([RECORD], [])


def test_one_alone_is_compared_with_nothing() -> None:
    alone = RECORD | {"result": {"about": {}, "runs": RECORD["result"]["runs"][:1]}}
    [section] = report.sections(alone)
    assert section.notes == ["The load was 40 ms late at worst, which is in the figures."]


def test_all_modes_give_the_same_guarantee_and_say_so() -> None:
    configured = yaml.safe_load((modes.Path(modes.__file__).with_name("modes.yaml")).read_text())
    assert list(configured) == ["micro-batch", "real-time", "flink"]
    for mode in configured.values():
        assert "at-least-once" in mode["about"]
        assert [value for key, value in mode["sink"].items() if key.endswith("linger.ms")] == ["0"]
