"""From a request's body to its records, a part at a time; they stay the bytes that they came as."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from millrace_collector import cloud_events
from millrace_collector.cloud_events import Name, Unwrap
from millrace_collector.refusals import BadBody, OtherFormat, TooLarge

JSON = "application/json"
NDJSON = "application/x-ndjson"
TEXT = "text/plain"  # a page's beacon
LINES = {NDJSON, "application/ndjson", "application/jsonl", TEXT}
CLOUD_EVENT = "application/cloudevents+json"
CLOUD_EVENTS = "application/cloudevents-batch+json"
FORMATS = (JSON, NDJSON, CLOUD_EVENT, CLOUD_EVENTS, TEXT)
PART_BYTES = 131_072
# Of an array's part at most, for each of them may cost 64 bytes: a comma for every two bytes.
PART_ELEMENTS = 65_536

_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_BRACKET = re.compile(rb"[ \t\n\r]*\[")
_COMMA = re.compile(rb"[ \t\n\r]*,")
_BETWEEN = re.compile(rb"\}[ \t\n\r]*,[ \t\n\r]*\{")
_BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]')  # and texts, in which they are none
_LEVELS = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_WHERE = re.compile(r" \(byte \d+\)")  # of the part, which says nothing to a sender

# Takes a part of a body apart, from a position on: what is in it, and where the next part begins.
Split = Callable[[bytes, int], tuple[list[bytes], int]]


@dataclass(frozen=True)
class Format:
    """How a body has its records. ``unwrap`` gives the record that an element of it has in it."""

    split: Split
    unwrap: Unwrap


def format_of(headers: Mapping[str, str], name: Name) -> Format:
    """How a body with these headers has its records. Raises OtherFormat.

    Args:
        headers: by their names in small letters.
        name: gives a record the id of its CloudEvent.
    """
    content_type = headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == CLOUD_EVENT:
        return Format(whole, cloud_events.structured(name))
    if kind == CLOUD_EVENTS:
        return Format(array, cloud_events.structured(name))
    if cloud_events.is_binary(headers) and cloud_events.is_json(kind):
        return Format(whole, cloud_events.binary(headers, name))
    if cloud_events.is_binary(headers):
        raise OtherFormat(f"A CloudEvent's Content-Type is {kind or 'missing'}; JSON is taken.")
    if kind == JSON:
        return Format(array_or_whole, _itself)
    if kind in LINES:
        return Format(lines, _itself)
    raise OtherFormat(f"Content-Type is {kind or 'missing'}; one of {', '.join(FORMATS)} is taken.")


def _itself(record: bytes) -> bytes:
    return record


def whole(body: bytes, at: int) -> tuple[list[bytes], int]:
    return [body], len(body)


def lines(body: bytes, at: int) -> tuple[list[bytes], int]:
    found = body.find(b"\n", at + PART_BYTES)
    end = len(body) if found < 0 else found + 1
    part = body[at:end].split(b"\n")
    return [line for line in part if line and not line.isspace()], end


def array_or_whole(body: bytes, at: int) -> tuple[list[bytes], int]:
    return array(body, at) if _BRACKET.match(body) else whole(body, at)


def array(body: bytes, at: int) -> tuple[list[bytes], int]:
    """A part ends behind an object that another one follows. That it is an element, and not within
    one, shows when what comes before it is an array by itself.

    Raises BadBody, TooLarge.
    """
    start = at or _behind_bracket(body)
    for end_of in (_likely_end, _exact_end):
        if end := end_of(body, start):
            with suppress(BadBody):
                return _elements_of(body[start:end] + b"]"), _behind_comma(body, end)
    found = _elements_of(body[start:])
    if at and not found:
        raise BadBody("The body is no JSON array: it ends with a comma.")
    return found, len(body)


def _behind_comma(body: bytes, end: int) -> int:
    """Where the next part begins. Raises BadBody where there is none."""
    comma = _COMMA.match(body, end)
    if not comma or comma.end() == len(body):
        raise BadBody("The body is no JSON array: it ends with a comma.")
    return comma.end()


def _likely_end(body: bytes, start: int) -> int:
    """Where a part may end; 0 if nowhere. It costs next to nothing."""
    found = _BETWEEN.search(body, start + PART_BYTES)
    return found.start() + 1 if found else 0


def _exact_end(body: bytes, start: int) -> int:
    """Where a part ends; 0 if it is the last one, or an element is as large as a part."""
    depth, least = 0, start + PART_BYTES
    for token in _BRACKETS.finditer(body, start, start + 2 * PART_BYTES):
        depth += _LEVELS.get(token[0], 0)
        if not depth and token.end() >= least and _COMMA.match(body, token.end()):
            return token.end()
    return 0


def _behind_bracket(body: bytes) -> int:
    bracket = _BRACKET.match(body)
    if not bracket:
        raise BadBody("The body is no JSON array.")
    return bracket.end()


def _elements_of(rest: bytes) -> list[bytes]:
    """Of an array without its opening bracket. Raises BadBody, TooLarge."""
    if rest.count(b",") > PART_ELEMENTS:
        raise TooLarge(
            f"The body's array has more than {PART_ELEMENTS:,} commas in {len(rest):,} bytes; send"
            f" fewer records, or each on a line of its own, as {NDJSON}."
        )
    try:
        return [*map(bytes, _elements(b"[" + rest))]
    except RecursionError:
        raise BadBody("The body is nested too deeply.") from None
    except msgspec.DecodeError as error:
        raise BadBody(f"The body is no JSON array: {_WHERE.sub('', str(error))}.") from None
