"""What the operator sees of a drill: its phases, and below them each plane as it is now."""

import time
from collections.abc import Mapping

from rich.live import Live
from rich.table import Table  # noqa: TID251 (moves)
from rich.text import Text

from millrace.common.console import Console
from millrace.common.live import LiveOnTerminal
from millrace.drill.gaps import Times
from millrace.drill.planes import Sampler, successes
from millrace.drill.runbook import Plane

SHOWN_AS_GAP_SECONDS = 1.0


class Display(LiveOnTerminal):
    """A context manager; ``samplers`` is set once there are some."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._phase = ""
        self._since = time.time()
        self._worst: dict[str, float] = {}
        self._live = Live(self, console=console, transient=True) if console.is_terminal else None
        self.samplers: dict[Plane, Sampler] = {}

    def phase(self, text: str) -> None:
        """Says what is done now; the worst gaps are counted anew."""
        self._phase, self._since, self._worst = text, time.time(), {}
        now = (time.strftime("%H:%M:%S"), "dim")
        self._console.print(Text.assemble(now, f" {self._title}: {text}"))

    def __rich__(self) -> Table:
        table = Table(title=f"{self._phase}, {time.time() - self._since:.0f} s", box=None)
        table.add_column("plane")
        table.add_column("silent for", justify="right")
        table.add_column("longest", justify="right")
        for plane, times in self._seen().items():
            silent = time.time() - float(times[-1]) if len(times) else 0.0
            self._worst[plane] = max(self._worst.get(plane, 0.0), silent)
            style = "red" if silent > SHOWN_AS_GAP_SECONDS else ""
            table.add_row(plane, Text(f"{silent:.1f} s", style), f"{self._worst[plane]:.1f} s")
        return table

    def _seen(self) -> Mapping[Plane, Times]:
        return successes(self.samplers) if self.samplers else {}
