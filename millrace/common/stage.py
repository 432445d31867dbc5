"""A long stage of a command: a line that moves on a terminal, a line a minute in a log."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

from rich.status import Status as Spinner

from millrace.common.console import Console

MINUTE = 60.0


class Stage:
    """A context manager. ``say`` it what is under way; whoever uses it prints how it ended.

    Without a terminal the title is printed when it begins, and after each minute what is under way
    then: a log is read later, and has no use for each step.
    """

    def __init__(
        self, console: Console, title: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._title = title
        self._now = now
        self._began = now()
        self._said = ""
        self._spinner: Spinner | None = None
        self._shown = ExitStack()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._spinner = self._shown.enter_context(self._console.status(self._title))
        else:
            self._print(f"{self._title} …")
            self._shown.enter_context(every_minute(self.remind))
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def say(self, said: str) -> None:
        """Shows what is under way now."""
        self._said = said
        if self._spinner:
            self._spinner.update(f"{self._title}: {said}")

    def remind(self) -> None:
        """Prints a log's line of a minute."""
        self._print(f"{self._title}, {self.took} min: {self._said or 'goes on'}")

    @property
    def took(self) -> str:
        """Returns minutes and seconds since it began: ``4:05``."""
        return clock(self._now() - self._began)

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)


@contextmanager
def every_minute(tell: Callable[[], None]) -> Iterator[None]:
    """Call it after each minute of the block, in a thread of its own."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(MINUTE):
            tell()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def clock(seconds: float) -> str:
    """Returns minutes and seconds: ``4:05``."""
    return "{}:{:02d}".format(*divmod(round(seconds), 60))
