"""What the operator sees of a load: a live line on a terminal, a line now and then elsewhere."""

import time

from rich.console import Group
from rich.live import Live
from rich.text import Text

from millrace.common.console import Console
from millrace.common.live import LiveOnTerminal
from millrace.common.tables import Answer, upright
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


def summary(ledger: Ledger, took: float) -> Answer:
    """The whole run in figures, and where its ledger is; ``took`` is in seconds."""
    acknowledged = int(ledger.acked.sum())
    gaps = ledger.produce_gaps(ledger.started, ledger.started + took)
    run = {
        "run": ledger.spec.run,
        "sent": len(ledger.acked),
        "acknowledged": acknowledged,
        "acknowledged_per_second": round(acknowledged / took, 1),
        "failed": ledger.failed,
        "in_doubt": ledger.in_doubt,
        "worst_behind_seconds": round(ledger.behind_seconds, 3),
        "longest_gap_seconds": round(max(gaps.values()), 3),
    }
    view = Group(upright(f"load {run['run']}", run), str(ledger.path))
    return Answer(run | {"ledger": ledger.path}, view)
