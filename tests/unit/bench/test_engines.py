"""Engines side by side: workloads' events and their truth, progress and its rate, settings."""

import json
import re
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.engines import nexmark, progress, recount, ysb
from bench.engines.nexmark import AUCTION, BID, PERSON, Events
from bench.engines.progress import Progress
from bench.engines.stream import PARTITIONS, START_MS, WINDOW_MS, WINDOWS, batches
from bench.engines.workloads import WORKLOADS
from tests.unit.bench.test_load import read_records

ENGINES = Path(ysb.__file__).parent
EVENTS = 25_000  # more than a pool


@cache
def sent(workload: str, events: int) -> list[list[dict]]:
    """What is in each partition."""
    content: list[list[dict]] = [[] for _ in range(PARTITIONS)]
    for batch in batches(WORKLOADS[workload].stream, events):
        records = read_records(batch.records.tobytes())
        assert [place for place, *_ in records] == list(range(len(batch.numbers)))
        content[batch.partition] += [json.loads(value) for *_, value in records]
    return content


class TestYsb:
    def test_what_is_sent_counts_up_to_the_truth(self) -> None:
        campaigns, counted = ysb.ads(), Counter()
        for event in chain(*sent("ysb", EVENTS)):
            if event["event_type"] == "view":
                start = int(event["event_time"]) // WINDOW_MS * WINDOW_MS
                counted[campaigns[event["ad_id"]], start] += 1
        assert counted == ysb.truth(EVENTS)

    def test_a_result_is_a_row_of_what_is_expected(self) -> None:
        rows = [
            ysb.YSB.row({"campaign": campaign, "start": start, "views": views})
            for (campaign, start), views in ysb.truth(EVENTS).items()
        ]
        assert progress.wrong(np.array(rows), ysb.YSB.expected(EVENTS)) == []

    def test_every_campaign_has_its_ads(self) -> None:
        campaigns = list(ysb.ads().values())
        assert len(set(ysb.ads())) == ysb.CAMPAIGNS * ysb.ADS
        assert {campaigns.count(each) for each in set(campaigns)} == {ysb.ADS}

    def test_with_redis_the_same_must_come_of_the_same(self) -> None:
        assert ysb.IN_REDIS.stream is ysb.YSB.stream
        assert ysb.IN_REDIS.program == ysb.YSB.program
        assert (ysb.IN_REDIS.expected(EVENTS) == ysb.YSB.expected(EVENTS)).all()

    def test_the_last_of_each_partition_closes_all_windows_and_counts_nowhere(self) -> None:
        for *_, last in sent("ysb", EVENTS):
            assert last["event_type"] != "view"
            assert int(last["event_time"]) > START_MS + WINDOWS * WINDOW_MS


@pytest.mark.parametrize("workload", ["ysb", "nexmark-q1"])
def test_all_is_sent_once_and_events_of_a_partition_come_in_the_order_of_their_times(
    workload: str,
) -> None:
    stream = WORKLOADS[workload].stream
    numbers = [
        np.concatenate([b.numbers for b in batches(stream, EVENTS) if b.partition == each])
        for each in range(PARTITIONS)
    ]
    assert all((np.diff(own) > 0).all() for own in numbers)
    own = np.concatenate(numbers)
    assert sorted(own[own < EVENTS].tolist()) == list(range(EVENTS))


@pytest.fixture(scope="module")
def site() -> list[list[dict]]:
    return sent("nexmark-q1", EVENTS)


@pytest.fixture(scope="module")
def kinds(site: list[list[dict]]) -> dict[str, list[dict]]:
    """Events by their kind, but those that only close windows."""
    every = [event for own in site for event in own[: -len(nexmark.STREAM.last)]]
    return {
        kind: [event[kind] for event in every if kind in event]
        for kind in ("person", "auction", "bid")
    }


