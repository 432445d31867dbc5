"""The ledger: events by number, schedules, files, and the open loop over a producer of our own."""

import json
from collections import deque
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.cluster.kafka import KafkaError, KafkaException
from millrace.common.errors import OperatorError
from millrace.ledger.events import (
    OUT_OF_ORDER_MS,
    encode,
    events,
    is_late,
    numbers_of,
)
from millrace.ledger.load import Load, Seen
from millrace.ledger.schedule import PROFILES, Schedule
from millrace.ledger.spec import PAGES
from millrace.ledger.store import FAILED, FATE, Ledger, State, Writer, newest
from tests.unit.runs import SPEC


def ledger(tmp_path: Path, fates: list[tuple[int, int, int, int]], sent: int) -> Ledger:
    writer = Writer(tmp_path / "run", SPEC)
    for fate in fates:
        writer.record(*fate)
    writer.close(State(sent, 0.5, finished=True))
    return Ledger.open(writer.path)


class TestEvents:
    numbers = np.arange(20_000)

    @given(st.lists(st.integers(0, 19_999), min_size=1, max_size=50))
    @settings(max_examples=25)
    def test_an_event_is_the_same_in_whatever_company(self, numbers: list[int]) -> None:
        whole = events(SPEC, self.numbers)
        assert events(SPEC, np.array(numbers)).to_pylist() == whole.take(numbers).to_pylist()

    def test_another_seed_is_another_run(self) -> None:
        other = replace(SPEC, seed=8)
        mine, its = events(SPEC, self.numbers), events(other, self.numbers)
        assert mine["event_id"][0] != its["event_id"][0]
        assert mine["url"] != its["url"]

    def test_ids_tell_their_numbers(self) -> None:
        ids = events(SPEC, self.numbers)["event_id"]
        assert (numbers_of(SPEC, ids) == self.numbers).all()
        assert len(ids.unique()) == len(ids)

    def test_times_follow_the_schedule_but_for_the_shares_that_were_asked(self) -> None:
        due = SPEC.started_ms + np.floor(1000 * SPEC.schedule.times(self.numbers))
        times = events(SPEC, self.numbers)["event_time"].cast("int64").to_numpy() // 1000
        behind = due - times
        late = is_late(SPEC, self.numbers)
        assert not late[:5000].any()
        assert late.mean() == pytest.approx(0.01 * 3 / 4, rel=0.3)
        assert (behind[late] >= 1000 * SPEC.lateness).all()
        assert (behind[~late] < OUT_OF_ORDER_MS).all()
        assert (behind[~late] > 0).mean() == pytest.approx(0.05, rel=0.2)

    def test_pages_are_few_and_visitors_are_skewed(self) -> None:
        table = events(SPEC, self.numbers)
        assert len(table["url"].unique()) <= PAGES
        counts = sorted(
            (row["counts"] for row in table["visitor_id"].value_counts().to_pylist()), reverse=True
        )
        assert counts[0] > 50 * counts[len(counts) // 2]

    @pytest.mark.parametrize("pages", [1, 5000])
    def test_pages_are_as_many_as_were_asked(self, pages: int) -> None:
        urls = events(replace(SPEC, pages=pages), np.arange(100_000))["url"].unique()
        assert 0.9 * pages <= len(urls) <= pages

    def test_events_of_a_pool_come_again_with_ids_and_times_of_their_own(self) -> None:
        spec = replace(SPEC, pool=100)
        first, again = events(spec, np.arange(100)), events(spec, np.arange(300, 400))
        new = ["event_id", "event_time"]
        assert first.drop(new) == again.drop(new)
        assert first["event_id"] != again["event_id"]
        assert first["event_time"] != again["event_time"]

    def test_encoded_as_the_jobs_read_it(self) -> None:
        table = events(SPEC, self.numbers[:3])
        for row, (key, value) in zip(table.to_pylist(), encode(table), strict=True):
            event = json.loads(value)
            assert key.decode() == event["visitor_id"]
            assert event["event_time"] == f"{row['event_time']:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
            assert {k: v for k, v in event.items() if k != "event_time"} == {
                k: v for k, v in row.items() if k != "event_time"
            }


@pytest.mark.parametrize("profile", PROFILES)
@given(rate=st.floats(1, 20_000), seconds=st.integers(1, 120))
@settings(max_examples=25)
def test_a_schedule_ends_with_all_of_its_events_due(
    profile: str, rate: float, seconds: int
) -> None:
    schedule = Schedule(profile, rate, seconds)
    times = schedule.times(np.arange(schedule.events))
    assert schedule.due(seconds) == schedule.events
    assert (np.diff(times) >= 0).all()
    assert schedule.due(0) == 0


@pytest.mark.parametrize(("profile", "mean"), [("steady", 1), ("ramp", 0.5), ("burst", 1)])
def test_a_profile_keeps_its_mean(profile: str, mean: float) -> None:
    assert Schedule(profile, 1000, 60).events == pytest.approx(60_000 * mean, abs=1)


@pytest.mark.parametrize(
    "wrong", [{"profile": "wild"}, {"rate": 0}, {"late": 1.5}, {"rate": 1e9, "seconds": 10}]
)
def test_what_no_run_can_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OperatorError):
        replace(SPEC, **wrong)


