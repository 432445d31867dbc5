"""Durations and moments, as people write them."""

import re
from datetime import datetime

from millrace.common.errors import OperatorError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> int:
    """Returns the seconds of ``24h`` or ``24 hours``. Raises OperatorError for no duration."""
    match = re.fullmatch(r"(\d+) ?([smhd])[a-z]*", text)
    if match is None:
        raise OperatorError(f"'{text}' is not a duration such as 90s, 15m, 24h or 7d")
    return int(match[1]) * _UNITS[match[2]]


def parse_moment(text: str) -> datetime:
    """OperatorError for what is no time with its zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OperatorError(f"'{text}' is no ISO 8601 time, such as 2026-01-01T00:00Z") from None
    if moment.tzinfo is None:
        raise OperatorError(f"'{text}' has no zone; end it with Z for UTC")
    return moment
