"""The formats that are known, which of them a log is in, and the reader of its lines."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from millrace.weblog.json_lines import JsonLines
from millrace.weblog.request import Malformed, Request
from millrace.weblog.template import Template

COMBINED = '%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"'
COMMON = '%h %l %u %t "%r" %>s %b'
# As nginx's own packages and image have it.
NGINX_MAIN = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
    '"$http_referer" "$http_user_agent" "$http_x_forwarded_for"'
)

_ADDRESS = r"(?:\d{1,3}(?:\.\d{1,3}){3}|(?:[\da-fA-F]{0,4}:){2}[\da-fA-F:.]*)"
# A name in front is a virtual host, an address or a list of them what proxies say of the client.
_HOST = r"\S+ (?!- )"
_FORWARDED = rf"(?P<address>-|(?:unknown|{_ADDRESS})(?:, ?(?:unknown|{_ADDRESS}))*) (?!- )"


class Format(Protocol):
    @property
    def name(self) -> str: ...
    def parse(self, text: str) -> Request | None: ...


# Not another request, whose line's beginning was lost or never had a newline before it.
_MORE = r"(?: (?!.*\[\d\d/[A-Z][a-z]{2}/\d{4}:).*)?"
_MORE_UNQUOTED = r'(?: [^"]*)?'

# In the order in which they are tried.
_WHOLE: tuple[Format, ...] = (
    Template("nginx main", NGINX_MAIN),
    Template("combined", COMBINED, behind=_MORE),
    Template("X-Forwarded-For and combined", COMBINED, front=_FORWARDED, behind=_MORE),
    Template("virtual host and combined", COMBINED, front=_HOST, behind=_MORE),
    JsonLines(),
)
# A line of these may be all that is left of one of those, cut off in the middle of its size.
_SHORT: tuple[Format, ...] = (
    Template("common", COMMON, behind=_MORE_UNQUOTED),
    Template("X-Forwarded-For and common", COMMON, front=_FORWARDED, behind=_MORE_UNQUOTED),
    Template("virtual host and common", COMMON, front=_HOST, behind=_MORE_UNQUOTED),
)
KNOWN = (*_WHOLE, *_SHORT)


def format_of(text: str) -> Format:
    """The known format of that name, or the one that the string describes."""
    known = {one.name: one for one in KNOWN}
    return known.get(text) or Template(text, text)


class Reader:
    """Reads the lines of a log that is in one format, and was in others before or will be after.

    A line that doesn't fit is tried with the known formats, as after a change of the server's
    configuration; not with Common, which is what a longer line looks like when it was cut off.
    """

    def __init__(self, taken: Format) -> None:
        self.format = taken
        self._parse = taken.parse
        self._others = [one.parse for one in _WHOLE if one is not taken]

    def __call__(self, line: bytes) -> Request:
        """The request in a line (without its newline), or `Malformed`."""
        try:
            text = _text(line)
            request = self._parse(text)
            if request is not None:
                return request
            for parse in self._others:
                if (request := parse(text)) is not None:
                    return request
        except ValueError as error:  # not UTF-8, or a day that no month has
            raise Malformed(str(error)) from None
        raise Malformed("in none of the known formats")


def _text(line: bytes) -> str:
    """Without what isn't text: padding, as a log has where it was truncated, and a byte order mark.

    Files of Windows begin with the mark, and a log that was put together of them has it anywhere.
    """
    return line.strip(b"\0\r").decode().removeprefix("\ufeff")


@dataclass(frozen=True)
class Fit:
    """How the first lines of a log fit the format that was taken for it."""

    format: Format
    lines: int
    fitting: int
    others: Counter[str] = field(default_factory=Counter)  # by other formats' names
    misfit: bytes | None = None  # the first line that fits none

    @property
    def read(self) -> int:
        return self.fitting + self.others.total()


def detect(lines: Sequence[bytes]) -> Fit:
    """The known format that most of the lines are in."""
    counts = [sum(fits(one, line) for line in lines) for one in KNOWN]
    return fit(KNOWN[counts.index(max(counts))], lines)


def fit(taken: Format, lines: Sequence[bytes]) -> Fit:
    """Returns how many lines are in that format, and which formats the others are in."""
    fitting, others, misfit = 0, Counter[str](), None
    for line in lines:
        name = next((one.name for one in (taken, *_WHOLE) if fits(one, line)), None)
        if name is None:
            misfit = misfit or line
        elif name == taken.name:
            fitting += 1
        else:
            others[name] += 1
    return Fit(taken, len(lines), fitting, others, misfit)


def fits(one: Format, line: bytes) -> bool:
    """Returns whether the line is a request in that format."""
    try:
        return one.parse(_text(line)) is not None
    except ValueError:
        return False


parse_line = Reader(next(one for one in KNOWN if one.name == "combined"))