class TestFiles:
    def test_fates_come_back(self, tmp_path: Path) -> None:
        opened = ledger(tmp_path, [(2, 1, 77, 30), (0, 0, 5, 20), (3, FAILED, -1, 40)], sent=5)
        assert opened.spec == SPEC
        assert opened.acked.tolist() == [True, False, True, False, False]
        assert (opened.partition[2], opened.offset[2], opened.acked_ms[2]) == (1, 77, 30)
        assert (opened.failed, opened.in_doubt, opened.behind_seconds) == (1, 2, 0.5)

    def test_fates_come_back_that_were_recorded_at_once(self, tmp_path: Path) -> None:
        writer = Writer(tmp_path / "run", SPEC)
        writer.record_all(np.array([(1, 0, 5, 20), (3, 1, 7, 30)], FATE))
        writer.close(State(4, 0.0, finished=True))
        opened = Ledger.open(writer.path)
        assert opened.acked.tolist() == [False, True, False, True]
        assert opened.offset[3] == 7

    def test_a_ledger_of_before_pools_is_readable(self, tmp_path: Path) -> None:
        path = ledger(tmp_path, [], sent=0).path / "spec.json"
        fields = {
            k: v
            for k, v in json.loads(path.read_text()).items()
            if k[0] != "p" or k in ("partitions", "profile")
        }
        path.write_text(json.dumps(fields))
        assert Ledger.open(tmp_path / "run").spec == SPEC

    def test_empty_is_readable(self, tmp_path: Path) -> None:
        assert len(ledger(tmp_path, [], sent=0).acked) == 0

    def test_a_crash_in_the_middle_of_a_record_costs_that_record(self, tmp_path: Path) -> None:
        ledger(tmp_path, [(0, 0, 5, 20), (1, 0, 6, 20)], sent=2)
        acks = tmp_path / "run" / "acks.bin"
        acks.write_bytes(acks.read_bytes()[:-3])
        assert acks.stat().st_size == 2 * FATE.itemsize - 3
        assert Ledger.open(tmp_path / "run").acked.tolist() == [True, False]

    def test_a_name_is_taken_once(self, tmp_path: Path) -> None:
        ledger(tmp_path, [], sent=0)
        with pytest.raises(OperatorError, match="already"):
            Writer(tmp_path / "run", SPEC)

    def test_what_is_no_ledger_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(OperatorError, match="no ledger"):
            Ledger.open(tmp_path)

    def test_newest_is_by_start_not_by_name(self, tmp_path: Path) -> None:
        with pytest.raises(OperatorError):
            newest(tmp_path)
        Writer(tmp_path / "b", SPEC).close(State())
        later = replace(SPEC, started_ms=SPEC.started_ms + 1)
        Writer(tmp_path / "a", later).close(State())
        assert newest(tmp_path) == tmp_path / "a"

    def test_gaps_count_the_edges_of_the_span(self, tmp_path: Path) -> None:
        fates = [(0, 0, 0, 1000), (1, 0, 1, 4000), (2, 0, 2, 9000), (3, 1, 0, 5000)]
        opened = ledger(tmp_path, fates, sent=4)
        gaps = opened.produce_gaps(opened.started + 2, opened.started + 8)
        assert gaps == {
            0: pytest.approx(4, abs=1e-3),
            1: pytest.approx(3, abs=1e-3),
            2: pytest.approx(6, abs=1e-3),
        }


