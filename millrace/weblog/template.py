r"""A format string of Apache or nginx, compiled into one regular expression.

    %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"
    $remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent

The best kept package for this, apachelogs, knows Apache's strings and none of nginx's, takes no
text beyond ASCII, and reads a ninth of the lines in the same time, because it converts every field
of a line. So this is our own: it captures what a `Request` has, and skips the rest.

There is one way to read a line, so that none takes long to be refused: a field ends before the
first character that stands behind it in the format. Only a target may hold it, and a list the
blanks behind its commas.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from millrace.common.errors import OperatorError
from millrace.weblog import times
from millrace.weblog.request import ABSENT, Request, client_address

# What a field of a server is to a request. Any other field is skipped.
_HEADERS = {
    "referer": "referrer",
    "user-agent": "user_agent",
    "x-forwarded-for": "address",
    "x-real-ip": "address",
    "true-client-ip": "address",
    "cf-connecting-ip": "address",
}
_APACHE = {
    "a": "address",
    "h": "address",
    "l": "identity",
    "u": "user",
    "r": "request",
    "m": "method",
    "U": "target",
    "U%q": "target",
    "H": "protocol",
    "s": "status",
    "b": "bytes",
    "B": "bytes",
    "O": "bytes",
}
_NGINX = {
    "remote_addr": "address",
    "proxy_add_x_forwarded_for": "address",
    "remote_user": "user",
    "time_local": "local",
    "time_iso8601": "iso",
    "msec": "epoch",
    "request": "request",
    "request_method": "method",
    "request_uri": "target",
    "uri": "target",
    "uri$is_args$args": "target",
    "server_protocol": "protocol",
    "status": "status",
    "body_bytes_sent": "bytes",
    "bytes_sent": "bytes",
} | {f"http_{header.replace('-', '_')}": field for header, field in _HEADERS.items()}

_APACHE_FIELD = re.compile(
    r"%[\d,!<>]*(?:\{(?P<of>[^}]*)\})?[<>]?(?P<name>%|U%q|\^[a-zA-Z]{2}|[a-zA-Z])"
)
_NGINX_FIELD = re.compile(r"\$(?:\{(\w+)\}|(uri\$is_args\$args|\w+))")
_APACHE_EPOCHS = ("sec", "msec", "usec")
_APACHE_FRACTIONS = ("msec_frac", "usec_frac")

# strftime's directives, and those that stand for several.
_STRFTIME = {
    "Y": r"\d{4}",
    "y": r"\d\d",
    "m": r"\d\d",
    "b": r"[A-Z][a-z]{2}",
    "d": r"[ \d]\d",
    "H": r"\d\d",
    "M": r"\d\d",
    "S": r"\d\d",
    "s": r"\d{1,11}",
    "z": r"[+-]\d{4}",
}
_STRFTIME_SHORT = {
    "T": "%H:%M:%S",
    "R": "%H:%M",
    "F": "%Y-%m-%d",
    "D": "%m/%d/%y",
    "e": "%d",
    "h": "%b",
}

# Fields that look the same wherever they stand.
_SHAPES = {
    "identity": r"[^\s.:]+",  # no address, which stands there when another field is in front
    "status": r"\d{3}|-",
    "bytes": r"\d{1,18}|-",
    "local": times.LOCAL,
    "iso": times.ISO,
    "epoch": r"\d{1,20}(?:\.\d+)?",
    "digits": r"\d+",
} | _STRFTIME
_QUOTED = r'[^"\\]*+(?:\\.[^"\\]*+)*+'  # a backslash takes the next character with it
# Servers don't escape blanks in it. What is cut off and joined to the next line isn't a name.
_USER = r'""|[^"\[\\]*(?:\\.[^"\[\\]*)*'

# In the order of `Template.parse`.
_CAPTURED = (
    "address",
    "identity",
    "user",
    "minute",
    "second",
    "zone",
    "request",
    "status",
    "bytes",
    "referrer",
    "user_agent",
)
_PARTS_OF_REQUEST = ("method", "target", "protocol")
_GROUP = re.compile(r"\(\?P<(\w+)>")
_BLANK = re.escape(" ")


@dataclass(frozen=True)
class Field:
    """A field of a format: what it is to a request, "" if nothing."""

    kind: str


Piece = str | Field  # a str is literal text


class Template:
    """A compiled format.

    Args:
        front: a regular expression of what stands before the format's own fields.
        behind: one of what may stand behind them.

    Raises OperatorError for a format that lacks what a request has to have.
    """

    def __init__(self, name: str, text: str, front: str = "", behind: str = "") -> None:
        self.name = name
        kinds = Counter(_GROUP.findall(front))
        expression = front + _compile(_merged(_pieces(text)), kinds)
        _require(kinds, text)
        named = set(_GROUP.findall(expression))
        expression += behind
        expression += "".join(f"(?P<{kind}>)" for kind in _CAPTURED if kind not in named)
        self._pattern = re.compile(expression, re.ASCII)
        groups = self._pattern.groupindex
        self._captured = itemgetter(*(groups[kind] - 1 for kind in _CAPTURED))
        self._other_addresses = [groups[name] for name in groups if name.startswith("address_")]
        self._parts_of_request = [groups.get(kind) for kind in _PARTS_OF_REQUEST]
        self._has_request = "request" in named
        self._has_clock = "minute" in named

    def parse(self, text: str) -> Request | None:
        """The request, or None if the line isn't of this format. Raises ValueError for a date that
        no calendar has."""
        match = self._pattern.fullmatch(text)
        if match is None:
            return None
        (address, identity, user, minute, second, zone, request, status, size, referrer, agent) = (
            self._captured(match.groups())
        )
        if self._has_clock:
            start, offset = times.of_minute(minute, zone)
            time = start + int(second)
        else:
            time, offset = times.of_parts(match.groupdict())
        if address == ABSENT or not address:
            address = self._other_address(match)
        return Request(
            address=client_address(address),
            identity=identity,
            user=user or ABSENT,
            time=time,
            offset=offset,
            request=request if self._has_request else self._composed(match),
            status=0 if status == ABSENT else int(status),
            bytes=None if size == ABSENT or not size else int(size),
            referrer=referrer,
            user_agent=agent,
        )

    def _other_address(self, match: re.Match[str]) -> str:
        found = (match[group] for group in self._other_addresses)
        return next((one for one in found if one and one != ABSENT), ABSENT)

    def _composed(self, match: re.Match[str]) -> str:
        parts = (match[group] if group else ABSENT for group in self._parts_of_request)
        return " ".join(part or ABSENT for part in parts)


def _pieces(text: str) -> Iterator[Piece]:
    text = _unquoted(text)
    if _NGINX_FIELD.search(text):
        position = 0
        for match in _NGINX_FIELD.finditer(text):
            yield text[position : match.start()]
            yield Field(_NGINX.get(match[1] or match[2], ""))
            position = match.end()
        yield text[position:]
    else:
        yield from _apache_pieces(text)


def _unquoted(text: str) -> str:
    """The format itself of a whole directive, ``LogFormat "…" name`` or ``log_format name '…'``."""
    text = text.strip("\r\n")
    if directive := re.match(r'\s*LogFormat\s+"((?:[^"\\]|\\.)*)"', text):
        text = directive[1]
    elif re.match(r"\s*log_format\s", text):
        quoted = re.findall(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", text)
        text = "".join(single or double for single, double in quoted)
    return text.replace(r"\"", '"').replace(r"\'", "'").replace(r"\t", "\t")


def _apache_pieces(text: str) -> Iterator[Piece]:
    position = 0
    for match in _APACHE_FIELD.finditer(text):
        yield text[position : match.start()]
        yield from _apache_field(match["name"], match["of"])
        position = match.end()
    yield text[position:]


def _apache_field(name: str, of: str | None) -> Iterator[Piece]:
    if name == "%":
        yield "%"
    elif name == "t":
        yield from _apache_time(of or "")
    elif name == "i":
        yield Field(_HEADERS.get((of or "").lower(), ""))
    else:
        yield Field(_APACHE.get(name, ""))


def _apache_time(of: str) -> Iterator[Piece]:
    of = of.removeprefix("begin:").removeprefix("end:")
    if of in ("", "begin", "end"):
        yield from ("[", Field("local"), "]")
    elif of in _APACHE_EPOCHS:
        yield Field("epoch")
    elif of in _APACHE_FRACTIONS:
        yield Field("digits")
    else:
        yield from _strftime(of)


def _strftime(text: str) -> Iterator[Piece]:
    for literal, letter in re.findall(r"([^%]+)|%(.)", text):
        if literal or letter == "%":
            yield literal or "%"
        elif letter in _STRFTIME_SHORT:
            yield from _strftime(_STRFTIME_SHORT[letter])
        elif letter in _STRFTIME:
            yield Field(letter)
        else:
            known = " ".join(f"%{one}" for one in (*_STRFTIME, *_STRFTIME_SHORT))
            raise OperatorError(f"--format: %{letter} of %{{{text}}}t isn't read", f"read: {known}")


def _merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Literals that stand beside each other are one."""
    merged: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        elif piece != "":
            merged.append(piece)
    return merged


