"""The exceptions that reach the operator: one, and its kinds for scripts to tell apart."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from millrace.common.exits import Exit

NOTHING_CHANGED = "nothing was created or changed"


class OperatorError(Exception):
    """Something the operator can act on: what is wrong and where, and what to do next.

    The CLI prints it without a traceback and exits with its code; every other exception is our bug.
    """

    exit_code = Exit.FAILED

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class NobodyError(OperatorError):
    """No host has a role now, as while it is being elected."""

    exit_code = Exit.NOBODY


class UnhealthyError(OperatorError):
    """The cluster answers, and isn't as healthy as it has to be."""

    exit_code = Exit.UNHEALTHY


class UnreachableError(OperatorError):
    """Nobody answers, or too few do to know the state."""

    exit_code = Exit.UNREACHABLE


class NotPassedError(OperatorError):
    """A check ran to its end and found something."""

    exit_code = Exit.NOT_PASSED


class Problems:
    """Collects what is wrong with a configuration, so that one refusal names all of it."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def add(self, problems: Iterable[str], file: str = "") -> None:
        """Keeps each problem, with the file that it is in where the problem doesn't say so."""
        self._found += [f"{file}: {problem}" if file else problem for problem in problems]

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Keeps the message of an OperatorError, and goes on after the block.

        What the block would have assigned may be missing until `refuse` has let it pass.
        """
        try:
            yield
        except OperatorError as error:
            self._found.append(error.message)

    def refuse(self) -> None:
        """Raises OperatorError if anything is wrong; the message has a line for each problem."""
        if self._found:
            raise OperatorError("\n".join(self._found), NOTHING_CHANGED)
