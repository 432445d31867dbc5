"""Under how many events a second a drill runs: a number, or a share of what is sustained."""

import json
from pathlib import Path

import typer

from millrace.common.paths import REPO

# What one cluster of `local` sustained with the two jobs that ship, by the bench.
SUSTAINED = REPO / "docs" / "performance" / "service-search-200-pages-2-jobs.json"


def events_per_second(asked: str | float) -> float:
    """Reads `2000`, or `50%` of what the bench recorded as sustained; an option's default, too.

    Raises:
        typer.BadParameter: it is neither, or less than one event a second.
    """
    text = str(asked)
    number = text.removesuffix("%")
    try:
        rate = float(number) if number == text else float(number) / 100 * sustained()
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor a share such as 50%") from None
    if not 1 <= rate < float("inf"):
        raise typer.BadParameter(f"{text!r} is {rate:g} events a second; at least 1 is needed")
    return rate


def sustained(record: Path = SUSTAINED) -> float:
    """Returns events/s."""
    return float(json.loads(record.read_text())["result"]["sustained_per_second"])
