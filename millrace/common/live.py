"""What long work shows: live on a terminal, plain lines elsewhere."""

from typing import Self

from rich.live import Live
from rich.progress import Progress, ProgressColumn, Task
from rich.text import Text

from millrace.common.console import as_text


class LiveOnTerminal:
    """A context manager; ``_live`` is what moves, None where there is no terminal."""

    _live: Live | Progress | None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()


class Description(ProgressColumn):
    """A progress bar's column: a task's description, as text."""

    def render(self, task: Task) -> Text:
        return as_text(task.description)
