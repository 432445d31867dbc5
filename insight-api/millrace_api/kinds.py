"""Values of jobs' columns: parsed from what a client sent, and shown as JSON has them. Pure.

Kinds are Spark's types; a parsed value is what Cassandra's driver takes for a column of that kind.
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any, Literal, NamedTuple

from cassandra.util import Date

from millrace_api.ranges import BadParameter, iso, parse_moment, short

Kind = Literal["string", "int", "bigint", "double", "boolean", "date", "timestamp", "binary"]

WHOLE = re.compile(r"-?[0-9]{1,19}")
LONGEST = 65_535  # bytes of a column of a key: Cassandra's limit


class Parser(NamedTuple):
    """``parse`` raises ValueError for what is not ``what``."""

    what: str
    parse: Callable[[str], Any]


def parsed(parameter: str, kind: Kind, text: str) -> Any:
    """Raises BadParameter for what is no such value."""
    what, parse = PARSERS[kind]
    try:
        return parse(text)
    except BadParameter as error:
        raise BadParameter(parameter, str(error)) from None
    except ValueError:
        raise BadParameter(parameter, f"{short(text)} is no {what}") from None


def written(value: Any) -> str:
    """A value of a key as text, of which ``parsed`` makes the same value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(shown(value))


def native(value: Any) -> Any:
    """A value without the driver's own kind of date."""
    return value.date() if isinstance(value, Date) else value


def shown(value: Any) -> Any:
    """A value as JSON has it. What is no number, such as 0/0, is null."""
    value = native(value)
    if isinstance(value, datetime):
        return iso(value.replace(tzinfo=UTC))
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _whole(bits: int) -> Parser:
    def parse(text: str) -> int:
        value = int(text) if WHOLE.fullmatch(text) else None
        if value is None or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise ValueError(text)
        return value

    return Parser(f"whole number of {bits} bits", parse)


def _text(text: str) -> str:
    if len(text.encode()) > LONGEST:  # raises for half a character, which JSON can name
        raise ValueError(text)
    return text


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _utc(text: str) -> datetime:
    """Without saying so, as Spark and Cassandra have it."""
    return parse_moment("", text).replace(tzinfo=None)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(_text(text))


PARSERS: Mapping[Kind, Parser] = {
    "string": Parser(f"text of {LONGEST:,} bytes at most", _text),
    "int": _whole(32),
    "bigint": _whole(64),
    "double": Parser("number", float),
    "boolean": Parser("true or false", _boolean),
    "date": Parser("date such as 2015-05-17", date.fromisoformat),
    "timestamp": Parser("time", _utc),
    "binary": Parser(f"hexadecimal text of {LONGEST:,} characters at most", _bytes),
}
