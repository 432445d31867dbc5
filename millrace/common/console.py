"""The terminal, for all that is printed: strings are text there, whoever wrote them.

A URL may hold brackets, a log line escape sequences. `Console` takes no string for markup and
shows control characters as pictures, so an event can neither end a command nor command a terminal.
What is to have a colour is a `Text` with a style.
"""

import sys
from collections.abc import Iterable
from typing import IO, Any

import rich.console
import rich.status
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

# Reports that go to a file or a pipe aren't squeezed into the 80 columns of no terminal.
PLAIN_WIDTH = 120
TAB = "    "  # a table takes a tab for nothing, and has no room for what follows it
# They turn the direction of what follows, or end a line where some programs see none end.
DECEIVING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"


def _pictures() -> dict[int, str]:
    """Character → what is shown of it. Halves of a surrogate pair can't even be encoded."""
    hidden = [*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000), *map(ord, DECEIVING)]
    shown = dict.fromkeys(hidden, "\N{REPLACEMENT CHARACTER}")
    shown |= {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\N{SYMBOL FOR DELETE}"}
    return shown | {ord("\t"): " ", ord("\n"): "\n"}


PICTURES = _pictures()
OF_LINES = PICTURES | {ord("\t"): "\t"}


def visible(outside: object) -> str:
    """Shows what came from outside with pictures of its control characters: ``␛`` for an escape."""
    return str(outside).replace("\t", TAB).translate(PICTURES)


def as_text(outside: object, style: str = "") -> Text:
    """Returns what `visible` does, as a text with a style."""
    return Text(visible(outside), style)


def write(*lines: str) -> None:
    """Prints lines for programs, as they are but for control characters.

    In one write: who takes the first line and ends leaves no other one to fail.
    """
    sys.stdout.write("".join(f"{line.translate(OF_LINES)}\n" for line in lines))
    sys.stdout.flush()


class Console(rich.console.Console):
    """Rich's console, but that strings are text, wherever in a table, title or status they are."""

    def __init__(
        self,
        *,
        file: IO[str] | None = None,
        stderr: bool = False,
        width: int | None = None,
        **settings: Any,
    ) -> None:
        shown_on = file or (sys.stderr if stderr else sys.stdout)
        if width is None and not shown_on.isatty():
            width = PLAIN_WIDTH
        fixed = {"markup": False, "emoji": False, "highlight": False}
        super().__init__(file=file, stderr=stderr, width=width, **settings | fixed)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Of a string anywhere: rich asks here for each."""
        return super().render_str(visible(text), **settings | {"markup": False, "emoji": False})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Of anything, a `Text` among it, as often as one is nested in another."""
        if isinstance(renderable, Text):
            renderable = _visible(renderable)
        return super().render(renderable, options)

    def status(self, status: RenderableType, **settings: Any) -> rich.status.Status:
        """Shows what is under way, while it is, on a terminal."""
        return Status(_as_renderable(status), console=self, **settings)


class Status(rich.status.Status):
    """Its strings are text as well."""

    def update(self, status: RenderableType | None = None, **settings: Any) -> None:
        super().update(None if status is None else _as_renderable(status), **settings)


def _as_renderable(shown: RenderableType) -> RenderableType:
    return as_text(shown) if isinstance(shown, str) else shown


def _visible(text: Text) -> Text:
    """A character for a character: its styles stay where they are."""
    plain = text.plain.translate(PICTURES)
    if plain == text.plain:
        return text
    shown = text.copy()
    shown.plain = plain
    return shown
