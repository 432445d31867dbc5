"""The fuzzer's records: the same ones for a seed, of all kinds, with events among them."""

import json
from datetime import UTC, datetime
from itertools import islice

import pytest

from millrace.plan import load_plan
from millrace.plan.streams import StreamPlan
from tests.fuzz.records import KINDS, Record, records

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
STREAMS = load_plan("local").streams
ENOUGH = 2_000


def some(stream: StreamPlan, seed: int) -> list[Record]:
    return list(islice(records(stream, seed, lambda: NOON), ENOUGH))


@pytest.mark.parametrize("name", STREAMS)
def test_a_seed_makes_the_same_records_again(name: str) -> None:
    stream = STREAMS[name]
    assert some(stream, 1) == some(stream, 1)
    assert some(stream, 1) != some(stream, 2)


@pytest.mark.parametrize("name", STREAMS)
def test_records_of_all_kinds_are_made_and_events_among_them(name: str) -> None:
    stream = STREAMS[name]
    made = some(stream, 1)
    assert {record.kind for record in made} == {"event", *KINDS}
    for record in made:
        if record.kind == "event":
            assert record.value is not None
            assert json.loads(record.value).keys() == stream.fields.keys()


def test_no_record_is_more_than_a_broker_takes() -> None:
    largest = max(
        len(record.value or b"") for stream in STREAMS.values() for record in some(stream, 3)
    )
    assert largest < 2**20
