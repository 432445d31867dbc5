"""``millrace generate``: prints an access log, of the past or as it happens."""

import os
import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from millrace.common.durations import parse_duration
from millrace.generate.traffic import Hit, Website


def generate_command(
    rate: Annotated[float, typer.Option(min=0.001, help="Requests per second, on average.")] = 5.0,
    last: Annotated[str, typer.Option(help="How long the log is; it ends now.")] = "24h",
    live: Annotated[
        str | None, typer.Option(help="Instead: print requests as they happen, for so long.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same traffic.")] = 1,
) -> None:
    """Print synthetic web traffic as an access log in combined format.

    millrace generate --last 24h > access.log; millrace replay access.log

    millrace generate --live 10m --rate 50 | millrace replay -
    """
    website = Website(seed)
    now = time.time()
    if live is None:
        hits = website.hits(now - parse_duration(last), now, rate, rhythm=True)
    else:
        hits = _as_they_happen(website.hits(now, now + parse_duration(live), rate, rhythm=False))
    try:
        for hit in hits:
            sys.stdout.buffer.write(website.line(hit) + b"\n")
            if live is not None:
                sys.stdout.buffer.flush()
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # whoever reads it has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _as_they_happen(hits: Iterator[Hit]) -> Iterator[Hit]:
    for hit in hits:
        time.sleep(max(0.0, hit.time - time.time()))
        yield hit
