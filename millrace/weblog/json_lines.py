"""Logs of JSON objects: what people make of nginx's variables, and what Caddy writes by itself."""

import json
import re
from functools import lru_cache
from typing import Any

from millrace.weblog import times
from millrace.weblog.request import ABSENT, Request, client_address

# The names under which a field is looked for, the most telling first. They are nginx's variables,
# Caddy's keys, and what else people call them; a "-" or capitals in a key make no difference.
NAMES = {
    "address": (
        "client_ip",
        "remote_ip",
        "remote_addr",
        "clientip",
        "client",
        "ip",
        "http_x_forwarded_for",
        "x_forwarded_for",
    ),
    "user": ("remote_user", "user_id", "user"),
    "time": (
        "time_local",
        "time_iso8601",
        "msec",
        "ts",
        "time",
        "timestamp",
        "@timestamp",
        "datetime",
        "date",
    ),
    "request": ("request", "request_line"),
    "method": ("request_method", "method", "verb"),
    "target": ("request_uri", "uri", "url", "path"),
    "protocol": ("server_protocol", "protocol", "proto"),
    "status": ("status", "status_code", "response", "code"),
    "bytes": ("body_bytes_sent", "bytes_sent", "size", "bytes"),
    "referrer": ("http_referer", "http_referrer", "referer", "referrer"),
    "user_agent": ("http_user_agent", "user_agent", "useragent", "agent"),
}
# By name: the kind of field, and how telling the name is (least first).
_MEANINGS = {name: (kind, rank) for kind, names in NAMES.items() for rank, name in enumerate(names)}
_ERROR_LOGGER = "http.log.error"  # Caddy logs a request that fails a second time, by this one

_LOCAL = re.compile(rf"\[?{times.LOCAL}\]?", re.ASCII)
_NUMBER = re.compile(r"\d{1,20}(?:\.\d+)?", re.ASCII)
_STATUS = re.compile(r"\d{1,3}", re.ASCII)
_BYTES = re.compile(r"\d{1,18}", re.ASCII)
# A string, or a value that isn't there.
_IN_NEED = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=:)\s*-?\s*(?=[,}])')
_HEX_ESCAPE = re.compile(r"((?:[^\\]|^)(?:\\\\)*)\\x")


class JsonLines:
    """Each line is an object; its fields are found by their names, at any depth."""

    name = "JSON"

    def parse(self, text: str) -> Request | None:
        """The request, or None if the line is no object that tells of one. Raises ValueError for
        a date that no calendar has."""
        if not text.startswith("{"):
            return None
        try:
            record = _loads(text)
        except (ValueError, RecursionError):
            return None
        if str(record.get("logger", "")).startswith(_ERROR_LOGGER):
            return None
        return _request(_found(record))


def _loads(text: str) -> dict[str, Any]:
    r"""Also what nginx writes without ``escape=json``: ``\x22`` in strings, ``-`` for a number."""
    try:
        record = json.loads(text)
    except ValueError:
        record = json.loads(_IN_NEED.sub(_mended, text))
    return record if isinstance(record, dict) else {}


def _mended(match: re.Match[str]) -> str:
    return _HEX_ESCAPE.sub(r"\1\\\\x", match[0]) if match[0].startswith('"') else "null"


def _found(record: dict[str, Any]) -> dict[str, str]:
    """The text of each kind of field, of the most telling name that says anything, else "".

    An outer field comes before an inner one of the same name.
    """
    texts, ranks = dict.fromkeys(NAMES, ""), dict.fromkeys(NAMES, len(_MEANINGS))
    waiting = [record]
    for fields in waiting:  # which grows meanwhile
        for key, value in fields.items():
            if isinstance(value, dict):
                waiting.append(value)
            elif meaning := _meaning(key):
                kind, rank = meaning
                if rank < ranks[kind] and (text := _text(value)):
                    texts[kind], ranks[kind] = text, rank
    return texts


@lru_cache(maxsize=4096)
def _meaning(key: str) -> tuple[str, int] | None:
    return _MEANINGS.get(key.lower().replace("-", "_"))


def _text(value: object) -> str:
    if isinstance(value, list) and value:  # Caddy's headers
        value = value[0]
    return str(value) if isinstance(value, str | int | float) and value != ABSENT else ""


def _request(found: dict[str, str]) -> Request | None:
    if not all(found[kind] for kind in ("address", "time", "status")):
        return None
    if not _STATUS.fullmatch(found["status"]):
        return None
    if found["bytes"] and not _BYTES.fullmatch(found["bytes"]):
        return None
    if not found["request"] and not found["target"]:
        return None
    time, offset = _time(found["time"])
    parts = (found[kind] or ABSENT for kind in ("method", "target", "protocol"))
    return Request(
        address=client_address(found["address"]),
        identity=ABSENT,
        user=found["user"] or ABSENT,
        time=time,
        offset=offset,
        request=found["request"] or " ".join(parts),
        status=int(found["status"]),
        bytes=int(found["bytes"]) if found["bytes"] else None,
        referrer=found["referrer"],
        user_agent=found["user_agent"],
    )


def _time(text: str) -> tuple[int, int]:
    if match := _LOCAL.fullmatch(text):
        start, offset = times.of_minute(match["minute"], match["zone"])
        return start + int(match["second"]), offset
    if _NUMBER.fullmatch(text):
        return times.of_number(float(text))
    return times.of_iso(text)