class TestNexmark:
    def test_kinds_are_as_1_to_3_to_46_in_each_partition(self, site: list[list[dict]]) -> None:
        for own in site:
            counts = Counter(event["event_type"] for event in own[: -len(nexmark.STREAM.last)])
            assert counts[PERSON] == EVENTS // 100
            assert counts[AUCTION] == 3 * counts[PERSON]
            assert counts[BID] == 46 * counts[PERSON]

    def test_mean_sizes_are_nexmarks(self, kinds: dict[str, list[dict]]) -> None:
        for kind, mean in zip(kinds, nexmark.MEAN_BYTES, strict=True):
            sizes = [
                sum(len(value) if isinstance(value, str) else 8 for value in event.values())
                for event in kinds[kind]
            ]
            assert np.mean(sizes) == pytest.approx(mean, rel=0.05)

    def test_ids_are_given_once_and_in_order(self, kinds: dict[str, list[dict]]) -> None:
        for kind in ("person", "auction"):
            ids = [event["id"] for event in sorted(kinds[kind], key=lambda one: one["id"])]
            assert ids == list(range(nexmark.FIRST_ID, nexmark.FIRST_ID + len(ids)))

    def test_half_of_the_bids_are_for_hot_auctions(self, kinds: dict[str, list[dict]]) -> None:
        hot = sum(bid["auction"] % nexmark.HOT_GROUP == 0 for bid in kinds["bid"])
        assert hot / len(kinds["bid"]) == pytest.approx(0.5, abs=0.02)

    def test_an_auction_ends_after_it_began(self, kinds: dict[str, list[dict]]) -> None:
        assert all(one["expires"] - one["dateTime"] > 0 for one in kinds["auction"])

    def test_the_same_numbers_are_the_same_events(self) -> None:
        every, some = nexmark.events(np.arange(EVENTS), EVENTS), np.array([7, 20_007, 24_999])
        for name, column in vars(nexmark.events(some, EVENTS)).items():
            assert (column == getattr(every, name)[some]).all()


