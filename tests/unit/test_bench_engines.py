"""Engines side by side: YSB's events and their truth, progress and its rate, settings."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bench.engines import progress, ysb
from bench.engines.progress import Progress
from tests.unit.test_bench_load import read_records

ENGINES = Path(ysb.__file__).parent
EVENTS = 25_000  # more than a pool


class TestYsb:
    def test_what_is_sent_counts_up_to_the_truth(self) -> None:
        campaigns, counted, sent = ysb.ads(), {}, 0
        for batch in ysb.batches(EVENTS):
            records = read_records(batch.records.tobytes())
            assert [place for place, *_ in records] == list(range(len(batch.numbers)))
            sent += len(records)
            for _, _, value in records:
                event = json.loads(value)
                if event["event_type"] == "view":
                    start = int(event["event_time"]) // ysb.WINDOW_MS * ysb.WINDOW_MS
                    key = campaigns[event["ad_id"]], start
                    counted[key] = counted.get(key, 0) + 1
        assert sent == EVENTS + ysb.PARTITIONS
        assert counted == ysb.truth(EVENTS)

    def test_every_campaign_has_its_ads(self) -> None:
        campaigns = list(ysb.ads().values())
        assert len(set(ysb.ads())) == ysb.CAMPAIGNS * ysb.ADS
        assert {campaigns.count(each) for each in set(campaigns)} == {ysb.ADS}

    def test_the_last_of_each_partition_closes_all_windows_and_counts_nowhere(self) -> None:
        *_, one, other = ysb.batches(1000)
        for batch in (one, other):
            [(_, _, value)] = read_records(batch.records.tobytes())
            event = json.loads(value)
            assert event["event_type"] != "view"
            assert int(event["event_time"]) > ysb.START_MS + ysb.WINDOWS * ysb.WINDOW_MS
        assert {one.partition, other.partition} == set(range(ysb.PARTITIONS))

    def test_events_of_a_partition_come_in_the_order_of_their_times(self) -> None:
        numbers = [b.numbers for b in ysb.batches(EVENTS) if b.partition == 1]
        assert (np.diff(np.concatenate(numbers)) > 0).all()


class TestProgress:
    def test_a_key_counts_with_its_newest_value(self) -> None:
        seen = Progress()
        for views in (3, 5):
            seen.result(("a", 0), views)
        seen.result(("b", 0), 1)
        seen.look(1.0)
        seen.look(2.0)
        assert (seen.total, seen.seen) == (6, [(1.0, 6)])

    def test_the_first_quarter_is_left_out(self) -> None:
        seen = [(0.0, 0), (10.0, 20), (12.0, 30), (14.0, 100)]
        assert progress.steady(seen, 100) == (12.0, 14.0, 0.7)

    def test_what_was_seen_at_once_is_measured_from_the_start(self) -> None:
        assert progress.steady([(0.0, 0), (9.0, 100)], 100) == (0.0, 9.0, 1.0)

    def test_nothing_seen_is_nothing_done(self) -> None:
        assert progress.steady([(5.0, 0)], 100) == (5.0, 5.0, 0.0)

    @given(st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), st.integers(1, 9)))
    def test_every_difference_is_found(self, counts: ysb.Counts) -> None:
        assert progress.wrong(counts, counts) == []
        for key in counts:
            assert len(progress.wrong(counts | {key: 99}, counts)) == 1
            assert len(progress.wrong({k: v for k, v in counts.items() if k != key}, counts)) == 1


def test_every_engine_says_what_it_is_and_all_share_what_must_be_equal() -> None:
    config = yaml.safe_load((ENGINES / "engines.yaml").read_text())
    for engine in config["engines"].values():
        assert engine["about"]
        assert not any("commit.interval" in key for key in engine.get("settings", {}))


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("jars.py", r'KAFKA_STREAMS = "(.*)"'),
        ("jars.py", r'FLINK_CONNECTOR = "(.*)"'),
    ],
)
def test_jars_are_locked_as_they_are_named(file: str, pattern: str) -> None:
    found = re.search(pattern, (ENGINES / file).read_text())
    assert found
    assert found[1] in (ENGINES / "jars.lock").read_text()
