"""Which formats of web logs are read, which one a log is in, and formats given by hand."""

import json
import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.common.errors import OperatorError
from millrace.common.paths import REPO
from millrace.weblog import KNOWN, Malformed, Reader, Request, detect, format_of

MOMENT = int(datetime(2024, 2, 29, 10, 5, 3, tzinfo=UTC).timestamp())
TIME = "[29/Feb/2024:10:05:03 +0000]"
COMMON = f'{TIME} "GET /a HTTP/1.1" 200 100'
COMBINED = f'{COMMON} "-" "Example/1.0"'


def read(line: str | bytes, format: str = "") -> Request:
    """The request in a log of this one line."""
    line = line.encode() if isinstance(line, str) else line
    return Reader(format_of(format) if format else detect([line]).format)(line)


def named(*lines: str) -> str:
    fit = detect([line.encode() for line in lines])
    return fit.format.name if fit.fitting else ""


# --- known formats, by example --------------------------------------------------------------------

ONE_LINE = {
    f'192.0.2.1 - - {COMBINED} "-"': ("nginx main", "192.0.2.1"),
    f'192.0.2.1 - - {COMBINED} "203.0.113.7, 198.51.100.3"': ("nginx main", "192.0.2.1"),
    f"192.0.2.1 - - {COMBINED}": ("combined", "192.0.2.1"),
    f'192.0.2.1 - - {COMBINED} 0.003 "x, y" [a] "/"': ("combined", "192.0.2.1"),
    f"192.0.2.1 - - {COMMON}": ("common", "192.0.2.1"),
    f"192.0.2.1 - - {COMMON} 12 [worker]": ("common", "192.0.2.1"),
    f"2001:db8::5 - - {COMBINED}": ("combined", "2001:db8::5"),
    f"client.isp.example - - {COMBINED}": ("combined", "client.isp.example"),
    f"203.0.113.7, 198.51.100.3 - - {COMBINED}": ("combined", "203.0.113.7"),
    f"203.0.113.7,198.51.100.3 - - {COMMON}": ("common", "203.0.113.7"),
    f"203.0.113.7 10.0.0.1 - - {COMBINED}": ("X-Forwarded-For and combined", "203.0.113.7"),
    f"203.0.113.7, 198.51.100.3 10.0.0.1 - - {COMBINED}": (
        "X-Forwarded-For and combined",
        "203.0.113.7",
    ),
    f"2001:db8::1, ::1 10.0.0.1 - - {COMMON}": ("X-Forwarded-For and common", "2001:db8::1"),
    f"unknown, 203.0.113.7 10.0.0.1 - - {COMBINED}": (
        "X-Forwarded-For and combined",
        "203.0.113.7",
    ),
    f"- 10.0.0.1 - - {COMBINED}": ("X-Forwarded-For and combined", "10.0.0.1"),
    f"example.com 192.0.2.1 - - {COMBINED}": ("virtual host and combined", "192.0.2.1"),
    f"example.com:443 192.0.2.1 - - {COMBINED} 5": ("virtual host and combined", "192.0.2.1"),
    f"127.0.1.1:80 192.0.2.1 - - {COMBINED}": ("virtual host and combined", "192.0.2.1"),
    f"example.com:443 2001:db8::5 - jane {COMMON}": ("virtual host and common", "2001:db8::5"),
    f"example.com client.isp.example - - {COMMON}": (
        "virtual host and common",
        "client.isp.example",
    ),
}


@pytest.mark.parametrize("line", ONE_LINE)
def test_known_formats_are_told_by_a_line(line: str) -> None:
    name, address = ONE_LINE[line]
    request = read(line)
    assert (named(line), request.address) == (name, address)
    assert (request.time, request.url, request.status, request.bytes) == (MOMENT, "/a", 200, 100)
    assert request.user_agent == ("Example/1.0" if "Example" in line else "")


