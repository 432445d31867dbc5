#!/usr/bin/env python3
"""Many readers at once against one edge host: what do the polite ones notice of the others?

    insight-api/bench/crowd.py http://ADDRESS:8080 [--seconds 30] [--viewers 60] [--years 1]
        [--only ROLE …] [--reader-p99-ms 200] [--key-file FILE]

Roles, all at the same time:

- ``viewers``: live pages, each with its stream and what its page asks, as often as it asks it;
- ``reader``: two hours of traffic, five times a second: the figure to look at;
- ``scanner``: whatever comes to its mind, as fast as it gets answers;
- ``year``: totals of a year, weeks of top pages and days of dead letters, eight at once by each of
  ``--years`` clients; one that is refused waits as long as it is told to.

The API's limits go by address. On loopback each viewer and each role has an address of its own;
anywhere else all of them share this machine's, so run roles from several hosts with ``--only``, or
all of them on the edge host itself. Any Python 3.11 runs this file, without a package beside it.

Readers need a key with all scopes, the first line of ``--key-file``; a `local` cluster's port for
this machine needs none.

It shares a laptop's cores with what it measures, and must cost little: a thread and a connection
for each question that is open, and nothing parsed but the headers.

Prints the latencies (50th and 99th percentile) and the counts of statuses by role. Ends with 1 if
there was a 5xx other than 503 with Retry-After, a connection that broke, or a reader who had to
wait for longer than ``--reader-p99-ms``.
"""

import argparse
import itertools
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import IPv4Address
from pathlib import Path
from statistics import quantiles
from urllib.parse import urlencode, urlsplit

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TIMEOUT_SECONDS = 30.0
ROLES = ["viewers", "reader", "scanner", "year"]
PAGE_SECONDS = 3.0  # page.js: SOONEST_MS
PAGE_SLOWLY_EVERY = 5  # page.js: SLOW_MS
PAGE_AT_ONCE = 6  # a browser's connections to one host
READER_SECONDS = 0.2
SCANNER_AT_ONCE = 10
YEARS_AT_ONCE = 8
YEARS_APART_HOURS = 97  # so that no two clients ask for the same and share an answer

Query = Mapping[str, object]
NOTHING: Query = {}