def _compile(pieces: list[Piece], kinds: Counter[str]) -> str:
    """The regular expression of a format; counts its fields in ``kinds``."""
    expression, quotes = "", 0
    for piece, after in zip(pieces, [*pieces, ""][1:], strict=True):
        if isinstance(piece, str):
            quotes += piece.count('"')
            expression += re.escape(piece)
            continue
        is_quoted = quotes % 2 == 1
        group = _group(piece.kind, _shape(piece.kind, after, is_quoted), kinds)
        if piece.kind == "user" and not is_quoted and expression.endswith(_BLANK):
            # Who has no name is logged as nothing at all by some, even without the blank.
            expression = f"{expression.removesuffix(_BLANK)}(?:{_BLANK}{group})??"
        else:
            expression += group
        kinds[piece.kind] += 1
    return expression


def _shape(kind: str, after: Piece, is_quoted: bool) -> str:
    """Returns what a field may look like that stands before ``after``."""
    if kind in _SHAPES:
        return _SHAPES[kind]
    if isinstance(after, Field):  # nothing parts the two
        return r'[^\s"/]*'
    end = re.escape(after[:1])
    if is_quoted:
        if end == '"':
            return _QUOTED
        return r'(?:[^"\\]|\\.)*?' if kind == "target" else rf'(?:[^"\\{end}]|\\.)*'
    if kind == "user" and after.startswith(" "):
        return _USER
    if kind == "address":
        end = "" if after[:1] in (" ", ":") else end
        return rf"[^\s,{end}]+(?:, ?[^\s,{end}]+)*"
    if after == "":
        return ".*"
    if after.startswith(" "):
        return r"[^\s,]*(?:, ?[^\s,]+)*"  # lists, too, as of upstreams and their times
    return rf"[^{end}]*"


