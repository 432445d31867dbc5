r"""The combined log format: one line, one request.

    83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 2326 "http://b/c" "Opera/9"

Text fields are kept as the server logged them: its escapes (``\"``, ``\x16``) stay escapes, so
that nothing is lost or made up, and a request can be formatted back into the very line it was.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
ABSENT = "-"

# Inside quotes everything goes except a bare quote; a backslash takes the next character with it.
_QUOTED = r'"([^"\\]*(?:\\.[^"\\]*)*)"'
_LINE = re.compile(
    r"(\S+) (\S+) (\S+) "
    r"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d):([0-5]\d) ([+-]\d{4})\] "
    rf"{_QUOTED} ([1-5]\d\d) (\d{{1,18}}|-) {_QUOTED} {_QUOTED}",
    re.ASCII,
)


class Malformed(ValueError):
    """The line is not in combined format; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Request:
    """One line of the log. ``time`` is in seconds since 1970 (UTC), ``offset`` the log's zone."""

    address: str
    identity: str
    user: str
    time: int
    offset: int  # minutes east of UTC
    request: str
    status: int
    bytes: int | None
    referrer: str
    user_agent: str

    @property
    def method(self) -> str:
        return self._request_line()[0]

    @property
    def url(self) -> str:
        return self._request_line()[1]

    def _request_line(self) -> tuple[str, str]:
        """Method and target; servers also log what never was a request line (``-``, TLS bytes)."""
        parts = self.request.split(" ")
        if len(parts) == 3 or (len(parts) == 2 and parts[0] == "GET"):  # two: HTTP/0.9
            return parts[0] or ABSENT, parts[1] or ABSENT
        return ABSENT, self.request or ABSENT


def parse_line(line: bytes) -> Request:
    """The request in a line (without its newline), or `Malformed`."""
    try:
        text = line.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        raise Malformed("invalid UTF-8") from None
    match = _LINE.fullmatch(text)
    if match is None:
        raise Malformed("not in combined log format")
    address, identity, user, minute, second, zone, request, status, size, referrer, agent = (
        match.groups()
    )
    start, offset = _minute(minute, zone)
    return Request(
        address=address,
        identity=identity,
        user=user,
        time=start + int(second),
        offset=offset,
        request=request,
        status=int(status),
        bytes=None if size == ABSENT else int(size),
        referrer=referrer,
        user_agent=agent,
    )


def format_line(request: Request) -> bytes:
    """The line that `parse_line` reads as this request."""
    zone = timezone(timedelta(minutes=request.offset))
    local = datetime.fromtimestamp(request.time, UTC).astimezone(zone)
    when = f"{local.day:02}/{MONTHS[local.month - 1]}/{local.year:04}:{local:%H:%M:%S %z}"
    size = ABSENT if request.bytes is None else request.bytes
    return (
        f"{request.address} {request.identity} {request.user} [{when}] "
        f'"{request.request}" {request.status} {size} "{request.referrer}" "{request.user_agent}"'
    ).encode()


@lru_cache(maxsize=1024)  # neighbouring lines share their minute: parsing dates is the slow part
def _minute(text: str, zone: str) -> tuple[int, int]:
    """``17/May/2015:10:05`` and ``+0200`` as seconds since 1970 (UTC) and minutes east of UTC."""
    try:
        month = MONTHS.index(text[3:6]) + 1
        local = datetime(
            int(text[7:11]), month, int(text[:2]), int(text[12:14]), int(text[15:17]), tzinfo=UTC
        )
    except ValueError:
        raise Malformed(f"no such time: {text}") from None
    hours, minutes = int(zone[1:3]), int(zone[3:5])
    if hours > 14 or minutes > 59:
        raise Malformed(f"no such time zone: {zone}")
    offset = (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)
    return int(local.timestamp()) - offset * 60, offset
