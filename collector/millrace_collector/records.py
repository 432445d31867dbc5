"""Is a record what its stream declares? The jobs ask the same of it (spark-jobs, transforms.parse):
what is acknowledged here is an event there, and no dead letter.

A record is read once, by a decoder that is made of the declaration; where something in it is
unusual, it is looked at closer. It is neither changed nor written anew.
"""

import re
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from millrace_collector.refusals import BadRecord
from millrace_collector.settings import FieldRule, StreamRule
from millrace_shared.record_rules import LONG_BYTES, MOST_DIGITS, MOST_NESTED, TIME

_TIME = re.compile(TIME)
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_LONG_NUMBER = re.compile(rb"[-+.0-9eE]{%d,}" % (MOST_DIGITS + 1))
_BRACKET = re.compile(rb"[][{}]")


class Checker:
    """Checks the records of one stream."""

    def __init__(self, stream: StreamRule) -> None:
        self._record_bytes = stream.record_bytes
        required = {name: rule for name, rule in stream.fields.items() if rule.required}
        # Fields are attributes of our own choice: a field may be called like a Python keyword.
        attributes = {name: f"field_{number}" for number, name in enumerate(required)}
        self._key = attributes[stream.key]
        self._decode = msgspec.json.Decoder(
            msgspec.defstruct(
                "Record",
                [(attributes[name], _type(rule)) for name, rule in required.items()],
                rename={attribute: name for name, attribute in attributes.items()},
                gc=False,
            )
        ).decode
        self._texts = [
            _Text(name, attributes[name]) for name, rule in required.items() if not _is_number(rule)
        ]
        self._times = [
            _Time(name, attributes[name], rule)
            for name, rule in required.items()
            if rule.type == "time"
        ]

    def key_of(self, value: bytes, now: datetime) -> bytes:
        """The key of a record that is an event. Raises BadRecord, which says why it is none."""
        if len(value) > self._record_bytes:
            raise BadRecord(f"it is larger than {self._record_bytes:,} bytes")
        try:
            value.decode()  # the decoder doesn't look into texts that it skips
            record = self._decode(value)
        except UnicodeDecodeError:
            raise BadRecord("it is not UTF-8") from None
        except RecursionError:
            raise BadRecord(TOO_DEEP) from None
        except msgspec.DecodeError as error:
            raise BadRecord(str(error)) from None
        if len(value) > LONG_BYTES:
            _check_bounds(value)
        if b"\\u" in value:
            for text in self._texts:
                text.check(getattr(record, text.attribute), value)
        for time in self._times:
            time.check(getattr(record, time.attribute), now)
        return str(getattr(record, self._key)).encode()


TOO_DEEP = f"it is nested more than {MOST_NESTED} levels deep"


def _check_bounds(value: bytes) -> None:
    """How deep valid JSON is, and how long its numbers. Raises BadRecord."""
    bare = _TEXT.sub(b"", value)
    for number in _LONG_NUMBER.findall(bare):
        if sum(map(number.count, b"0123456789")) > MOST_DIGITS:
            raise BadRecord(f"a number in it has more than {MOST_DIGITS:,} digits")
    if bare.count(b"[") + bare.count(b"{") <= MOST_NESTED:
        return
    depth = 0
    for bracket in _BRACKET.findall(bare):
        depth += 1 if bracket in b"[{" else -1
        if depth > MOST_NESTED:
            raise BadRecord(TOO_DEEP)


def _is_number(rule: FieldRule) -> bool:
    return rule.type in ("integer", "long")


def _type(rule: FieldRule) -> Any:
    if _is_number(rule):
        return Annotated[int, msgspec.Meta(ge=rule.minimum, le=rule.maximum)]
    return Annotated[str, msgspec.Meta(min_length=1)]


def moment(text: str) -> datetime:
    """The time that a text is, to the microsecond; what it says beyond that is cut off.

    Raises ValueError.
    """
    if not _TIME.fullmatch(text):
        raise ValueError("no time such as 2026-05-17T10:05:03.000Z, with its zone")
    return datetime.fromisoformat(text.upper())


class _Text:
    """What characters by their numbers may hide. Halves of pairs the decoder itself refuses."""

    def __init__(self, name: str, attribute: str) -> None:
        self.attribute = attribute
        self._name = name
        self._plain = re.compile(rf'"{name}"\s*:\s*"'.encode())

    def check(self, text: str, record: bytes) -> None:
        if "\0" in text:
            raise BadRecord(f"{self._name} has the character NUL")
        if not self._plain.search(record):  # the jobs look for it so
            raise BadRecord(f"the name {self._name} is not written plainly")


class _Time:
    def __init__(self, name: str, attribute: str, rule: FieldRule) -> None:
        assert rule.earliest  # the plan has both for a time
        assert rule.ahead_seconds is not None
        self.attribute = attribute
        self._name = name
        self._earliest = datetime.fromisoformat(rule.earliest)
        self._ahead = timedelta(seconds=rule.ahead_seconds)

    def check(self, text: str, now: datetime) -> None:
        try:
            found = moment(text)
        except ValueError as error:
            raise BadRecord(f"{self._name}: {error}") from None
        if not self._earliest <= found <= now + self._ahead:
            raise BadRecord(f"{self._name} is out of range")
