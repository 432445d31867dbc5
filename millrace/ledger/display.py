"""What the operator sees of a load: a live line on a terminal, a line now and then elsewhere."""

import time

from rich.live import Live
from rich.table import Table
from rich.text import Text

from millrace.common.console import Console
from millrace.common.live import LiveOnTerminal
from millrace.ledger.load import Seen
from millrace.ledger.store import Ledger

PLAIN_SECONDS = 10.0


class Display(LiveOnTerminal):
    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = (
            Live(console=console, transient=True) if console.is_terminal else None
        )
        self._told = time.monotonic()
        self._before = (time.monotonic(), 0)
        self._rate = 0.0

    def update(self, seen: Seen) -> None:
        self._measure(seen)
        if self._live:
            self._live.update(Text(self._line(seen)))
        elif time.monotonic() - self._told >= PLAIN_SECONDS:
            self._told = time.monotonic()
            self._console.print(self._line(seen))

    def _measure(self, seen: Seen) -> None:
        """The rate over a second at least: shorter ones jump about."""
        now = time.monotonic()
        since, acknowledged = self._before
        if now - since >= 1.0:
            self._rate = (seen.acknowledged - acknowledged) / (now - since)
            self._before = (now, seen.acknowledged)

    def _line(self, seen: Seen) -> str:
        parts = [
            f"{seen.sent:,} sent",
            f"{self._rate:,.0f} acknowledged/s",
            f"{seen.waiting:,} waiting",
            f"{seen.behind:.1f} s behind",
        ]
        if seen.failed:
            parts.append(f"{seen.failed:,} failed")
        return " · ".join(parts)


def summary(ledger: Ledger, took: float) -> Table:
    """The whole run in figures; ``took`` is in seconds."""
    acknowledged = int(ledger.acked.sum())
    gaps = ledger.produce_gaps(ledger.started, ledger.started + took)
    table = Table(title=f"load {ledger.spec.run}", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("sent", f"{len(ledger.acked):,}")
    table.add_row("acknowledged", f"{acknowledged:,} ({acknowledged / took:,.0f}/s)")
    table.add_row("failed", f"{ledger.failed:,}")
    table.add_row("in doubt", f"{ledger.in_doubt:,}")
    table.add_row("worst behind schedule", f"{ledger.behind_seconds:.2f} s")
    table.add_row("longest gap of a partition", f"{max(gaps.values()):.2f} s")
    return table