@pytest.mark.parametrize("front", ["", "example.com:443 ", "203.0.113.7, 198.51.100.3 "])
@pytest.mark.parametrize("rest", [COMBINED, COMMON, f"{COMBINED} 0.1"])
@pytest.mark.parametrize(
    ("logged", "user"),
    [
        (" -", "-"),
        (" john doe", "john doe"),
        (" jane@example.com", "jane@example.com"),
        (' ""', '""'),
        (" DOMAIN\\\\jane", "DOMAIN\\\\jane"),
        (' a\\"b', 'a\\"b'),
        (" ", "-"),
        ("", "-"),
    ],
)
def test_users_with_blanks_and_none(front: str, rest: str, logged: str, user: str) -> None:
    lines = [f"{front}192.0.2.1 - - {rest}", f"{front}192.0.2.1 -{logged} {rest}"]
    reader = Reader(detect([line.encode() for line in lines]).format)
    assert reader(lines[1].encode()).user == user
    assert reader(lines[1].encode()).address == reader(lines[0].encode()).address


@pytest.mark.parametrize(
    ("logged", "status"), [("000", 0), ("009", 9), ("499", 499), ("999", 999), ("-", 0)]
)
def test_statuses_that_servers_do_log(logged: str, status: int) -> None:
    assert read(f"192.0.2.1 - - {COMBINED}".replace(" 200 ", f" {logged} ")).status == status


def test_a_request_that_never_came() -> None:
    request = read(f'192.0.2.1 - - {TIME} "-" 408 - "-" "-"')
    assert (request.method, request.url, request.status, request.bytes) == ("-", "-", 408, None)


@pytest.mark.parametrize(
    ("logged", "address"),
    [
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::FFFF:192.0.2.1", "192.0.2.1"),
        ("::ffff:c000:201", "192.0.2.1"),
        ("0:0:0:0:0:ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::ffff:1", "2001:db8::ffff:1"),
        ("192.0.2.1:50123", "192.0.2.1"),
        ("[2001:db8::5]:50123", "2001:db8::5"),
        ("::1", "::1"),
        ("unix:", "unix:"),
    ],
)
def test_one_client_has_one_address(logged: str, address: str) -> None:
    assert read(f"{logged} - - {COMBINED}").address == address


@pytest.mark.parametrize("noise", [b"\xef\xbb\xbf", b"\0", b"\0" * 700, b"\0\0\xef\xbb\xbf"])
def test_what_is_not_text_does_not_enter_the_address(noise: bytes) -> None:
    assert read(noise + f"192.0.2.1 - - {COMBINED}".encode()).address == "192.0.2.1"


@pytest.mark.parametrize("ending", ["\r", "\0", "\r\0\0"])
def test_endings_are_no_part_of_a_line(ending: str) -> None:
    assert read(f"192.0.2.1 - - {COMMON}{ending}").bytes == 100
    assert read(f'192.0.2.1 - - {COMBINED} "-"{ending}').user_agent == "Example/1.0"


# --- JSON -----------------------------------------------------------------------------------------

CADDY = {
    "level": "info",
    "ts": MOMENT + 0.193625,
    "logger": "http.log.access.log0",
    "msg": "handled request",
    "request": {
        "remote_ip": "10.0.0.1",
        "remote_port": "50123",
        "client_ip": "192.0.2.1",
        "proto": "HTTP/2.0",
        "method": "GET",
        "host": "example.com",
        "uri": "/a?b=1",
        "headers": {"User-Agent": ["Example/1.0"], "Referer": ["https://example.org/"]},
        "tls": {"resumed": False, "version": 772, "proto": "h2"},
    },
    "bytes_read": 7,
    "user_id": "",
    "duration": 0.0009,
    "size": 100,
    "status": 200,
    "resp_headers": {"Server": ["Caddy"], "Content-Length": ["99"], "Date": ["Thu, 29 Feb 2024"]},
}
NGINX = {
    "time_local": "29/Feb/2024:10:05:03 +0000",
    "remote_addr": "192.0.2.1",
    "remote_user": "",
    "request": "GET /a?b=1 HTTP/2.0",
    "status": "200",
    "body_bytes_sent": "100",
    "request_time": "0.003",
    "http_referrer": "https://example.org/",
    "http_user_agent": "Example/1.0",
}
OTHER_NAMES = {
    "@timestamp": "2024-02-29T11:05:03+01:00",
    "client": "192.0.2.1",
    "method": "GET",
    "uri": "/a?b=1",
    "protocol": "HTTP/2.0",
    "status": 200,
    "bytes": 100,
    "referer": "https://example.org/",
    "user_agent": "Example/1.0",
}


def caddy(**changes: object) -> dict[str, object]:
    return {**CADDY, "request": CADDY["request"] | changes}  # type: ignore[operator]


