"""Generated traffic: a valid log, the same for the same seed, shaped like a website's."""

from collections import Counter
from itertools import islice, pairwise

import pytest

from millrace.generate.traffic import DAY, Website
from millrace.weblog import Malformed, Request, parse_line

START = 1_700_000_000 // DAY * DAY


def log(seed: int = 1, rate: float = 0.5, rhythm: bool = True) -> list[bytes]:
    website = Website(seed)
    return [website.line(hit) for hit in website.hits(START, START + DAY, rate, rhythm)]


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    return log()


@pytest.fixture(scope="module")
def requests(lines: list[bytes]) -> list[Request]:
    parsed = []
    for line in lines:
        try:
            parsed.append(parse_line(line))
        except Malformed:
            continue
    return parsed


def test_a_seed_is_a_log() -> None:
    def beginning(seed: int) -> list[bytes]:
        website = Website(seed)
        return [website.line(hit) for hit in islice(website.hits(START, START + DAY, 1, True), 100)]

    assert beginning(1) == beginning(1)
    assert beginning(1) != beginning(2)


def test_few_lines_are_cut_short(lines: list[bytes], requests: list[Request]) -> None:
    assert 0 < len(lines) - len(requests) < len(lines) / 1000


def test_a_log_is_in_order_and_within_its_span(requests: list[Request]) -> None:
    assert all(earlier.time <= later.time for earlier, later in pairwise(requests))
    assert requests[0].time >= START
    assert requests[-1].time < START + DAY


def test_the_rate_is_the_one_asked_for(lines: list[bytes]) -> None:
    assert len(lines) == pytest.approx(0.5 * DAY, rel=0.1)


def test_a_site_is_as_busy_at_its_beginning_as_later() -> None:
    website = Website(3)
    hits = [hit.time - START for hit in website.hits(START, START + 1200, 20, rhythm=False)]
    first_half = sum(time < 600 for time in hits)
    assert first_half / len(hits) == pytest.approx(0.5, abs=0.05)


def test_afternoons_are_busier_than_nights(requests: list[Request]) -> None:
    hours = Counter(request.time % DAY // 3600 for request in requests)
    assert hours[15] > 2 * hours[3]


def test_few_pages_get_most_views(requests: list[Request]) -> None:
    pages = Counter(request.url for request in requests if request.url.endswith("/"))
    assert sum(views for _, views in pages.most_common(20)) > pages.total() / 2


def test_visitors_return(requests: list[Request]) -> None:
    visitors = Counter(request.address for request in requests)
    assert visitors.most_common(1)[0][1] > 10 * len(requests) / len(visitors)


def test_most_requests_succeed_and_some_do_not(requests: list[Request]) -> None:
    classes = Counter(request.status // 100 for request in requests)
    assert classes[2] > 0.85 * len(requests)
    assert all(classes[status] for status in (3, 4, 5))