def results(query: str, site: list[list[dict]]) -> list[dict]:
    """A query's results as naive loops find them in what was sent."""
    every = [event for own in site for event in own]
    open_at = START_MS + WINDOWS * WINDOW_MS  # windows that begin then are never closed
    bids = [event["bid"] for event in every if "bid" in event]
    closed = [bid for bid in bids if bid["dateTime"] < open_at]
    if query == "nexmark-q1":
        return [bid | {"price": round(bid["price"] * 0.908, 3)} for bid in bids]
    if query == "nexmark-q2":
        return [bid for bid in bids if bid["auction"] % 123 == 0]
    if query == "nexmark-q5":
        counts: dict[int, Counter[int]] = {}
        for bid in closed:
            newest = bid["dateTime"] // 2000 * 2000
            for start in range(newest - 8000, newest + 1, 2000):
                counts.setdefault(start, Counter())[bid["auction"]] += 1
        return [
            {"auction": auction, "start": start, "num": num}
            for start, of_window in counts.items()
            for auction, num in of_window.items()
            if num == max(of_window.values())
        ]
    if query == "nexmark-q8":
        sales = {
            (one["seller"], one["dateTime"] // WINDOW_MS)
            for one in (event["auction"] for event in every if "auction" in event)
        }
        return [
            one | {"start": one["dateTime"] // WINDOW_MS * WINDOW_MS}
            for one in (event["person"] for event in every if "person" in event)
            if (one["id"], one["dateTime"] // WINDOW_MS) in sales
        ]
    windows = Counter((bid["bidder"], bid["dateTime"] // WINDOW_MS * WINDOW_MS) for bid in closed)
    return [
        {"bidder": bidder, "start": start, "num": num} for (bidder, start), num in windows.items()
    ]


def columns(*events: tuple[int, int, int, int]) -> Events:
    """Of kind, one, other and second, each."""
    kind, one, other, second = np.array(events).T
    return Events(kind, one, other, START_MS + 1000 * second, np.arange(len(events)))


class TestRecount:
    @pytest.mark.parametrize(
        "query", [name for name in WORKLOADS if WORKLOADS[name].stream == nexmark.STREAM]
    )
    def test_it_is_what_naive_loops_find_in_what_was_sent(
        self, query: str, site: list[list[dict]]
    ) -> None:
        workload = WORKLOADS[query]
        found = np.array([workload.row(result) for result in results(query, site)])
        assert len(found)
        assert progress.wrong(found, workload.expected(EVENTS)) == []

    def test_hot_items_by_hand(self) -> None:
        bids = columns((BID, 5, 1, 9), (BID, 5, 1, 11), (BID, 6, 1, 11), (AUCTION, 6, 1, 11))
        found = recount.q5(bids).tolist()
        starts = [(start - START_MS) // 1000 for _, start, _ in found]
        assert starts == [0, 2, 2 + 2, 6, 8, 10, 10]  # both have as many in the last
        assert [row[0] for row in found] == [5, 5, 5, 5, 5, 5, 6]
        assert [row[2] for row in found] == [1, 2, 2, 2, 2, 1, 1]

    def test_new_sellers_by_hand(self) -> None:
        events = columns(
            (PERSON, 1, 1, 3), (PERSON, 2, 2, 9), (PERSON, 3, 3, 12), (AUCTION, 7, 1, 4),
            (AUCTION, 8, 1, 5), (AUCTION, 9, 2, 10), (AUCTION, 10, 3, 11), (BID, 7, 2, 9),
        )  # fmt: skip
        assert recount.q8(events)[:, :2].tolist() == [[1, START_MS], [3, START_MS + WINDOW_MS]]

    def test_bids_of_a_bidder_by_hand(self) -> None:
        bids = columns((BID, 5, 1, 9), (BID, 6, 1, 0), (BID, 6, 1, 10), (BID, 5, 2, 10))
        assert recount.q12(bids).tolist() == [
            [1, START_MS, 2],
            [1, START_MS + WINDOW_MS, 1],
            [2, START_MS + WINDOW_MS, 1],
        ]

    @given(st.integers(1, 10**9))
    def test_euros_are_exact_to_a_thousandth(self, thousandths: int) -> None:
        assert recount.milli(float(f"{thousandths // 1000}.{thousandths % 1000:03}")) == thousandths
        assert recount.milli(float(f"{thousandths // 1000}.{thousandths % 1000:03}4")) == -1


def rows(*values: tuple[int, ...]) -> np.ndarray:
    return np.array(values, np.int64).reshape(len(values), -1)


class TestProgress:
    def test_a_key_counts_with_its_newest_value(self) -> None:
        found = rows((1, 0, 3), (1, 0, 5), (2, 0, 1))
        assert progress.gains(found, upserts=True).tolist() == [3, 2, 1]
        assert progress.newest(found).tolist() == [[1, 0, 5], [2, 0, 1]]
        assert progress.gains(found, upserts=False).tolist() == [1, 1, 1]

    def test_a_look_has_seen_what_was_committed_then_and_no_marks_of_transactions(self) -> None:
        seen = Progress()
        for moment, end in ((0.0, 0), (1.0, 3), (2.0, 3), (3.0, 4), (4.0, 7)):
            seen.look(moment, end)
        seen.read([0, 1], [(1, 1), (2, 1)])
        seen.read([4, 5], [(3, 1), (4, 1)])
        assert seen.seen(upserts=False) == [(0.0, 0), (1.0, 2), (4.0, 4)]

    def test_the_first_quarter_is_left_out(self) -> None:
        seen = [(0.0, 0), (10.0, 20), (12.0, 30), (14.0, 100)]
        assert progress.steady(seen, 100) == (12.0, 14.0, 0.7)

    def test_what_was_seen_at_once_is_measured_from_the_start(self) -> None:
        assert progress.steady([(0.0, 0), (9.0, 100)], 100) == (0.0, 9.0, 1.0)

    def test_nothing_seen_is_nothing_done(self) -> None:
        assert progress.steady([(5.0, 0)], 100) == (5.0, 5.0, 0.0)

    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
    @settings(max_examples=50)
    def test_every_difference_is_found(self, expected: list[tuple[int, int]]) -> None:
        right = rows(*expected)
        assert progress.wrong(np.random.default_rng(1).permutation(right), right) == []
        assert progress.wrong(right[1:], right) == [(expected[0], -1)]
        assert progress.wrong(np.concatenate([right, right[:1]]), right) == [(expected[0], 1)]
        assert progress.wrong(rows(*expected[1:], (9, 9)), right) == [
            (expected[0], -1),
            ((9, 9), 1),
        ]
        assert sum(many for _, many in progress.wrong(right[:0], right)) == -len(expected)


def test_every_engine_says_what_it_is_and_all_share_what_must_be_equal() -> None:
    config = yaml.safe_load((ENGINES / "engines.yaml").read_text())
    for engine in config["engines"].values():
        assert engine["about"]
        assert not any("commit.interval" in key for key in engine.get("settings", {}))


def test_every_workload_is_configured_and_has_its_statements() -> None:
    config = yaml.safe_load((ENGINES / "engines.yaml").read_text())
    assert set(config["workloads"]) == set(WORKLOADS)
    for name, workload in config["workloads"].items():
        assert workload["about"]
        assert set(workload["engines"]) <= set(config["engines"])
        assert (ENGINES / "sql" / f"{WORKLOADS[name].program}.sql").exists()


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("jars.py", r'KAFKA_STREAMS = "(.*)"'),
        ("jars.py", r'FLINK_CONNECTOR = "(.*)"'),
        ("jars.py", r'REDIS_CLIENT = "(.*)"'),
        ("jars.py", r'REDIS_POOL = "(.*)"'),
    ],
)
def test_jars_are_locked_as_they_are_named(file: str, pattern: str) -> None:
    found = re.search(pattern, (ENGINES / file).read_text())
    assert found
    assert found[1] in (ENGINES / "jars.lock").read_text()
