"""The recount, held to a log counted by hand and to what is known of the real one."""

import gzip
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from millrace.audit.page_views import PageViewRule
from millrace.common.paths import REPO
from tests.recount import Recount, recount

REAL_LOG = REPO.parent / "shared" / "data" / "access.log"
RULE = PageViewRule(
    methods=["GET"], statuses=[200], asset_extensions=["css", "png"], page_characters=512
)
LOG = b"""\
10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 100 "-" "-"
10.0.0.1 - - [17/May/2015:10:05:59 +0000] "GET /a?b=1 HTTP/1.1" 200 10 "-" "-"
10.0.0.2 - - [17/May/2015:12:06:00 +0200] "GET /a.PNG HTTP/1.1" 200 1 "-" "-"
10.0.0.2 - - [17/May/2015:11:00:00 +0000] "POST /a HTTP/1.1" 302 - "-" "-"
10.0.0.3 - - [17/May/2015:10:59:59 +0000] "GET /b HTTP/1.1" 404 7 "-" "-"
10.0.0.3 - - [17/May/2015:10:59:59 +0000] "GET /b HTTP/1.1" 199 7 "-" "-"
10.0.0.3 - - [17/May/2015:10:59:59 +0000] "GET /b HT
"""


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.fixture
def counted(tmp_path: Path) -> Recount:
    path = tmp_path / "access.log"
    path.write_bytes(LOG)
    return recount(str(path), RULE, 1000)


def test_the_whole_log(counted: Recount) -> None:
    total = counted.total
    assert (total.requests, total.page_views, total.bytes) == (6, 2, 125)
    assert total.status == {"2xx": 3, "3xx": 1, "4xx": 1, "5xx": 0, "other": 1}
    assert total.clients == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
    assert counted.malformed == 1
    assert counted.pages == Counter({"/a": 2})
    assert counted.first == moment("2015-05-17T10:05:03")
    assert counted.last == moment("2015-05-17T11:00:00")


LINE = '[29/Feb/2024:10:05:03 +0000] "GET /a HTTP/1.1" 200 100 "-" "Example/1.0"'
STOCK = {
    "nginx main": [
        f'192.0.2.1 - - {LINE} "-"',
        f'192.0.2.2 - - {LINE} "203.0.113.7"',
        f'192.0.2.2 - - {LINE} "203.0.113.7, 198.51.100.3"',
        f'2001:db8::5 - - {LINE} "-"',
    ],
    "users": [
        f"192.0.2.1 - jane@example.com {LINE}",
        f"192.0.2.2 - john doe {LINE}",
        f'192.0.2.3 - "" {LINE}',
        f"192.0.2.1 - DOMAIN\\\\jane {LINE}",
    ],
    "marks": [
        f"\ufeff192.0.2.1 - - {LINE}",
        f"192.0.2.1 - - {LINE}",
        f"\ufeff192.0.2.2 - - {LINE}",
        f"192.0.2.3 - - {LINE}",
    ],
    "statuses": [
        f"192.0.2.1 - - {LINE}",
        f"192.0.2.1 - - {LINE}".replace("GET /a", "CONNECT example.com:443").replace("200", "000"),
        f"192.0.2.2 - - {LINE}".replace(" HTTP/1.1", "").replace(" 200 ", " 009 "),
        f"192.0.2.3 - - {LINE}".replace("GET /a HTTP/1.1", "-").replace(" 200 ", " 499 "),
    ],
}


@pytest.mark.parametrize(
    "form", [bytes, gzip.compress, lambda log: gzip.compress(log) + bytes(512)]
)
@pytest.mark.parametrize("kind", STOCK)
def test_logs_as_servers_write_them(
    tmp_path: Path, kind: str, form: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(form("\n".join(STOCK[kind]).encode()))
    counted = recount(str(path), RULE, 1000)
    total = counted.total
    assert (counted.malformed, total.requests, len(total.clients)) == (0, 4, 3)
    assert total.bytes == 400
    views = 1 if kind == "statuses" else 4
    assert (total.page_views, counted.pages) == (views, Counter({"/a": views}))
    assert (total.status["2xx"], total.status["other"]) == (views, 2 if kind == "statuses" else 0)


def test_slots_of_visitors(counted: Recount) -> None:
    assert sorted((start, count) for (start, _), count in counted.slots.items()) == [
        (moment("2015-05-17T10:00"), 1),
        (moment("2015-05-17T10:00"), 2),
        (moment("2015-05-17T10:30"), 2),
        (moment("2015-05-17T11:00"), 1),
    ]
    assert len({visitor for _, visitor in counted.slots}) == 3


def test_sessions_of_visitors(counted: Recount) -> None:
    sessions = sorted((len(one), one[0]) for one in counted.sessions())
    assert sessions == [  # 10:06 and 11:00 are two, though of one visitor
        (1, moment("2015-05-17T10:06")),
        (1, moment("2015-05-17T11:00")),
        (2, moment("2015-05-17T10:05:03")),
        (2, moment("2015-05-17T10:59:59")),
    ]


def test_windows(counted: Recount) -> None:
    assert {start: counts.requests for start, counts in counted.hours.items()} == {
        moment("2015-05-17T10:00"): 5,
        moment("2015-05-17T11:00"): 1,
    }
    assert {start: counts.requests for start, counts in counted.minutes.items()} == {
        moment("2015-05-17T10:05"): 2,
        moment("2015-05-17T10:06"): 1,
        moment("2015-05-17T10:59"): 2,
        moment("2015-05-17T11:00"): 1,
    }


def test_a_shift_moves_the_windows_and_nothing_else(tmp_path: Path, counted: Recount) -> None:
    path = tmp_path / "access.log"
    moved = recount(str(path), RULE, 1000, shift_hours=24)
    assert moved.total == counted.total
    assert min(moved.hours) == moment("2015-05-18T10:00")


@pytest.mark.parametrize(
    ("old", "new", "page_views"),
    [
        (b"GET /a HTTP", b"HEAD /a HTTP", 1),
        (b'" 200 100', b'" 304 100', 1),
        (b"GET /a HTTP", b"GET /a.css?v=2 HTTP", 1),
        (b"GET /a HTTP", b"GET /a.css/b HTTP", 2),
        (b"GET /a HTTP", b"GET /#a.css HTTP", 2),
    ],
)
def test_what_a_page_view_is(tmp_path: Path, old: bytes, new: bytes, page_views: int) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(LOG.replace(old, new, 1))
    assert recount(str(path), RULE, 1000).total.page_views == page_views


@pytest.mark.skipif(not REAL_LOG.exists(), reason="the real log isn't beside the project")
def test_the_real_log() -> None:
    counted = recount(str(REAL_LOG), RULE, 1_000_000)
    assert counted.total.requests == 9999
    assert len(counted.total.clients) == 1753
    assert counted.malformed == 1
    assert counted.total.bytes == 2747282505
    assert counted.first
    assert counted.first.date().isoformat() == "2015-05-17"
    assert counted.last
    assert counted.last.date().isoformat() == "2015-05-20"
