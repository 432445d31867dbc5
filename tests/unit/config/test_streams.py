"""Streams: what a declaration must say, and what it is refused for."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from millrace.common.errors import OperatorError
from millrace.config.streams import Stream, load_streams
from millrace.plan.streams import plan_stream, problems

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


def test_each_record_has_a_key() -> None:
    with pytest.raises(ValidationError, match="key: visitor may be left out"):
        stream(visitor={"type": "text", "required": False})


SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "visit",
    "doc": "A visit.",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "visitor", "type": ["string", "null"]},
        {"name": "referrer", "type": ["null", "string"], "default": None},
    ],
}
AVRO = {
    "format": "avro",
    "fields": {
        "visitor": {"type": "text"},
        "at": TIME,
        "referrer": {"type": "text", "required": False},
    },
}


def declared(tmp_path: Path, schema: Any, **changes: Any) -> Stream:
    """As `load_streams` reads it, with this schema beside it."""
    (tmp_path / "streams").mkdir()
    content = stream().model_dump(exclude={"avro_schema"}) | AVRO | changes
    (tmp_path / "streams" / "visits.yaml").write_text(json.dumps(content))
    if schema:
        (tmp_path / "streams" / "visits.avsc").write_text(json.dumps(schema))
    return load_streams(tmp_path)["visits"]


def test_a_plan_has_what_of_a_schema_values_depend_on(tmp_path: Path) -> None:
    planned = plan_stream(declared(tmp_path, SCHEMA), "web", "small")
    fields = [{"name": one["name"], "type": one["type"]} for one in SCHEMA["fields"]]
    assert planned.avro_schema is not None
    assert json.loads(planned.avro_schema) == {"type": "record", "name": "visit", "fields": fields}
    assert "avro_schema" not in plan_stream(stream(), "web", "small").model_dump()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (SCHEMA["fields"][1:], "at is not in the schema"),
        ([*SCHEMA["fields"], {"name": "extra", "type": "int"}], "extra of the schema is no field"),
        ([*SCHEMA["fields"], SCHEMA["fields"][0]], "at stands twice"),
        ([{"name": "at", "type": "long"}, *SCHEMA["fields"][1:]], 'at is "long" in the schema'),
        ([*SCHEMA["fields"][:2], {"name": "referrer", "type": ["null", "int"]}], 'is "string", or'),
        ([{"name": "at", "type": "int", "order": "ignore"}], r"visits\.avsc: fields\.0\.order"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(
    tmp_path: Path, fields: list[dict[str, Any]], reason: str
) -> None:
    with pytest.raises(OperatorError, match=reason):
        declared(tmp_path, SCHEMA | {"fields": fields})


@pytest.mark.parametrize(("format", "schema"), [("avro", None), ("json", SCHEMA)])
def test_avro_and_no_other_format_has_a_schema(tmp_path: Path, format: str, schema: Any) -> None:
    with pytest.raises(OperatorError, match=r"visits\.yaml: .*ends in \.avsc"):
        declared(tmp_path, schema, format=format)


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