@pytest.mark.parametrize(
    "record",
    [
        CADDY,
        CADDY | {"ts": "2024-02-29T10:05:03.193Z"},
        CADDY | {"ts": "2024/02/29 10:05:03".replace("/", "-")},
        CADDY | {"ts": MOMENT * 1000 + 193},
        CADDY | {"ts": MOMENT * 10**9 + 193},
        NGINX,
        NGINX | {"time_local": f"{MOMENT}.193"},
        NGINX | {"status": 200, "body_bytes_sent": 100},
        OTHER_NAMES,
        {"@timestamp": OTHER_NAMES["@timestamp"], "@nginx": OTHER_NAMES},
    ],
)
def test_json_is_read_by_names(record: dict[str, object]) -> None:
    request = read(json.dumps(record))
    assert named(json.dumps(record)) == "JSON"
    assert (request.address, request.time, request.user) == ("192.0.2.1", MOMENT, "-")
    assert (request.method, request.url) == ("GET", "/a?b=1")
    assert (request.status, request.bytes) == (200, 100)
    assert (request.referrer, request.user_agent) == ("https://example.org/", "Example/1.0")


def test_caddy_of_before_it_knew_client_ip() -> None:
    old = caddy(client_ip="", remote_ip="", remote_addr="192.0.2.1:50123")
    assert read(json.dumps(old)).address == "192.0.2.1"
    assert read(json.dumps(caddy(client_ip=""))).address == "10.0.0.1"


def test_a_quote_in_json_is_a_quote() -> None:
    request = read(json.dumps(CADDY | caddy(uri='/?q="ü"')))
    assert request.url == '/?q="ü"'


