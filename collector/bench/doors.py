#!/usr/bin/env python3
"""What proxy and TLS cost: the same requests by several ways to the same programs, in one run.

    collector/bench/doors.py --key-file FILE [--ca FILE] [--seconds 5] [--rounds 3]
        [--a-second N] URL URL …

Each URL is asked in turn, round after round, over four connections that stay open. One that ends in
``/v1/STREAM`` gets 200 records of a web log with each request, any other is read; as fast as it is
answered, or ``--a-second`` times at most. Limits of a key and of an address hold here, too. To be
run on the edge host itself, where the programs' own ports are: ``http://127.0.0.1:8091/v1/events``
is the collector without anything before it. Any Python 3.11 runs this file, without a package
beside it.

Prints by URL the requests of a second, the 50th and 99th percentile of their latencies, and each as
a ratio to the first URL's.
"""

import argparse
import json
import ssl
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import SplitResult, urlsplit

CONNECTIONS = 4
RECORDS = 200


def records() -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    event: dict[str, Any] = {
        "event_time": now,
        "visitor_id": "bench",
        "method": "GET",
        "url": "/bench",
    }
    event |= {"status": 200, "bytes": 1024, "kind": "page_view"}
    return json.dumps([event | {"event_id": str(uuid.uuid4())} for _ in range(RECORDS)]).encode()


def connect(url: SplitResult, trusted: ssl.SSLContext) -> HTTPConnection:
    assert url.hostname
    if url.scheme == "https":
        return HTTPSConnection(url.hostname, url.port, timeout=30, context=trusted)
    return HTTPConnection(url.hostname, url.port, timeout=30)


def ask(
    url: SplitResult, trusted: ssl.SSLContext, headers: dict[str, str], pause: float, end: float
) -> list[float]:
    """Latencies in seconds. Raises RuntimeError for an answer other than 200."""
    sends = url.path.startswith("/v1/") and not url.query
    link, seen = connect(url, trusted), []
    path = url.path + (f"?{url.query}" if url.query else "")
    while (began := time.monotonic()) < end:
        if sends:
            link.request("POST", path, records(), headers | {"Content-Type": "application/json"})
        else:
            link.request("GET", path, headers=headers)
        answer = link.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{url.geturl()}: {answer.status} {content[:200]!r}")
        seen.append(time.monotonic() - began)
        time.sleep(max(0.0, began + pause - time.monotonic()))
    link.close()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description="What proxy and TLS cost.")
    parser.add_argument("urls", nargs="+", type=urlsplit, metavar="URL")
    parser.add_argument("--key-file", type=Path, required=True)
    parser.add_argument("--ca", type=Path)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--a-second", type=float, default=float("inf"))
    options = parser.parse_args()
    trusted = ssl.create_default_context(cafile=options.ca)
    headers = {"Authorization": f"Bearer {options.key_file.read_text().strip()}"}
    seen: dict[str, list[float]] = {url.geturl(): [] for url in options.urls}
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for url in options.urls * options.rounds:
            end = time.monotonic() + options.seconds
            asked = partial(ask, url, trusted, headers, CONNECTIONS / options.a_second, end)
            for one in [pool.submit(asked) for _ in range(CONNECTIONS)]:
                seen[url.geturl()] += one.result()
    asked_for = options.seconds * options.rounds
    first: tuple[float, ...] = ()
    for name, latencies in seen.items():
        figures = (
            len(latencies) / asked_for,
            1e3 * median(latencies),
            1e3 * quantiles(latencies, n=100)[98],
        )
        first = first or figures
        ratios = "  ".join(f"{a / b:.2f}" for a, b in zip(figures, first, strict=True))
        told = "  ".join(f"{figure:8.1f}" for figure in figures)
        print(f"{name:<44} 1/s, p50, p99 ms: {told}   to the first: {ratios}")


if __name__ == "__main__":
    main()