class FakeKafka:
    """A producer with a small queue, and the clock it passes the time by."""

    def __init__(self, queue: int, away: tuple[float, float] = (0.0, 0.0)) -> None:
        self.now = SPEC.started_ms / 1000
        self.queue = queue
        self.away = away
        self.waiting: deque = deque()
        self.log: list[bytes] = []
        self.failing: set[int] = set()
        self.ends: list[float] = []  # when a producer does, in seconds from the start

    def connect(self) -> "FakeKafka":
        return self

    def clock(self) -> float:
        return self.now

    def produce(self, topic: str, value: bytes, key: bytes, on_delivery: object) -> None:
        if self.ends and self.now >= SPEC.started_ms / 1000 + self.ends[0]:
            self.ends.pop()
            raise KafkaException(error(KafkaError._FATAL, fatal=True))
        if len(self.waiting) >= self.queue:
            raise BufferError
        self.waiting.append((value, on_delivery))

    def poll(self, seconds: float) -> None:
        self.now += max(seconds, 1e-4)
        elapsed = self.now - SPEC.started_ms / 1000
        if self.away[0] <= elapsed < self.away[1]:
            return
        while self.waiting:
            value, delivered = self.waiting.popleft()
            offset = len(self.log)
            failure = error(KafkaError._MSG_TIMED_OUT) if offset in self.failing else None
            self.log.append(value)
            delivered(failure, SimpleNamespace(partition=lambda: 0, offset=lambda o=offset: o))

    def purge(self) -> None:
        while self.waiting:
            value, delivered = self.waiting.popleft()
            self.log.append(value)  # Kafka had it; its answer was lost
            delivered(error(KafkaError._PURGE_INFLIGHT), None)

    def __len__(self) -> int:
        return len(self.waiting)


def error(code: int, fatal: bool = False) -> SimpleNamespace:
    return SimpleNamespace(code=lambda: code, fatal=lambda: fatal, str=lambda: "broken sequence")


def run(kafka: FakeKafka, tmp_path: Path, stopping=lambda: False) -> tuple[Ledger, Seen]:
    writer = Writer(tmp_path / "run", SPEC)
    load = Load(SPEC, kafka.connect, writer, stopping, lambda seen: None, kafka.clock)
    load.run()
    return Ledger.open(writer.path), load.seen


class TestLoad:
    def test_all_is_sent_once_and_on_time(self, tmp_path: Path) -> None:
        kafka = FakeKafka(queue=100_000)
        opened, seen = run(kafka, tmp_path)
        assert len(kafka.log) == SPEC.schedule.events == opened.acked.sum()
        assert opened.finished
        assert (opened.in_doubt, opened.failed, seen.waiting) == (0, 0, 0)
        assert opened.behind_seconds < 0.1
        assert [json.loads(kafka.log[n])["event_id"] for n in (0, 99)] == opened.events(
            np.array([0, 99])
        )["event_id"].to_pylist()

    def test_a_full_queue_holds_it_up_and_it_says_so_but_drops_nothing(
        self, tmp_path: Path
    ) -> None:
        kafka = FakeKafka(queue=500, away=(2, 7))
        opened, _ = run(kafka, tmp_path)
        assert opened.acked.all()
        assert opened.behind_seconds == pytest.approx(4.5, abs=0.2)

    def test_an_outage_within_the_queue_leaves_the_schedule_alone(self, tmp_path: Path) -> None:
        opened, _ = run(FakeKafka(queue=100_000, away=(2, 7)), tmp_path)
        assert opened.behind_seconds < 0.1
        gaps = opened.produce_gaps(opened.started, opened.started + 20)
        assert gaps[0] == pytest.approx(5, abs=0.2)

    def test_stopped_early_it_closes_the_ledger_over_what_was_sent(self, tmp_path: Path) -> None:
        kafka = FakeKafka(queue=100_000)
        opened, _ = run(kafka, tmp_path, stopping=lambda: kafka.now > SPEC.started_ms / 1000 + 3)
        assert 2900 < len(opened.acked) < 3100
        assert opened.acked.all()
        assert opened.finished

    def test_where_a_producer_ends_another_goes_on_and_what_was_on_its_way_is_in_doubt(
        self, tmp_path: Path
    ) -> None:
        kafka = FakeKafka(queue=100_000, away=(2, 3))
        kafka.ends = [2.5]
        opened, seen = run(kafka, tmp_path)
        assert (seen.producers, seen.ended) == (2, "broken sequence")
        assert len(kafka.log) == SPEC.schedule.events
        assert opened.in_doubt == seen.in_doubt == pytest.approx(500, abs=50)
        assert (opened.failed, seen.waiting) == (0, 0)
        assert opened.finished

    def test_what_failed_is_not_acknowledged(self, tmp_path: Path) -> None:
        kafka = FakeKafka(queue=100_000)
        kafka.failing = {3, 5}
        opened, _ = run(kafka, tmp_path)
        assert opened.failed == 2
        assert not opened.acked[[3, 5]].any()


def test_a_schedule_of_whole_numbers_isnt_short_of_one_event() -> None:
    schedule = Schedule("steady", 2000, 20)
    assert schedule.events == schedule.due(20) == 40_000