@dataclass
class Seen:
    """Latencies in seconds of what was answered with 200, and how often each status came."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    failed: bool = False

    def note(self, answer: HTTPResponse) -> None:
        self.statuses[str(answer.status)] += 1
        if answer.status >= 500 and not (answer.status == 503 and answer.headers["retry-after"]):
            self.failed = True

    def broke(self, error: Exception) -> None:
        self.statuses[type(error).__name__] += 1
        self.failed = True

    def percentile(self, percent: int) -> float:
        return quantiles(self.seconds, n=100)[percent - 1] if len(self.seconds) > 1 else 0.0


class Client:
    """One client of the API, with a connection for each thread that asks for it."""

    def __init__(self, url: str, address: str | None, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._to = parts.netloc
        self._source = (address, 0) if address else None
        self._headers = headers
        self._mine = threading.local()

    def get(self, path: str, query: Query = NOTHING) -> HTTPResponse:
        """An answer whose body is still to be read. Raises OSError or HTTPException."""
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self._kind(
                self._to, timeout=TIMEOUT_SECONDS, source_address=self._source
            )
        asked = f"{path}?{urlencode(query)}" if query else path
        connection.request("GET", asked, headers=self._headers)
        return connection.getresponse()

    def hang_up(self) -> None:
        self._mine.connection.close()


class Crowd:
    """Asks one address, and notes what a role sees."""

    def __init__(self, url: str, role: str, seconds: float, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = headers
        self._loopback = urlsplit(url).hostname == "127.0.0.1"
        # Roles run in processes of their own: each gets its own hundred addresses.
        first = IPv4Address("127.0.1.1") + 100 * ROLES.index(role)
        self._addresses = (str(first + n) for n in itertools.count())
        self._years = itertools.count(0, YEARS_APART_HOURS)
        self._noting = threading.Lock()
        self.seen: defaultdict[str, Seen] = defaultdict(Seen)
        self._deadline = time.monotonic() + seconds

    @property
    def going_on(self) -> bool:
        return time.monotonic() < self._deadline

    def client(self) -> Client:
        """One more: where that can be, with an address of its own."""
        with self._noting:
            address = next(self._addresses) if self._loopback else None
            return Client(self._url, address, self._headers)

    def ask(self, role: str, client: Client, path: str, query: Query = NOTHING) -> float:
        """Asks once; the seconds after which it makes sense to ask again."""
        began = time.perf_counter()
        try:
            answer = client.get(path, query)
            answer.read()
        except (OSError, HTTPException) as error:
            client.hang_up()
            with self._noting:
                self.seen[role].broke(error)
            return 0.0
        with self._noting:
            self.seen[role].note(answer)
            if answer.status == 200:
                self.seen[role].seconds.append(time.perf_counter() - began)
        return float(answer.headers.get("retry-after", 0))

    def viewer(self) -> None:
        client = self.client()
        time.sleep(random.uniform(0, PAGE_SECONDS))
        with ThreadPoolExecutor(1 + PAGE_AT_ONCE) as threads:
            threads.submit(self._follow, client)
            for turn in itertools.count():
                if not self.going_on:
                    break
                list(
                    threads.map(
                        partial(self.ask, "viewers", client), *zip(*page(turn), strict=True)
                    )
                )
                time.sleep(PAGE_SECONDS)

    def _follow(self, client: Client) -> None:
        """The live stream, with all that comes."""
        with self._noting:
            seen = self.seen["streams"]
        try:
            answer = client.get("/v1/stream")
            with self._noting:
                seen.note(answer)
            for line in answer:
                if not self.going_on:
                    break
                if line.startswith(b"event: "):
                    with self._noting:
                        seen.statuses[line.decode().removeprefix("event: ").strip()] += 1
        except (OSError, HTTPException) as error:
            with self._noting:
                seen.broke(error)
        client.hang_up()

    def reader(self) -> None:
        client = self.client()
        while self.going_on:
            hours = until(floor_to_hour() + HOUR, 2 * HOUR)
            self.ask("reader", client, "/v1/traffic", {"window": "1m", **hours})
            time.sleep(READER_SECONDS)

    def scanner(self) -> None:
        client, paths = self.client(), probes()
        self._at_once(SCANNER_AT_ONCE, lambda: self.ask("scanner", client, next(paths)))

    def year(self) -> None:
        client, hours_back = self.client(), itertools.count(next(self._years))

        def ask() -> None:
            # Never the same range twice: nothing is to be had from what was asked before.
            end = floor_to_hour() - next(hours_back) * HOUR
            path, length = random.choice(
                [
                    ("/v1/traffic/total", 365 * DAY),
                    ("/v1/pages/top", 7 * DAY),
                    ("/v1/traffic", 31 * DAY),
                    ("/v1/dead-letters", 2 * DAY),
                ]
            )
            time.sleep(self.ask("year", client, path, until(end, length)))

        self._at_once(YEARS_AT_ONCE, ask)

    def _at_once(self, many: int, ask: Callable[[], object]) -> None:
        """So many questions at the same time, one after the other each, as long as it goes on."""

        def one() -> None:
            while self.going_on:
                ask()

        together([one] * many)


def together(actors: list[Callable[[], None]]) -> None:
    """All at the same time, to their ends."""
    threads = [threading.Thread(target=actor, daemon=True) for actor in actors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def page(turn: int) -> list[tuple[str, Query]]:
    """What an open page asks at its turn."""
    week = until(floor_to_hour() + HOUR, 7 * DAY)
    asked: list[tuple[str, Query]] = [
        ("/v1/traffic", {"window": "1h", **week}),
        ("/v1/traffic/total", week),
        ("/v1/extent", {}),
    ]
    if turn % PAGE_SLOWLY_EVERY == 0:
        day = until(datetime.now(UTC).replace(second=0, microsecond=0), DAY)
        asked += [
            ("/v1/pages/top", {"k": 12, **week}),
            ("/v1/dead-letters", {"limit": 3, **day}),
            ("/v1/progress", {}),
            ("/v1/status", {}),
        ]
    return asked


def probes() -> Iterator[str]:
    """What a scanner tries: files that aren't there, and routes with nonsense."""
    return itertools.cycle(
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


def play(
    role: str, url: str, many: int, seconds: float, headers: Mapping[str, str]
) -> dict[str, Seen]:
    """One role from its beginning to its end, by so many clients; what they saw."""
    crowd = Crowd(url, role, seconds, headers)
    actor = {
        "viewers": crowd.viewer,
        "reader": crowd.reader,
        "scanner": crowd.scanner,
        "year": crowd.year,
    }[role]
    together([actor] * many)
    return dict(crowd.seen)


def table(seen_by: dict[str, Seen], seconds: float) -> Iterator[str]:
    """Its lines."""
    yield f"{seconds:.0f} s of a crowd"
    columns = "{:<8} {:>9} {:>8} {:>8} {:>11}  {}".format
    yield columns("who", "answered", "p50 ms", "p99 ms", "slowest ms", "statuses")
    for who, seen in seen_by.items():
        statuses = "  ".join(f"{name}: {count:,}" for name, count in sorted(seen.statuses.items()))
        latencies = (seen.percentile(50), seen.percentile(99), max(seen.seconds, default=0.0))
        milliseconds = [f"{1000 * value:,.0f}" if seen.seconds else "–" for value in latencies]
        yield columns(who, f"{len(seen.seconds):,}", *milliseconds, statuses)


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
    parser.add_argument("--key-file", type=Path, help="whose first line is a key")
    options = parser.parse_args()
    headers = key_header(options.key_file) if options.key_file else {}
    roles = options.only or ROLES
    many = {"viewers": options.viewers, "year": options.years}
    # A process for each: nobody's waiting is measured as somebody else's latency.
    with ProcessPoolExecutor(len(roles)) as processes:
        playing = [
            processes.submit(play, role, options.url, many.get(role, 1), options.seconds, headers)
            for role in roles
        ]
        seen_by = {who: seen for played in playing for who, seen in played.result().items()}
    print(*table(seen_by, options.seconds), sep="\n")
    failed = any(seen.failed for seen in seen_by.values())
    return int(failed or ("reader" in roles and is_slow(seen_by, options.reader_p99_ms)))


def key_header(file: Path) -> dict[str, str]:
    """In a file, as arguments are read by everybody on a host."""
    return {"Authorization": f"Bearer {file.read_text().splitlines()[0].strip()}"}


def is_slow(seen_by: dict[str, Seen], p99_ms: float) -> bool:
    """Also a reader whom nobody has answered."""
    reader = seen_by.get("reader", Seen())
    return not reader.seconds or 1000 * reader.percentile(99) > p99_ms


if __name__ == "__main__":
    sys.exit(main())
