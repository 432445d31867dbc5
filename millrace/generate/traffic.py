"""A model of a website's visitors. Pure and seeded: the same arguments give the same log.

People come in sessions, more of them in the afternoon, some of them again and again. Few pages get
most of the views (Zipf). A browser fetches a page's assets with it, a crawler doesn't. Now and then
something is missing, moved or broken, and now and then a line of the log is cut short.
"""

import heapq
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, count

from millrace.weblog import Request, format_line

PAGES = 400
VISITORS = 5000  # that come again; others come once
CRAWLER_SHARE = 0.15
RETURNING_SHARE = 0.6
PAGES_PER_SESSION = 4.0
SECONDS_PER_PAGE = 40.0
ASSETS_PER_PAGE = 2.5
DAMAGED_SHARE = 1 / 5000
WARM_UP = 600  # seconds before the start, whose sessions are still going on at the start
DAY = 86400
BUSIEST_HOUR = 15

# What a session amounts to, to turn a rate of requests into one of sessions.
REQUESTS_PER_SESSION = PAGES_PER_SESSION * (1 + (1 - CRAWLER_SHARE) * ASSETS_PER_PAGE)

BROWSERS = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/126.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/17.5 Safari/605.1.15",
    "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like "
    "Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
)
CRAWLERS = (
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    "curl/8.5.0",
)
ENTRANCES = (
    "-",
    "https://www.google.com/",
    "https://news.ycombinator.com/",
    "https://duckduckgo.com/",
)
SECTIONS = ("blog", "projects", "docs", "articles")
WORDS = ("stream", "window", "river", "wheel", "log", "state", "clock", "order", "replay", "quorum")
ASSETS = ("/static/site.css", "/static/site.js", "/images/logo.png", "/favicon.ico")
STATUSES = {200: 91, 304: 3, 301: 2, 404: 3, 500: 0.5, 503: 0.5}
HAVE_BODY = {200, 404, 500, 503}


@dataclass(frozen=True, order=True, slots=True)
class Hit:
    """A request that will happen; ``number`` settles the order within a moment."""

    time: float
    number: int
    visitor: str
    agent: str
    url: str
    referrer: str


class Website:
    """Pages with their weights, and what asking for them gives."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._pages = ["/"] + [self._page(rank) for rank in range(1, PAGES)]
        self._weights = list(accumulate(1 / rank for rank in range(1, PAGES + 1)))
        self._numbers = count()

    def hits(self, start: float, end: float, rate: float, rhythm: bool) -> Iterator[Hit]:
        """Yields what is requested between two moments, in order, ``rate`` a second on average."""
        waiting: list[Hit] = []
        sessions = rate / REQUESTS_PER_SESSION
        for arrival in self._arrivals(start - WARM_UP, end, sessions, rhythm):
            while waiting and waiting[0].time <= arrival:
                yield heapq.heappop(waiting)
            for hit in self._session(arrival):
                if start <= hit.time < end:
                    heapq.heappush(waiting, hit)
        while waiting:
            yield heapq.heappop(waiting)

    def line(self, hit: Hit) -> bytes:
        """The log's line for a hit, without newline; now and then one that was cut short."""
        line = format_line(self._request(hit))
        if self._random.random() < DAMAGED_SHARE:
            return line[: self._random.randrange(len(line) // 2, len(line))]
        return line

    def _page(self, rank: int) -> str:
        words = "-".join(self._random.sample(WORDS, 2))
        return f"/{SECTIONS[rank % len(SECTIONS)]}/{words}-{rank}/"

    def _arrivals(self, start: float, end: float, rate: float, rhythm: bool) -> Iterator[float]:
        """Sessions begin at random (a Poisson process), the more the busier the hour."""
        peak = rate * (_rhythm(BUSIEST_HOUR * 3600) if rhythm else 1.0)
        moment = start
        while (moment := moment + self._random.expovariate(peak)) < end:
            if not rhythm or self._random.random() * peak < rate * _rhythm(moment):
                yield moment

    def _session(self, moment: float) -> Iterator[Hit]:
        crawler = self._random.random() < CRAWLER_SHARE
        visitor = self._visitor()
        agent = self._random.choice(CRAWLERS if crawler else BROWSERS)
        referrer = "-" if crawler else self._random.choice(ENTRANCES)
        while True:
            [page] = self._random.choices(self._pages, cum_weights=self._weights)
            yield Hit(moment, next(self._numbers), visitor, agent, page, referrer)
            referrer = "-" if crawler else f"https://www.example.org{page}"
            if not crawler:
                for asset in range(self._count(ASSETS_PER_PAGE)):
                    later = moment + self._random.uniform(0.1, 2.0)
                    url = ASSETS[asset % len(ASSETS)]
                    yield Hit(later, next(self._numbers), visitor, agent, url, referrer)
            if self._random.random() < 1 / PAGES_PER_SESSION:
                return
            moment += self._random.expovariate(1 / SECONDS_PER_PAGE)

    def _visitor(self) -> str:
        """An address; low numbers come often. Documentation and benchmark networks only."""
        if self._random.random() < RETURNING_SHARE:
            number = int(VISITORS ** self._random.random())
            return f"198.18.{number >> 8}.{number & 255}"
        return f"198.19.{self._random.randrange(256)}.{self._random.randrange(256)}"

    def _count(self, mean: float) -> int:
        return min(int(self._random.expovariate(1 / (mean + 0.5))), 12)

    def _request(self, hit: Hit) -> Request:
        [status] = self._random.choices(list(STATUSES), list(STATUSES.values()))
        return Request(
            address=hit.visitor,
            identity="-",
            user="-",
            time=int(hit.time),
            offset=0,
            request=f"GET {hit.url} HTTP/1.1",
            status=status,
            bytes=int(self._random.lognormvariate(9, 1.2)) if status in HAVE_BODY else None,
            referrer=hit.referrer,
            user_agent=hit.agent,
        )


def _rhythm(moment: float) -> float:
    """Returns how busy a moment of the day is; 1 on average over a day."""
    return 1 + 0.6 * math.cos(2 * math.pi * (moment / DAY - BUSIEST_HOUR / 24))
