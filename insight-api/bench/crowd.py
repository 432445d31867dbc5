#!/usr/bin/env python3
"""Many readers at once against one edge host: what do the polite ones notice of the others?

    insight-api/bench/crowd.py http://ADDRESS:8080 [--seconds 30] [--viewers 60] [--years 1]
        [--only ROLE …] [--reader-p99-ms 200]

Roles, all at the same time:

- ``viewers``: live pages, each with its stream and what its page asks, as often as it asks it;
- ``reader``: two hours of traffic, five times a second: the figure to look at;
- ``scanner``: whatever comes to its mind, as fast as it gets answers;
- ``year``: totals of a year, weeks of top pages and days of dead letters, eight at once by each of
  ``--years`` clients; one that is refused waits as long as it is told to.

The API's limits go by address. On loopback each viewer and each role has an address of its own;
anywhere else all of them share this machine's, so run roles from several hosts with ``--only``, or
all of them on the edge host itself: pack.py makes one file of this.

Prints the latencies (50th and 99th percentile) and the counts of statuses by role. Ends with 1 if
there was a 5xx other than 503 with Retry-After, a connection that broke, or a reader who had to
wait for longer than ``--reader-p99-ms``.
"""

import argparse
import asyncio
import itertools
import random
import ssl
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from statistics import quantiles
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
from rich.console import Console
from rich.table import Table

Item = TypeVar("Item")

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TIMEOUT_SECONDS = 30.0
ROLES = ["viewers", "reader", "scanner", "year"]
PAGE_SECONDS = 3.0  # page.js: SOONEST_MS
PAGE_SLOWLY_EVERY = 5  # page.js: SLOW_MS
READER_SECONDS = 0.2
SCANNER_AT_ONCE = 10
YEARS_AT_ONCE = 8


@dataclass
class Seen:
    """Latencies in seconds of what was answered with 200, and how often each status came."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)

    failed: bool = False

    def note(self, answer: httpx.Response) -> None:
        status = str(answer.status_code)
        self.statuses[status] += 1
        if status >= "500" and not (status == "503" and "retry-after" in answer.headers):
            self.failed = True

    def broke(self, error: httpx.HTTPError) -> None:
        self.statuses[type(error).__name__] += 1
        self.failed = True

    def percentile(self, percent: int) -> float:
        return quantiles(self.seconds, n=100)[percent - 1] if len(self.seconds) > 1 else 0.0


class Crowd:
    """Asks one address, and notes what a role sees."""

    def __init__(self, url: str, role: str, seconds: float) -> None:
        self._url = url
        self._loopback = urlsplit(url).hostname == "127.0.0.1"
        # Roles run in processes of their own: each gets its own hundred addresses.
        first = IPv4Address("127.0.1.1") + 100 * ROLES.index(role)
        self._addresses = (str(first + n) for n in itertools.count())
        self._tls = ssl.create_default_context()  # once: it reads all the authorities' keys
        self.seen: defaultdict[str, Seen] = defaultdict(Seen)
        self._deadline = time.monotonic() + seconds

    @property
    def going_on(self) -> bool:
        return time.monotonic() < self._deadline

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """One client of the API: where that can be, with an address of its own."""
        address = next(self._addresses) if self._loopback else None
        transport = httpx.AsyncHTTPTransport(verify=self._tls, local_address=address)
        async with httpx.AsyncClient(
            base_url=self._url, transport=transport, timeout=TIMEOUT_SECONDS
        ) as client:
            yield client

    async def ask(self, role: str, client: httpx.AsyncClient, path: str, **query: object) -> float:
        """Asks once; the seconds after which it makes sense to ask again."""
        seen = self.seen[role]
        began = time.perf_counter()
        try:
            answer = await client.get(path, params=query)  # type: ignore[arg-type]
        except httpx.HTTPError as error:
            seen.broke(error)
            return 0.0
        seen.note(answer)
        if answer.status_code == httpx.codes.OK:
            seen.seconds.append(time.perf_counter() - began)
        return float(answer.headers.get("retry-after", 0))

    async def viewer(self) -> None:
        async with self.client() as client:
            await asyncio.sleep(random.uniform(0, PAGE_SECONDS))
            following = asyncio.create_task(self._follow(client))
            for turn in itertools.count():
                if not self.going_on:
                    break
                await self._page(client, turn)
                await asyncio.sleep(PAGE_SECONDS)
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    async def _page(self, client: httpx.AsyncClient, turn: int) -> None:
        week = until(floor_to_hour() + HOUR, 7 * DAY)
        asked = [
            self.ask("viewers", client, "/v1/traffic", window="1h", **week),
            self.ask("viewers", client, "/v1/traffic/total", **week),
            self.ask("viewers", client, "/v1/extent"),
        ]
        if turn % PAGE_SLOWLY_EVERY == 0:
            day = until(datetime.now(UTC).replace(second=0, microsecond=0), DAY)
            asked += [
                self.ask("viewers", client, "/v1/pages/top", k=12, **week),
                self.ask("viewers", client, "/v1/dead-letters", limit=3, **day),
                self.ask("viewers", client, "/v1/progress"),
                self.ask("viewers", client, "/v1/status"),
            ]
        await asyncio.gather(*asked)

    async def _follow(self, client: httpx.AsyncClient) -> None:
        """The live stream, with all that comes."""
        seen = self.seen["streams"]
        try:
            async with client.stream("GET", "/v1/stream") as answer:
                seen.note(answer)
                async for line in answer.aiter_lines():
                    if line.startswith("event: "):
                        seen.statuses[line.removeprefix("event: ")] += 1
        except httpx.HTTPError as error:
            seen.broke(error)

    async def reader(self) -> None:
        async with self.client() as client:
            while self.going_on:
                hours = until(floor_to_hour() + HOUR, 2 * HOUR)
                await self.ask("reader", client, "/v1/traffic", window="1m", **hours)
                await asyncio.sleep(READER_SECONDS)

    async def scanner(self) -> None:
        async with self.client() as client:
            await self._at_once(
                SCANNER_AT_ONCE, lambda path: self.ask("scanner", client, path), probes()
            )

    async def year(self) -> None:
        async with self.client() as client:

            async def ask(days: int) -> None:
                # Never the same range twice: nothing is to be had from what was asked before.
                end = floor_to_hour() - days * HOUR
                path, length = random.choice(
                    [
                        ("/v1/traffic/total", 365 * DAY),
                        ("/v1/pages/top", 7 * DAY),
                        ("/v1/traffic", 31 * DAY),
                        ("/v1/dead-letters", 2 * DAY),
                    ]
                )
                await asyncio.sleep(await self.ask("year", client, path, **until(end, length)))

            await self._at_once(YEARS_AT_ONCE, ask, itertools.count())

    async def _at_once(
        self, many: int, ask: Callable[[Item], Awaitable[None]], items: Iterator[Item]
    ) -> None:
        """So many questions at the same time, one after the other each, as long as it goes on."""

        async def one() -> None:
            while self.going_on:
                await ask(next(items))

        await asyncio.gather(*(one() for _ in range(many)))


def probes() -> Iterator[str]:
    """What a scanner tries: files that aren't there, and routes with nonsense."""
    yield from itertools.cycle(
        [
            "/.env",
            "/admin/login.php",
            "/v1/traffic?from=1&to=2",
            "/v1/traffic/total?from=0001-01-01T00:00:00Z&to=9999-12-31T00:00:00Z",
            "/v1/pages/top?k=-1",
            "/v1/extent",
            "/v1/status",
            "/docs",
            "/",
        ]
    )


