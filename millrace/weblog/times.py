"""Times in logs: seconds since 1970 (UTC), and minutes east of UTC."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import isfinite

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# Each has the groups ``minute``, ``second`` and ``zone``.
LOCAL = r"(?P<minute>\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d):(?P<second>[0-5]\d) (?P<zone>[+-]\d{4})"
ISO = (
    r"(?P<minute>\d{4}-\d\d-\d\d[T ]\d\d:\d\d):(?P<second>[0-5]\d)(?:[.,]\d+)?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)"
)

# An epoch of today has this many digits in seconds; a thousand times it in milliseconds, …
_EPOCH_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))


@lru_cache(maxsize=1024)  # neighbouring lines share their minute: parsing dates is the slow part
def of_minute(text: str, zone: str) -> tuple[int, int]:
    """The beginning of a minute in the texts that `LOCAL` or `ISO` finds.

    Raises ValueError for a day or a zone that there is none of.
    """
    if text[2] == "/":
        day, month, year = int(text[:2]), MONTHS.index(text[3:6]) + 1, int(text[7:11])
    else:
        year, month, day = int(text[:4]), int(text[5:7]), int(text[8:10])
    local = datetime(year, month, day, int(text[-5:-3]), int(text[-2:]), tzinfo=UTC)
    offset = _offset(zone)
    return int(local.timestamp()) - offset * 60, offset


def _offset(zone: str) -> int:
    if zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    if hours > 14 or minutes > 59:
        raise ValueError(f"no such time zone: {zone}")
    return (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)


def of_parts(parts: Mapping[str, str | None]) -> tuple[int, int]:
    """The time of strftime's directives by their letters, in UTC unless ``z`` says otherwise."""
    if epoch := parts.get("epoch"):
        return of_number(float(epoch))
    zone = parts.get("z") or "+0000"
    if seconds := parts.get("s"):
        return int(seconds), _offset(zone)
    day, month = parts.get("d") or "", parts.get("m") or parts.get("b") or ""
    year = parts.get("Y") or f"20{parts.get('y')}"
    month = month if month.isdigit() else f"{MONTHS.index(month) + 1:02}"
    date = f"{year}-{month}-{day.strip():0>2}"
    start, offset = of_minute(f"{date}T{parts.get('H')}:{parts.get('M')}", zone)
    return start + int(parts.get("S") or 0), offset


def of_number(value: float) -> tuple[int, int]:
    """Seconds since 1970, or milli-, micro- or nanoseconds where seconds would be far away."""
    if not isfinite(value):
        raise ValueError("no such time")
    unit = next((unit for least, unit in _EPOCH_UNITS if abs(value) >= least), 1)
    return int(value // unit), 0


def of_iso(text: str) -> tuple[int, int]:
    """ISO 8601, in UTC unless it says otherwise."""
    when = datetime.fromisoformat(text)
    offset = when.utcoffset() or timedelta()
    return int(when.replace(tzinfo=UTC).timestamp() - offset.total_seconds()), int(
        offset.total_seconds() // 60
    )
