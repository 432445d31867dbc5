"""The combined log format: what is written can be read, and what else stands in a line."""

import string
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.weblog import Malformed, Request, format_line, parse_line

LINE = (
    b'83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a/b.png?x=1 HTTP/1.1" 200 203023 '
    b'"http://semicomplete.com/" "Mozilla/5.0 (Macintosh)"'
)

words = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=20)
addresses = st.one_of(st.ip_addresses(v=4).map(str), words)
plain = st.characters(exclude_characters='"\\\n', exclude_categories=("Cs",))
escapes = st.sampled_from(['\\"', "\\\\", "\\x16", "\\n"])
quoted = st.lists(st.one_of(plain, escapes), max_size=30).map("".join)
users = st.lists(words, min_size=1, max_size=3).map(" ".join) | st.just('""')
requests = st.builds(
    Request,
    address=addresses,
    identity=words,
    user=users,
    time=st.integers(0, int(datetime(2100, 1, 1, tzinfo=UTC).timestamp())),
    offset=st.integers(-14 * 60, 14 * 60),
    request=quoted,
    status=st.integers(0, 999),
    bytes=st.none() | st.integers(0, 10**15),
    referrer=quoted,
    user_agent=quoted,
)


@given(requests)
def test_a_formatted_request_is_parsed_back(request: Request) -> None:
    assert parse_line(format_line(request)) == request


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_malformed_and_nothing_worse(line: bytes) -> None:
    with pytest.raises(Malformed):
        parse_line(line)


@given(requests, st.data())
def test_a_truncated_line_is_malformed(request: Request, data: st.DataObject) -> None:
    line = format_line(request)
    cut = data.draw(st.integers(0, len(line) - 1))
    with pytest.raises(Malformed):
        parse_line(line[:cut])


@given(requests, requests, st.data())
def test_what_was_cut_and_joined_to_another_line_is_malformed(
    request: Request, other: Request, data: st.DataObject
) -> None:
    """Else one of two requests were lost without being counted."""
    line = format_line(request)
    cut = data.draw(st.integers(line.index(b"[") + 1, len(line)))
    with pytest.raises(Malformed):
        parse_line(line[:cut] + format_line(other))
    with pytest.raises(Malformed):
        parse_line(line + b" " + format_line(other))


def test_a_line_of_the_wild() -> None:
    request = parse_line(LINE)
    assert request.address == "83.149.9.216"
    assert (request.method, request.url) == ("GET", "/a/b.png?x=1")
    assert datetime.fromtimestamp(request.time, UTC) == datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC)
    assert (request.status, request.bytes) == (200, 203023)
    assert request.user_agent == "Mozilla/5.0 (Macintosh)"


def test_a_zone_offset_is_turned_into_utc() -> None:
    east = parse_line(LINE.replace(b"+0000", b"+0530"))
    assert datetime.fromtimestamp(east.time, UTC) == datetime(2015, 5, 17, 4, 35, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("logged", "method", "url"),
    [
        ("POST /x HTTP/2.0", "POST", "/x"),
        ("GET /old", "GET", "/old"),
        ("-", "-", "-"),
        ("", "-", "-"),
        ("\\x16\\x03\\x01", "-", "\\x16\\x03\\x01"),
        ("\\x16\\x03 \\x01 \\x02", "-", "\\x16\\x03 \\x01 \\x02"),
        ("GET /with space HTTP/1.1", "GET", "/with space"),
        ("GET  / HTTP/1.1", "GET", " /"),
        ("GET /a b c HTTP/1.0", "GET", "/a b c"),
        ('GET /?q=\\"x\\" HTTP/1.1', "GET", '/?q=\\"x\\"'),
        ("GET /?q=\\x22x\\x22 HTTP/1.1", "GET", "/?q=\\x22x\\x22"),
        ("OPTIONS sip:nm SIP/2.0", "OPTIONS", "sip:nm"),
        ("GET /a -", "GET", "/a"),
    ],
)
def test_method_and_url_of_what_servers_log(logged: str, method: str, url: str) -> None:
    request = parse_line(LINE.replace(b"GET /a/b.png?x=1 HTTP/1.1", logged.encode()))
    assert (request.method, request.url) == (method, url)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"17/May", b"31/Feb"),
        (b"17/May", b"17/Mai"),
        (b"10:05:03", b"24:05:03"),
        (b"10:05:03", b"10:05:61"),
        (b"+0000", b"+1561"),
        (b" 200 ", b" 2000 "),
        (b" 200 ", b" 20 "),
        (b"203023", b"-1"),
        (b"203023", b"1" * 19),
        (b"semicomplete", b"semi\xffcomplete"),
        (b'"Mozilla', b"Mozilla"),
        (b'(Macintosh)"', b'(Macintosh)" 83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /'),
        (b'(Macintosh)"', b'(Macintosh)"x'),
        (b"83.149.9.216", b""),
        (b'"GET', b'"GET\0\0\0" "GET'),
    ],
)
def test_what_is_not_combined_format(old: bytes, new: bytes) -> None:
    line = LINE.replace(old, new)
    assert line != LINE
    with pytest.raises(Malformed):
        parse_line(line)
