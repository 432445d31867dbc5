"""The one exception that reaches the operator."""


class OperatorError(Exception):
    """Something the operator can act on: what is wrong and where, and what to do next.

    The CLI prints it without a traceback and exits with its code; every other exception is our bug.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class NobodyError(OperatorError):
    """No host has a role now, as while it is being elected: a script may want to tell."""

    exit_code = 3