def _group(kind: str, shape: str, kinds: Counter[str]) -> str:
    """The first field of a kind is captured, and every address."""
    if kind == "address" and kinds[kind]:
        kind = f"address_{kinds[kind]}"
    if kind in ("", "digits") or kinds[kind]:
        return f"(?:{_GROUP.sub('(?:', shape)})"
    if kind in ("local", "iso"):
        return shape  # which has groups of its own
    return f"(?P<{kind}>{shape})"


def _require(kinds: Counter[str], text: str) -> None:
    found = set(kinds)
    wanted = {
        "a client's address (%h, $remote_addr)": "address" in found,
        "a time (%t, $time_local)": _has_time(found),
        "a request (%r, $request)": "request" in found or {"method", "target"} <= found,
        "a status (%>s, $status)": "status" in found,
    }
    if missing := [what for what, is_there in wanted.items() if not is_there]:
        raise OperatorError(
            f"--format {text!r} has no field for {', '.join(missing)}",
            "it takes the very string of Apache's LogFormat or nginx's log_format",
        )


def _has_time(found: set[str]) -> bool:
    if found & {"local", "iso", "epoch", "s"}:
        return True
    return {"d", "H", "M"} <= found and bool(found & {"m", "b"}) and bool(found & {"Y", "y"})
