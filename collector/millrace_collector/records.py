"""Is a record what its stream declares? The jobs ask the same of it (spark-jobs, transforms.parse):
what is acknowledged here is an event there, and no dead letter.

A record is read once, by a decoder that is made of the declaration; it is neither changed nor
written anew.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import msgspec

from millrace_collector.refusals import BadRecord
from millrace_collector.settings import FieldRule, StreamRule

# As the jobs read it: seconds, or milliseconds, and a zone.
TIME = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d|[+-]18:00)",
    re.ASCII,
)


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
        self._quoted = [_Quoted(name) for name, rule in required.items() if not _is_number(rule)]
        self._times = [
            _Time(name, attributes[name], rule)
            for name, rule in required.items()
            if rule.type == "time"
        ]

    def keyed(self, records: Iterator[bytes], now: float) -> list[tuple[bytes, bytes]]:
        """Each record with its key. ``now`` is seconds since 1970.

        Raises BadRecord for the first one that is no event.
        """
        return [
            (self._key_of(value, number, now), value) for number, value in enumerate(records, 1)
        ]

    def _key_of(self, value: bytes, number: int, now: float) -> bytes:
        bad = partial(BadRecord, record=number)
        if len(value) > self._record_bytes:
            raise bad(f"It is larger than {self._record_bytes} bytes.")
        try:
            value.decode()  # what is skipped is not looked at by the decoder
            record = self._decode(value)
        except UnicodeDecodeError:
            raise bad("It is not UTF-8.") from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad(f"{error}.") from None
        for quoted in self._quoted:
            if not quoted.stands_in(value):
                raise bad(f"The name {quoted.name} is not written plainly.")
        for time in self._times:
            if problem := time.problem(getattr(record, time.attribute), now):
                raise bad(problem)
        return str(getattr(record, self._key)).encode()


def _is_number(rule: FieldRule) -> bool:
    return rule.type in ("integer", "long")


def _type(rule: FieldRule) -> Any:
    if _is_number(rule):
        return Annotated[int, msgspec.Meta(ge=rule.minimum, le=rule.maximum)]
    return str


class _Quoted:
    """The jobs look for a field's name as it is usually written, without escapes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._compact = f'"{name}":"'.encode()
        self._spaced = re.compile(rf'"{name}"\s*:\s*"'.encode())

    def stands_in(self, value: bytes) -> bool:
        return self._compact in value or self._spaced.search(value) is not None


class _Time:
    def __init__(self, name: str, attribute: str, rule: FieldRule) -> None:
        assert rule.earliest  # the plan has both for a time
        assert rule.ahead_seconds is not None
        self.attribute = attribute
        self._name = name
        self._earliest = datetime.fromisoformat(rule.earliest).astimezone(UTC).timestamp()
        self._ahead_seconds = rule.ahead_seconds

    def problem(self, text: str, now: float) -> str | None:
        if not TIME.fullmatch(text):
            return f"{self._name} is not a time such as 2026-05-17T10:05:03.000Z, with its zone."
        try:
            moment = datetime.fromisoformat(text).timestamp()
        except ValueError as error:
            return f"{self._name}: {error}."
        if self._earliest <= moment <= now + self._ahead_seconds:
            return None
        return f"{self._name} is out of range."