@pytest.mark.parametrize(
    ("line", "url"),
    [
        # What nginx writes without escape=json.
        (r'"request":"GET /?q=\x22 HTTP/1.1","upstream":-,"status":200,"took": }', r"/?q=\x22"),
        (r'"request":"GET /\\x22\x5C HTTP/1.1","status":200,"upstream":,"a":1}', r"/\x22\x5C"),
        (r'"request":"GET /:,\x22:-} HTTP/1.1","status":200}', r"/:,\x22:-}"),
    ],
)
def test_json_that_nginx_did_not_escape(line: str, url: str) -> None:
    front = '{"remote_addr":"192.0.2.1","time_iso8601":"2024-02-29T10:05:03+00:00",'
    request = read(front + line)
    assert (request.url, request.status, request.time) == (url, 200, MOMENT)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"status": 200},
        CADDY | {"logger": "http.log.error.log0"},
        {"level": "info", "ts": 1.5, "logger": "tls.obtain", "msg": "certificate obtained"},
        NGINX | {"status": "OK"},
        NGINX | {"status": 2000},
        NGINX | {"status": True},
        NGINX | {"body_bytes_sent": -1},
        NGINX | {"body_bytes_sent": 10**19},
        NGINX | {"time_local": "31/Feb/2024:10:05:03 +0000"},
        NGINX | {"time_local": "yesterday"},
        NGINX | {"time_local": float("nan")},
        NGINX | {"request": {"deep": [[[]]]}},
        CADDY | {"ts": float("inf")},
    ],
)
def test_json_that_is_no_request(record: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        read(json.dumps(record))


@pytest.mark.parametrize(
    "line", ['{"a":' * 5000, "{", "{}{}", "[]", '{"status":' + "9" * 5000 + "}"]
)
def test_what_is_nearly_json_is_malformed_and_nothing_worse(line: str) -> None:
    with pytest.raises(Malformed):
        read(line)


# --- which format is taken ------------------------------------------------------------------------


def test_the_format_that_most_lines_are_in_is_taken() -> None:
    lines = [f"192.0.2.1 - - {COMMON}"] * 3 + [f"192.0.2.1 - - {COMBINED}"] * 2 + ["garbage"]
    found = detect([line.encode() for line in lines])
    assert (found.format.name, found.lines, found.fitting) == ("common", 6, 3)
    assert (dict(found.others), found.read, found.misfit) == ({"combined": 2}, 5, b"garbage")


def test_a_log_whose_format_changes_in_the_middle_is_read_to_its_end() -> None:
    before = f"192.0.2.1 - - {COMMON}"
    after = [
        f"192.0.2.2 - - {COMBINED}",
        f'192.0.2.2 - - {COMBINED} "-"',
        f"example.com:80 192.0.2.2 - - {COMBINED}",
        f"192.0.2.2 10.0.0.1 - - {COMBINED}",
        json.dumps(caddy(client_ip="192.0.2.2")),
    ]
    reader = Reader(detect([before.encode()] * 10).format)
    assert reader(before.encode()).address == "192.0.2.1"
    assert {reader(line.encode()).address for line in after} == {"192.0.2.2"}
    assert all(reader(line.encode()).user_agent == "Example/1.0" for line in after)


def test_what_is_left_of_a_longer_line_is_not_taken_for_common() -> None:
    """Its size may have been cut off, too."""
    whole = f"192.0.2.1 - - {COMBINED}".encode()
    cut = whole[: whole.index(b'00 "-"')]
    assert Reader(format_of("common"))(cut).bytes == 1
    with pytest.raises(Malformed):
        Reader(detect([whole] * 2 + [cut]).format)(cut)


def test_a_line_is_read_in_the_format_that_was_taken_before_any_other() -> None:
    line = f"192.0.2.2 10.0.0.1 - - {COMBINED}".encode()
    assert Reader(format_of("X-Forwarded-For and combined"))(line).address == "192.0.2.2"
    assert Reader(format_of("virtual host and combined"))(line).address == "10.0.0.1"


@pytest.mark.parametrize("front", ["X-Forwarded-For", "virtual host"])
def test_a_line_with_nothing_in_front_is_read_as_such(front: str) -> None:
    request = read(f"192.0.2.1 - jane {COMBINED}", f"{front} and combined")
    assert (request.address, request.user) == ("192.0.2.1", "jane")


# --- format strings: whatever is rendered by one is read by it ------------------------------------

words = st.text(string.ascii_letters + string.digits + "_", min_size=1, max_size=12)
paths = st.text(string.ascii_letters + "/.=&?-%", max_size=20).map("/{}".format)
texts = st.lists(
    st.sampled_from([*" aZ9()[]{}|;:,.%$'&=", '\\"', "\\x22", "\\\\", "ü"]), max_size=20
).map("".join)
records = st.fixed_dictionaries(
    {
        "address": st.ip_addresses().map(str).filter(lambda text: "ffff" not in text),
        "user": st.lists(words, min_size=1, max_size=2).map(" ".join),
        "time": st.integers(0, 4102444799),
        "zone": st.integers(-14 * 60, 14 * 60),
        "method": st.sampled_from(["GET", "POST", "PURGE"]),
        "target": paths,
        "status": st.integers(0, 999),
        "bytes": st.none() | st.integers(0, 10**15),
        "referrer": texts.filter(bool),
        "user_agent": texts.filter(bool),
        "anything": words,
    }
)


@dataclass(frozen=True)
class Record:
    """A request, as each of a server's fields writes it."""

    said: dict[str, object]

    def field(self, name: str) -> str:
        said = self.said
        local = datetime.fromtimestamp(said["time"], timezone(timedelta(minutes=said["zone"])))  # type: ignore[arg-type]
        clf = f"{local:%d/%b/%Y:%H:%M:%S %z}"
        request = f"{said['method']} {said['target']} HTTP/1.1"
        path, mark, query = str(said["target"]).partition("?")
        size = "-" if said["bytes"] is None else str(said["bytes"])
        status = f"{said['status']:03}"
        text = {
            **dict.fromkeys(("%h", "%a", "$remote_addr"), said["address"]),
            **dict.fromkeys(("%u", "$remote_user"), said["user"]),
            **dict.fromkeys(("%r", "$request"), request),
            **dict.fromkeys(("%s", "%>s", "$status"), status),
            **dict.fromkeys(("%b", "%O", "$body_bytes_sent", "$bytes_sent"), size),
            **dict.fromkeys(("%m", "$request_method"), said["method"]),
            **dict.fromkeys(("%H", "$server_protocol"), "HTTP/1.1"),
            "$request_uri": said["target"],
            "%U": path,
            "%q": mark + query,
            "$uri": path,
            "$is_args": mark,
            "$args": query,
            **dict.fromkeys(("%{Referer}i", "%{referer}i", "$http_referer"), said["referrer"]),
            **dict.fromkeys(("%{User-Agent}i", "$http_user_agent"), said["user_agent"]),
            "%t": f"[{clf}]",
            "$time_local": clf,
            "$time_iso8601": local.isoformat(),
            "$msec": f"{said['time']}.042",
            "%{sec}t": str(said["time"]),
            "%{msec}t": f"{said['time']}042",
            "%{msec_frac}t": "042",
        }.get(name)
        if text is not None:
            return str(text)
        if name.endswith("}t"):
            return local.strftime(name[2:-2].removeprefix("begin:"))
        return str(said["anything"])


def rendered(format: str, record: Record) -> bytes:
    """A log's line, as a server makes it of its format."""
    names = r"%>?(?:\{[^}]*\})?[a-zA-Z]" if "$" not in format else r"\$\w+"
    return re.sub(names, lambda match: record.field(match[0]), format).encode()


FORMATS = [
    '%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i" %D',
    '%v:%p %h %l %u %t "%r" %s %O "%{Referer}i" "%{User-Agent}i"',
    '%h %u [%{%d/%b/%Y:%T}t.%{msec_frac}t %{%z}t] "%r" %>s %b "%{referer}i" "%{User-Agent}i"',
    '%{%Y-%m-%dT%H:%M:%S%z}t|%h|%u|%r|%>s|%b|"%{Referer}i"|"%{User-Agent}i"',
    '%{sec}t %a %u "%m %U%q %H" %>s %b "%{Referer}i" "%{User-Agent}i"',
    '%{begin:%F %T %z}t\t%h\t%u\t%r\t%>s\t%b\t"%{Referer}i"\t"%{User-Agent}i"',
    '$remote_addr - $remote_user [$time_local] "$request" $status $bytes_sent "$http_referer" '
    '"$http_user_agent" "$http_x_forwarded_for" $request_time $upstream_addr [$pipe]',
    '$time_iso8601 $remote_addr $remote_user [$host] "$request_method $scheme://$host$request_uri '
    '$server_protocol" $status $body_bytes_sent "$http_referer" "$http_user_agent"',
    '{"t":"$time_iso8601","who":"$remote_addr","u":"$remote_user","r":"$request","s":$status,'
    '"b":"$body_bytes_sent","ref":"$http_referer","ua":"$http_user_agent","x":"$request_id"}',
    "$msec;$remote_addr;$remote_user;$request_method;$uri$is_args$args;$server_protocol;$status;"
    '$body_bytes_sent;"$http_referer";"$http_user_agent"',
]


@pytest.mark.parametrize("format", FORMATS)
@given(said=records)
def test_what_a_format_renders_it_reads(format: str, said: dict[str, object]) -> None:
    if ";" in format:  # what stands between unquoted fields can't stand in them
        said = said | {"target": str(said["target"]).replace(";", "")}
    request = read(rendered(format, Record(said)), format)
    assert (request.method, request.url) == (said["method"], said["target"])
    names = ("address", "user", "time", "status", "bytes", "referrer", "user_agent")
    assert {name: getattr(request, name) for name in names} == {name: said[name] for name in names}


@pytest.mark.parametrize(
    "given",
    [
        'LogFormat "%h %l %u %t \\"%r\\" %>s %b \\"%{User-Agent}i\\"" mine',
        "log_format mine '$remote_addr - $remote_user [$time_local] '\n"
        '    \'"$request" $status $body_bytes_sent "$http_user_agent"\';',
        "log_format mine escape=json '$remote_addr - $remote_user [$time_local] "
        '"$request" $status $body_bytes_sent "$http_user_agent"\';',
        '%h %l %u %t \\"%r\\" %>s %b \\"%{User-Agent}i\\"',
        '%400,501h %l %u %t "%!200,304r" %>s %b "%{User-agent}i"',
        '${remote_addr} - $remote_user [$time_local] "$request" $status $bytes_sent '
        '"$http_user_agent"',
    ],
)
def test_a_format_is_given_as_it_stands_in_the_configuration(given: str) -> None:
    request = read(f'192.0.2.1 - john doe {COMMON} "Example/1.0"', given)
    assert (request.address, request.user, request.url) == ("192.0.2.1", "john doe", "/a")
    assert (request.time, request.bytes, request.user_agent) == (MOMENT, 100, "Example/1.0")


def test_a_list_of_upstreams_is_one_field() -> None:
    format = '$remote_addr [$time_local] "$request" $status $upstream_response_time $bytes_sent'
    line = f'192.0.2.1 {TIME} "GET /a HTTP/1.1" 200 0.001, 0.002 100'
    assert read(line, format).bytes == 100


def test_the_visitor_is_the_first_address_that_was_logged() -> None:
    own = '%{X-Forwarded-For}i %a %l %u %t "%r" %>s %b "%{CF-Connecting-IP}i"'
    assert read(f'- - - - {COMMON} "203.0.113.7"', own).address == "203.0.113.7"
    assert read(f'- 10.0.0.1 - - {COMMON} "203.0.113.7"', own).address == "10.0.0.1"
    # To count by what a proxy says, the other field gets a name that means nothing.
    main = KNOWN[0].name
    assert main == "nginx main"
    proxied = '$proxy - $remote_user [$time_local] "$request" $status $bytes_sent "$http_x_real_ip"'
    assert read(f'10.0.0.1 - - {COMMON} "203.0.113.7"', proxied).address == "203.0.113.7"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "has no field for a client's address"),
        ("combinde", "has no field for a client's address"),
        ('%t "%r" %>s', "a client's address"),
        ('%h "%r" %>s', "a time"),
        ('%h %{%H:%M}t "%r" %>s', "a time"),
        ("%h %t %>s %U", "a request"),
        ('%h %t "%r"', "a status"),
        ('%h %{%I:%M %p}t "%r" %>s', "%I of"),
    ],
)
def test_a_format_that_lacks_what_an_event_needs_is_refused(given: str, reason: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(reason)):
        format_of(given)


