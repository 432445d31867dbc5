"""CloudEvents 1.0 over HTTP: in all three modes an event's data is the record, byte for byte."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import CE_PREFIX, HTTPMessage, from_binary
from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import REQUIRED_ATTRIBUTES, CloudEvent

from millrace_collector.refusals import BadRecord

_FORMAT = JSONFormat()
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_base64 = msgspec.json.Decoder(bytes).decode
Unwrap = Callable[[bytes], bytes]
Name = Callable[[bytes, str], bytes]


def is_binary(headers: Mapping[str, str]) -> bool:
    """Whether these are headers of an event whose data is the body."""
    return any(name.startswith(CE_PREFIX) for name in headers)


def is_json(content_type: str) -> bool:
    return _FORMAT.JSON_CONTENT_TYPE_PATTERN.match(content_type.strip().lower()) is not None


def structured(name: Name) -> Unwrap:
    """From an event as JSON to its record, by the event's id."""

    def unwrap(event: bytes) -> bytes:
        try:
            members = _members(event)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadRecord(f"it is no CloudEvent: {error}") from None
        data = _data(members)
        attributes = {key: value for key, value in members.items() if bytes(value) != b"null"}
        for key, value in attributes.items():
            if bytes(value)[:1] in b"[{":
                raise BadRecord(f"it is no CloudEvent: {key} is an array or an object")
        read = _validated(lambda: _FORMAT.read(_event, msgspec.json.encode(attributes)))
        return name(data, read.get_id())

    return unwrap


def binary(headers: Mapping[str, str], name: Name) -> Unwrap:
    """From an event whose attributes are headers to its record, by the event's id."""

    def unwrap(body: bytes) -> bytes:
        message = HTTPMessage(dict(headers), b"")  # the library would decode a body
        read = _validated(lambda: from_binary(message, _FORMAT, _event))
        return name(body, read.get_id())

    return unwrap


def _data(members: dict[str, msgspec.Raw]) -> bytes:
    """Takes the data out of the members. Raises BadRecord."""
    found = {key: bytes(members.pop(key, b"null")) for key in ("data", "data_base64")}
    match [key for key, value in found.items() if value != b"null"]:
        case ["data"]:
            return found["data"]
        case ["data_base64"]:
            try:
                return _base64(found["data_base64"])
            except msgspec.DecodeError as error:
                raise BadRecord(f"data_base64: {error}") from None
        case ["data", "data_base64"]:
            raise BadRecord("it has both data and data_base64")
        case _:
            raise BadRecord("it is a CloudEvent without data")


def _validated(read: Callable[[], BaseCloudEvent]) -> BaseCloudEvent:
    """What the library reads. Raises BadRecord."""
    try:
        event = read()
    except CloudEventValidationError as error:
        first = next(iter(error.errors.values()))[0]
        raise BadRecord(f"it is no CloudEvent: {first}") from None
    except (TypeError, ValueError) as error:  # a time, mostly
        raise BadRecord(f"it is no CloudEvent: an attribute can't be read: {error}") from None
    kind = event.get_datacontenttype()
    if kind is not None and not is_json(kind):
        raise BadRecord(f"its datacontenttype is {kind}; JSON is taken")
    return event


def _event(attributes: dict[str, Any], data: Any) -> BaseCloudEvent:
    """The library would make up what is missing."""
    if missing := [key for key in REQUIRED_ATTRIBUTES if key not in attributes]:
        raise BadRecord(f"it is no CloudEvent 1.0: {missing[0]} is missing")
    return CloudEvent(attributes, data)


def naming(field: str | None) -> Name:
    """Gives a record an id as this field, unless it has the field. None: no field is for ids."""
    if field is None:
        return lambda record, _: record
    named = msgspec.json.Decoder(
        msgspec.defstruct("Named", [("id", Any, msgspec.UNSET)], rename={"id": field})
    ).decode
    member = msgspec.json.encode(field) + b":"

    def name(record: bytes, identity: str) -> bytes:
        try:
            has_it = cast(Any, named(record)).id is not msgspec.UNSET
        except (msgspec.DecodeError, RecursionError):
            return record  # no object; it is refused for that
        if has_it:
            return record
        begin = record.index(b"{") + 1
        comma = b"" if record[begin:].lstrip().startswith(b"}") else b","
        return record[:begin] + member + msgspec.json.encode(identity) + comma + record[begin:]

    return name