def until(end: datetime, length: timedelta) -> dict[str, str]:
    """The parameters of the range of that length that ends there."""
    return {"from": (end - length).isoformat(), "to": end.isoformat()}


def floor_to_hour() -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


def play(role: str, url: str, many: int, seconds: float) -> dict[str, Seen]:
    """One role from its beginning to its end, by so many clients; what they saw."""
    crowd = Crowd(url, role, seconds)
    actor = {
        "viewers": crowd.viewer,
        "reader": crowd.reader,
        "scanner": crowd.scanner,
        "year": crowd.year,
    }[role]

    async def together() -> None:
        with suppress(TimeoutError):  # an answer that doesn't come keeps nobody here
            async with asyncio.timeout(seconds + TIMEOUT_SECONDS):
                await asyncio.gather(*(actor() for _ in range(many)))

    asyncio.run(together())
    return dict(crowd.seen)


def table(seen_by: dict[str, Seen], seconds: float) -> Table:
    made = Table(title=f"{seconds:.0f} s of a crowd", title_justify="left")
    made.add_column("who")
    for column in ("answered", "p50 ms", "p99 ms", "slowest ms"):
        made.add_column(column, justify="right")
    made.add_column("statuses")
    for who, seen in seen_by.items():
        statuses = "  ".join(f"{name}: {count:,}" for name, count in sorted(seen.statuses.items()))
        latencies = (seen.percentile(50), seen.percentile(99), max(seen.seconds, default=0.0))
        milliseconds = [f"{1000 * value:,.0f}" if seen.seconds else "–" for value in latencies]
        made.add_row(who, f"{len(seen.seconds):,}", *milliseconds, statuses)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", help="of one edge host's API")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--viewers", type=int, default=60)
    parser.add_argument("--years", type=int, default=1)
    parser.add_argument("--reader-p99-ms", type=float, default=float("inf"))
    parser.add_argument("--only", choices=ROLES, action="append", help="this role; repeatable")
    options = parser.parse_args()
    roles = options.only or ROLES
    many = {"viewers": options.viewers, "year": options.years}
    # A process for each: nobody's waiting is measured as somebody else's latency.
    with ProcessPoolExecutor(len(roles)) as processes:
        playing = [
            processes.submit(play, role, options.url, many.get(role, 1), options.seconds)
            for role in roles
        ]
        seen_by = {who: seen for played in playing for who, seen in played.result().items()}
    Console().print(table(seen_by, options.seconds))
    failed = any(seen.failed for seen in seen_by.values())
    return int(failed or ("reader" in roles and is_slow(seen_by, options.reader_p99_ms)))


def is_slow(seen_by: dict[str, Seen], p99_ms: float) -> bool:
    """Also a reader whom nobody has answered."""
    reader = seen_by.get("reader", Seen())
    return not reader.seconds or 1000 * reader.percentile(99) > p99_ms


if __name__ == "__main__":
    sys.exit(main())
