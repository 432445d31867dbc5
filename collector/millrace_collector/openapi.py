"""The description of the interface: what FastAPI can't know of it, and all as it is served."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import FastAPI

from millrace_collector import bodies
from millrace_collector.answers import JSON, PROBLEM_JSON, Problem, Records
from millrace_collector.settings import FieldRule, StreamRule
from millrace_shared.record_rules import TIME

Schema = dict[str, Any]

REF = "#/components/schemas/{name}"
WRITTEN = "Kafka has written every record to all its in-sync replicas."
SOME_REFUSED = "Kafka has written some of the records; the others are refused for good."
OTHER_FORMATS = (
    "The same records may come in other formats, which Content-Type names:"
    f" `{bodies.NDJSON}` and `{bodies.TEXT}` have a record on each line,"
    f" `{bodies.CLOUD_EVENT}` is a CloudEvent 1.0 with a record as its `data`, or, in Base64, its"
    f" `data_base64`, and `{bodies.CLOUD_EVENTS}` is an array of them."
)
PROBLEMS = {
    400: "The body isn't what its headers say, or there is no such parameter. Correct it.",
    401: "The key is missing, unknown or expired. Ask the operator for one.",
    403: "The key may not write this stream. Ask the operator for one that may.",
    404: "There is no such stream; the answer says which there are.",
    408: "The body didn't come in time. Send all again.",
    413: "This is more than is ever taken at once. Send fewer records.",
    415: "The format or the encoding is none of those that are taken.",
    429: "The key has used up what it may have now. Send all again after `Retry-After` seconds.",
}
# Whose records were looked at.
PROBLEMS_OF_RECORDS = {
    422: "Every record is refused for good: none is what its stream declares.",
    500: "Kafka won't write some of the records before an operator changes something.",
    503: "Kafka didn't acknowledge some of the records, or there is no room for them. After"
    " `Retry-After` seconds send again those unknown or unwritten; all, where none are listed.",
}


def document(app: FastAPI, streams: Mapping[str, StreamRule]) -> bytes:
    schema = app.openapi()
    _, answers = msgspec.json.schema_components([Records, Problem], ref_template=REF)
    records = {_name(stream): _record(rule) for stream, rule in streams.items()}
    schema.setdefault("components", {}).setdefault("schemas", {}).update(answers | records)
    return json.dumps(schema).encode()


def responses() -> dict[int | str, Schema]:
    problem, records = _ref("Problem"), _ref("Records")
    both = {"allOf": [problem, records]}
    return {
        200: _response(WRITTEN, JSON, records),
        207: _response(SOME_REFUSED, JSON, records),
        **{status: _response(text, PROBLEM_JSON, problem) for status, text in PROBLEMS.items()},
        **{
            status: _response(text, PROBLEM_JSON, both)
            for status, text in PROBLEMS_OF_RECORDS.items()
        },
    }


def request(stream: str, prefer: str) -> Schema:
    """What is sent to a stream, in words that generators of clients know: they make programs that
    don't run of several formats that have arrays, and none of a header that is a list."""
    record = _ref(_name(stream))
    return {
        "parameters": [
            {
                "name": "Prefer",
                "in": "header",
                "description": f"`{prefer}`: tell each record's place.",
                "schema": {"type": "string"},
            }
        ],
        "requestBody": {
            "required": True,
            "description": OTHER_FORMATS,
            "content": {JSON: {"schema": {"oneOf": [record, {"type": "array", "items": record}]}}},
        },
    }


def _name(stream: str) -> str:
    return f"{stream}_record"


def _ref(name: str) -> Schema:
    return {"$ref": REF.format(name=name)}


def _response(text: str, media_type: str, schema: Schema) -> Schema:
    return {"description": text, "content": {media_type: {"schema": schema}}}


def _record(stream: StreamRule) -> Schema:
    return {
        "type": "object",
        "properties": {name: _field(rule) for name, rule in stream.fields.items()},
        "required": [name for name, rule in stream.fields.items() if rule.required],
    }


def _field(rule: FieldRule) -> Schema:
    if rule.type == "time":
        return {"type": "string", "format": "date-time", "pattern": f"^{TIME}$"}
    if rule.type == "text":
        return {"type": "string", "minLength": 1} if rule.required else {"type": ["string", "null"]}
    bits = {"integer": "int32", "long": "int64"}
    return {
        "type": "integer",
        "format": bits[rule.type],
        "minimum": rule.minimum,
        "maximum": rule.maximum,
    }
