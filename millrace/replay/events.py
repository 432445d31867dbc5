"""Log lines as messages for the ``events`` topic. Pure."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b

from millrace.replay.progress import HOUR
from millrace.replay.source import Line
from millrace.weblog import ABSENT, Request

ORIGINAL_SIZE = "original-size"

_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Limits:
    """What the jobs accept, in seconds since 1970, seconds and bytes."""

    earliest: int
    ahead: int
    line_bytes: int


@dataclass(slots=True)
class Message:
    """``time`` is the event's, None when the jobs won't take the event (it must not set a pace)."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    time: int | None
    malformed: bool


class Encoder:
    """Turns lines of one source into messages, the same ones whenever it is asked again."""

    def __init__(
        self,
        source_id: str,
        shift_hours: int,
        limits: Limits,
        read: Callable[[bytes], Request],
    ) -> None:
        self._source_id = source_id
        self._shift = shift_hours * HOUR
        self._limits = limits
        self._read = read

    def __call__(self, line: Line) -> Message:
        event_id = _digest(f"{self._source_id}:{line.number}")
        try:
            request = self._read(line.data)
            if "\0" in request.request:
                raise ValueError("the jobs take no URL with the character NUL")
            when = request.time + self._shift
            visitor_id = _visitor(request.address)
            value = _to_json(_event(event_id, _iso(when), visitor_id, request)).encode()
        except (ValueError, OverflowError):
            # Malformed, shifted out of the calendar, or with half a character in JSON's escapes, or
            # with NUL.
            return self._as_it_is(line, event_id)
        return Message(visitor_id.encode(), value, [], self._plausible(when), malformed=False)

    def _as_it_is(self, line: Line, event_id: str) -> Message:
        """The archive job is the one judge of bad input: it gets the bytes, not an opinion."""
        headers = [(ORIGINAL_SIZE, str(line.size).encode())] if line.size > len(line.data) else []
        return Message(event_id.encode(), line.data, headers, None, malformed=True)

    def _plausible(self, when: int) -> int | None:
        return when if self._limits.earliest <= when <= time.time() + self._limits.ahead else None


def _event(event_id: str, event_time: str, visitor_id: str, request: Request) -> dict[str, object]:
    return {
        "event_id": event_id,
        "event_time": event_time,
        "visitor_id": visitor_id,
        "session_hint": None,
        "method": request.method,
        "url": request.url,
        "referrer": _present(request.referrer),
        "status": request.status,
        "bytes": request.bytes or 0,
        "user_agent": _present(request.user_agent),
        "kind": "page_view",
        "campaign": None,
    }


def _present(text: str) -> str | None:
    return None if text in ("", ABSENT) else text


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=65536)
def _visitor(address: str) -> str:
    """A visitor is a client address; the address itself doesn't enter the pipeline."""
    return _digest(address)


@lru_cache(maxsize=4096)
def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