@pytest.mark.parametrize("known", KNOWN, ids=lambda one: one.name)
def test_a_known_format_is_given_by_its_name(known: object) -> None:
    assert format_of(known.name) is known  # type: ignore[attr-defined]


HOSTILE: list[Callable[[int], str]] = [
    lambda n: "- " * n,
    lambda n: "a, " * n,
    lambda n: "1.1.1.1, " * n + f"- - {TIME}",
    lambda n: f"192.0.2.1 - {'x ' * n}",
    lambda n: f"192.0.2.1 - - {TIME} " * n,
    lambda n: f'192.0.2.1 - - {TIME} "{"GET / " * n}',
    lambda n: f'192.0.2.1 - - {TIME} "{chr(92) * n}',
    lambda n: f"192.0.2.1 - - {COMBINED} {'[17/May/2015:' * n}",
    lambda n: ":" * n + " - - " + COMBINED[:20],
]


@pytest.mark.parametrize("make", HOSTILE)
def test_no_line_takes_long_to_be_refused(make: Callable[[int], str]) -> None:
    """Steps that grow by the square of a line's length would not end here for hours."""
    line = make(100_000).encode()
    assert detect([line]).fitting == 0
    own = '%{A}i %{B}i %{C}i %h %u %{D}i %t "%{E}i %U %{F}i %m" %>s %{G}i %{H}i'
    with pytest.raises(Malformed):
        read(line, own)


# --- what the document says -----------------------------------------------------------------------

DOCUMENT = (REPO / "docs" / "replay.md").read_text()


def test_the_document_has_every_known_format_with_a_line_of_it() -> None:
    rows = re.findall(r"^\| ([^|]+) \| `(.+)` \|$", DOCUMENT, re.MULTILINE)
    assert [(name, named(line)) for name, line in rows] == [(one.name, one.name) for one in KNOWN]


def test_the_document_has_formats_that_are_read() -> None:
    given = re.findall(r"--format '([^']+)'", DOCUMENT)
    assert len(given) == 3
    lines = [
        '192.0.2.1 - [29/Feb/2024:10:05:03.123 +0000] "GET /a HTTP/1.1" 200 100 17',
        "192.0.2.1|2024-02-29T10:05:03+00:00|GET /a HTTP/1.1|200|100",
        f'10.0.0.1 - - {COMBINED} "192.0.2.1, 198.51.100.3"',
    ]
    for one, line in zip(given, lines, strict=True):
        request = read(line, one)
        assert (request.address, request.time, request.url) == ("192.0.2.1", MOMENT, "/a")
