"""Streams: what a declaration must say, and what it is refused for."""

from typing import Any

import pytest
from pydantic import ValidationError

from millrace.streams import Stream, load_streams, plan_stream, problems

TIME = {
    "type": "time",
    "earliest": "2000-01-01T00:00:00Z",
    "ahead_seconds": 60,
    "why": "because it is a test",
    "source": "a test",
}
LONG = {
    "type": "long",
    "minimum": 0,
    "maximum": 2**34,
    "why": "because it is a test",
    "source": "a test",
}


def stream(**fields: dict[str, Any]) -> Stream:
    return Stream(
        summary="A test.",
        topic="events",
        format="json",
        key="visitor",
        event_time="at",
        record_bytes={"value": 100, "why": "because it is a test", "source": "a test"},
        fields={"visitor": {"type": "text"}, "at": TIME} | fields,
    )


def test_the_streams_that_ship_are_planned() -> None:
    planned = plan_stream(load_streams()["events"], "web", "small")
    assert planned.topic == "web"
    assert planned.earliest_seconds == 946684800  # 2000-01-01
    assert planned.ahead_seconds == 3600


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (LONG | {"maximum": None}, "minimum and maximum"),
        ({"type": "text", "maximum": 5}, "minimum and maximum"),
        (TIME | {"ahead_seconds": None}, "earliest and ahead_seconds"),
        (TIME | {"earliest": "2000-01-01T00:00:00"}, "zone"),
        (LONG | {"why": None}, "why and source"),
        (LONG | {"minimum": 2**35}, "above maximum"),
        (LONG | {"required": False}, "only text"),
    ],
)
def test_a_field_without_its_range_is_refused(field: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        stream(field=field)


@pytest.mark.parametrize(("role", "name"), [("key", "nobody"), ("event_time", "visitor")])
def test_a_role_needs_its_field(role: str, name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        Stream.model_validate(stream().model_dump() | {role: name})


def test_sums_that_could_overflow_are_refused() -> None:
    streams = {"events": stream(size=LONG)}
    assert list(problems(streams, {"events"}, 100_000)) == []
    [problem] = problems(streams, {"events"}, 200_000)
    assert "fields.size" in problem
    assert "overflow" in problem


@pytest.mark.parametrize("name", ["nobody", "at", "referrer"])
def test_an_event_is_named_by_text_that_it_always_has(name: str) -> None:
    declared = stream(referrer={"type": "text", "required": False}).model_dump()
    assert Stream.model_validate(declared | {"deduplicate_by": "visitor"})
    with pytest.raises(ValidationError, match=f"deduplicate_by: {name} is no text"):
        Stream.model_validate(declared | {"deduplicate_by": name})


def test_a_plan_mentions_it_only_where_it_is_declared() -> None:
    declared = stream().model_copy(update={"deduplicate_by": "visitor"})
    assert plan_stream(declared, "web", "small").model_dump()["deduplicate_by"] == "visitor"
    assert "deduplicate_by" not in plan_stream(stream(), "web", "small").model_dump()


def test_a_stream_whose_records_all_count_keeps_them_all() -> None:
    streams = {"events": stream().model_copy(update={"deduplicate_by": "visitor"})}
    assert list(problems(streams, {"events"}, None, counted=["clicks"])) == []
    [problem] = problems(streams, {"events"}, None, counted=["events"])
    assert "events.yaml: deduplicate_by: the job traffic counts every record" in problem


def test_a_stream_needs_its_topic() -> None:
    [problem] = problems({"events": stream()}, {"other"}, None)
    assert "topic events" in problem
