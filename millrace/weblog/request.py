r"""A request as a web server logged it.

Text is kept as the log has it: a server's escapes (``\"``, ``\x16``) stay escapes, so that nothing
is lost or made up. Only an address is tidied, because it says who a visitor is.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from ipaddress import IPv6Address
from typing import NamedTuple

from millrace.weblog.times import MONTHS

ABSENT = "-"

# A method, a target (clients do send blanks in it) and a protocol; HTTP/0.9 had none.
_REQUEST_LINE = re.compile(r"(\S+) (.+) (?:[A-Za-z]+/\d[\d.]*|-)|(GET) (.+)", re.ASCII)
_WITH_PORT = re.compile(r"(\d+\.\d+\.\d+\.\d+):\d+|\[([^\]]+)\](?::\d+)?", re.ASCII)
_NO_ADDRESS = ("", ABSENT, "unknown")


class Malformed(ValueError):
    """The line is no request in a known format; the message says what is wrong with it."""


class Request(NamedTuple):
    """One line of the log. ``time`` is in seconds since 1970 (UTC), ``offset`` the log's zone.

    What its format doesn't log is ``-`` or empty, and None for ``bytes``; a ``status`` that was
    never sent is 0.
    """

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
        if len(parts) == 3 and parts[2].startswith("HTTP/") and parts[0] and parts[1]:  # nearly all
            return parts[0], parts[1]
        match = _REQUEST_LINE.fullmatch(self.request)
        if match is None:
            return ABSENT, self.request or ABSENT
        return match[1] or match[3], match[2] or match[4]


def format_line(request: Request) -> bytes:
    """The line of the combined format that is read as this request."""
    zone = timezone(timedelta(minutes=request.offset))
    local = datetime.fromtimestamp(request.time, UTC).astimezone(zone)
    when = f"{local.day:02}/{MONTHS[local.month - 1]}/{local.year:04}:{local:%H:%M:%S %z}"
    size = ABSENT if request.bytes is None else request.bytes
    return (
        f"{request.address} {request.identity} {request.user} [{when}] "
        f'"{request.request}" {request.status:03} {size} "{request.referrer}" '
        f'"{request.user_agent}"'
    ).encode()


@lru_cache(maxsize=65536)
def client_address(logged: str) -> str:
    """The client in a field that holds an address, or the list that proxies make of them.

    Of a list it is the first. A port is dropped, since it differs from connection to connection,
    and an IPv4 address that is written as IPv6 (``::ffff:192.0.2.1``) is the IPv4 address.
    """
    listed = (one.strip() for one in logged.split(","))
    address = next((one for one in listed if one not in _NO_ADDRESS), ABSENT)
    if match := _WITH_PORT.fullmatch(address):
        address = match[1] or match[2]
    if ":" in address:
        try:
            mapped = IPv6Address(address).ipv4_mapped
        except ValueError:
            return address
        return str(mapped or address)
    return address
