"""What the collector acknowledges is what the jobs take for events: their own cases, both ways."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from millrace_collector.records import Checker
from millrace_collector.refusals import BadRecord

from tests.collector.conftest import collector_settings
from tests.jobs.samples import EVENT, event
from tests.jobs.test_parse import EVENTS, MALFORMED, anything

NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()  # when the samples' broker received them
CHECKER = Checker(collector_settings().streams["events"])
REFUSED = [
    (reason, value) for reason, values in MALFORMED.items() for value in values if value is not None
]


def keyed(*values: bytes) -> list[tuple[bytes, bytes]]:
    return CHECKER.keyed(iter(values), NOW)


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_keeps_its_bytes_and_has_its_key(name: str) -> None:
    assert keyed(EVENTS[name]) == [(EVENT["visitor_id"].encode(), EVENTS[name])]


@pytest.mark.parametrize(("reason", "value"), REFUSED)
def test_what_would_be_a_dead_letter_is_refused(reason: str, value: bytes) -> None:
    with pytest.raises(BadRecord) as refused:
        keyed(event(), value, event())
    assert refused.value.record == 2
    field = reason.removeprefix("missing field: ").removeprefix("wrong type: ").split()[0]
    if field in EVENT:
        assert field in str(refused.value)


@given(anything)
def test_whatever_comes_is_taken_or_refused(value: bytes | None) -> None:
    try:
        keyed(value or b"")
    except BadRecord:
        return
    json.loads(value or b"")


@pytest.mark.parametrize(
    "event_time",
    ["2015-05-17T10:05:03.1Z", "2015-05-17T10:05:03+19:00", "2015-W20-7T10:05:03Z", "٢٠١٥"],
)
def test_times_that_only_python_reads_are_refused(event_time: str) -> None:
    with pytest.raises(BadRecord, match="event_time"):
        keyed(event(event_time=event_time))


def test_a_field_may_be_called_like_a_keyword() -> None:
    rule: dict[str, Any] = {"type": "text", "required": True, "minimum": None, "maximum": None}
    rule |= {"earliest": None, "ahead_seconds": None}
    events = collector_settings().streams["events"]
    stream = events.model_copy(
        update={"fields": {"class": type(events.fields["url"])(**rule)}, "key": "class"}
    )
    assert Checker(stream).keyed(iter([b'{"class": "a"}']), NOW) == [(b"a", b'{"class": "a"}')]
