"""What the operator sees of a replay: a live bar on a terminal, plain lines elsewhere."""

import time
from datetime import UTC, datetime

from rich.progress import BarColumn
from rich.progress import Progress as Bar

from millrace.common.console import Console
from millrace.common.live import Description, LiveOnTerminal
from millrace.replay.pace import Pace
from millrace.replay.progress import Progress
from millrace.replay.source import Source

PLAIN_SECONDS = 60.0


class Display(LiveOnTerminal):
    """Position, share of the file, rate, event time and how far behind its pace the replay is."""

    def __init__(
        self,
        console: Console,
        before: Progress,
        source: Source,
        pace: Pace,
    ) -> None:
        self._console = console
        self._source = source
        self._pace = pace
        self._began = time.monotonic()
        self._skipped = before.lines
        self._printed = self._began
        self._live: Bar | None = None
        if console.is_terminal:
            columns = BarColumn(bar_width=30), Description()
            self._live = Bar(*columns, console=console)
            self._task = self._live.add_task("connected", total=None)

    def update(self, progress: Progress, event_time: float) -> None:
        """Shows the progress after a committed batch."""
        text = self._line(progress, event_time)
        if self._live:
            share = self._source.fraction
            total = None if share is None else 1.0
            self._live.update(self._task, description=text, total=total, completed=share or 0.0)
        elif progress.done or time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._printed = time.monotonic()
            self._console.print(text)

    def _line(self, progress: Progress, event_time: float) -> str:
        share = self._source.fraction
        rate = (progress.lines - self._skipped) / max(time.monotonic() - self._began, 0.001)
        parts = [f"{progress.lines:,} lines", f"{rate:,.0f} events/s"]
        if share is not None:
            parts.insert(1, f"{share:.0%}")
        if event_time > float("-inf"):
            parts.append(f"{datetime.fromtimestamp(event_time, UTC):%Y-%m-%d %H:%M:%S} UTC")
        if self._pace.behind >= 1:
            parts.append(f"{self._pace.behind:.0f} s behind")
        return " · ".join(parts)
