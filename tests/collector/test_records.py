"""What the collector takes is what the jobs take for events: their own cases, both ways. On a real
Spark tests/jobs/test_same_verdict.py compares the two."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_collector.records import Checker, moment
from millrace_collector.refusals import BadRecord

from tests.collector.conftest import collector_settings
from tests.jobs.samples import EVENT, event
from tests.jobs.test_parse import EVENTS, MALFORMED, anything

NOW = datetime(2026, 1, 1, tzinfo=UTC)  # when the samples' broker received them
CHECKER = Checker(collector_settings().streams["events"])
REFUSED = [
    (reason, value) for reason, values in MALFORMED.items() for value in values if value is not None
]


def key_of(value: bytes) -> bytes:
    return CHECKER.key_of(value, NOW)


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_has_its_key(name: str) -> None:
    assert key_of(EVENTS[name]) == EVENT["visitor_id"].encode()


@pytest.mark.parametrize(("reason", "value"), REFUSED)
def test_what_would_be_a_dead_letter_is_refused(reason: str, value: bytes) -> None:
    with pytest.raises(BadRecord) as refused:
        key_of(value)
    field = reason.removeprefix("missing field: ").removeprefix("wrong type: ").split()[0]
    if field in EVENT:
        assert field in str(refused.value)


@given(anything)
def test_whatever_comes_is_taken_or_refused(value: bytes | None) -> None:
    try:
        key_of(value or b"")
    except BadRecord:
        return
    json.loads(value or b"")


@pytest.mark.parametrize(
    "event_time",
    [
        "2015-05-17T10:05:03+19:00",
        "2015-W20-7T10:05:03Z",
        "٢٠١٥-05-17T10:05:03Z",
        "20150517T100503Z",
    ],
)
def test_times_that_only_python_reads_are_refused(event_time: str) -> None:
    with pytest.raises(BadRecord, match="event_time"):
        key_of(event(event_time=event_time))


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)), st.integers(-1080, 1080))
def test_every_time_that_python_prints_is_read(naive: datetime, minutes: int) -> None:
    printed = naive.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert moment(printed.isoformat()) == printed


@given(st.text("0123456789", min_size=1, max_size=9))
def test_what_is_behind_the_microsecond_is_cut_off(decimals: str) -> None:
    read = moment(f"2015-05-17T10:05:03.{decimals}Z")
    assert read.microsecond == int(decimals.ljust(6, "0")[:6])


def test_a_field_may_be_called_like_a_keyword() -> None:
    rule: dict[str, Any] = {"type": "text", "required": True, "minimum": None, "maximum": None}
    rule |= {"earliest": None, "ahead_seconds": None}
    events = collector_settings().streams["events"]
    stream = events.model_copy(
        update={"fields": {"class": type(events.fields["url"])(**rule)}, "key": "class"}
    )
    assert Checker(stream).key_of(b'{"class": "a"}', NOW) == b"a"
