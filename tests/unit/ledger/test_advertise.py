"""Advertisements: their truth is what plain counting of the sent records gives."""

import json
from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.common.errors import OperatorError
from millrace.config.streams import load_streams
from millrace.ledger.advertise import send
from millrace.ledger.advertisements import CLICKS, IMPRESSIONS, Truth, advertisements

STARTED_MS = 1_700_000_000_000
TOPICS = {IMPRESSIONS: "shown", CLICKS: "clicked"}


class Producer:
    """Acknowledges all but so many of the first."""

    def __init__(self, lost: int = 0) -> None:
        self.sent: list[tuple[str, bytes, dict[str, Any]]] = []
        self._lost = lost

    def produce(self, topic: str, value: bytes, key: bytes, on_delivery: Any) -> None:
        self.sent.append((topic, key, json.loads(value)))
        on_delivery("timed out" if len(self.sent) <= self._lost else None, None)

    def poll(self, _: float) -> None:
        pass

    def __len__(self) -> int:
        return 0


def sent(seed: int, rate: float, seconds: float) -> tuple[Producer, Truth]:
    producer, truth = Producer(), Truth()
    records = advertisements(seed, rate, seconds)
    send(producer, TOPICS, "run", STARTED_MS, records, truth, lambda: False)
    return producer, truth


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.floats(1, 200), st.floats(1, 120))
def test_the_truth_is_what_the_records_say(seed: int, rate: float, seconds: float) -> None:
    producer, truth = sent(seed, rate, seconds)
    times = [datetime.fromisoformat(value["event_time"]) for _, _, value in producer.sent]
    assert times == sorted(times)
    shown = {v["impression_id"]: v for topic, _, v in producer.sent if topic == "shown"}
    clicked = [value for topic, _, value in producer.sent if topic == "clicked"]
    assert len({click["click_id"] for click in clicked}) == len(clicked)
    counted: dict[str, Counter[str]] = {name: Counter() for name in truth.campaigns}
    for impression in shown.values():
        counted[impression["campaign"]]["impressions"] += 1
    for click in clicked:
        figures = counted[click["campaign"]]
        figures["clicks"] += 1
        impression = shown.get(click["impression_id"])
        if impression is None or impression["campaign"] != click["campaign"]:
            figures["unmatched"] += 1
            continue
        took = datetime.fromisoformat(click["event_time"]) - datetime.fromisoformat(
            impression["event_time"]
        )
        figures["matched"] += 1
        figures["milliseconds_to_click"] += round(1000 * took.total_seconds())
    assert {name: +Counter(figures) for name, figures in truth.as_json().items()} == counted


def test_clicks_of_all_kinds_come() -> None:
    figures = sent(1, 100, 120)[1].as_json().values()
    assert all(one["matched"] > 0 and one["unmatched"] > 0 for one in figures)


def test_records_are_events_of_their_streams() -> None:
    producer, _ = sent(1, 100, 60)
    streams = load_streams()
    for name, topic in TOPICS.items():
        required = {field for field, rule in streams[name].fields.items() if rule.required}
        for place, key, value in producer.sent:
            if place == topic:
                assert value.keys() == required
                assert key.decode() == value[streams[name].key]


def test_what_is_not_acknowledged_is_told() -> None:
    producer, truth = Producer(lost=2), Truth()
    with pytest.raises(OperatorError, match="2 impressions or clicks were not acknowledged: timed"):
        send(producer, TOPICS, "run", STARTED_MS, advertisements(1, 10, 1), truth, lambda: False)
    assert sum(one["impressions"] for one in truth.as_json().values()) == 8


def test_a_signal_ends_it() -> None:
    producer = Producer()
    records = advertisements(1, 10, 10)
    send(producer, TOPICS, "run", STARTED_MS, records, Truth(), lambda: len(producer.sent) == 5)
    assert len(producer.sent) == 5
