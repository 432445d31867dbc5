"""The question before what destroys or interrupts something. Scripts answer it by --yes."""

import sys
from typing import Annotated

import typer

from millrace.common.console import visible
from millrace.common.errors import NOTHING_CHANGED, OperatorError

YesOption = Annotated[bool, typer.Option("--yes", help="Don't ask; it is wanted.")]


def agree(question: str, *, yes: bool) -> None:
    """Returns if it is wanted: by --yes, or as somebody at the terminal says so.

    Raises OperatorError if not, or if nobody is there to ask. What is asked about must come after.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise OperatorError(
            f"{question} Nobody is here to say so: {NOTHING_CHANGED}", "--yes says so"
        )
    if not typer.confirm(visible(question), err=True):
        raise OperatorError(NOTHING_CHANGED)
