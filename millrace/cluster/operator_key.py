"""The secret of the toolkit's own key, a file of this machine: it opens both doors to commands."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.common.errors import OperatorError
from millrace.common.paths import stack_secrets
from millrace.plan import Plan
from millrace_shared.keys import LEAST_SECRET_BYTES, OPERATOR


def path_of(plan: Plan) -> Path:
    return stack_secrets(plan.environment) / f"{OPERATOR}-key"


def secret_of(plan: Plan) -> str:
    """Raises OperatorError where there is none, or one that could be guessed."""
    path = path_of(plan)
    try:
        secret = path.read_text().strip()
    except FileNotFoundError:
        raise OperatorError(f"{path}: no such file", "`millrace up` makes it") from None
    if len(secret.encode()) < LEAST_SECRET_BYTES:
        raise OperatorError(
            f"{path}: a key has {LEAST_SECRET_BYTES} bytes at least, so that nobody guesses it",
            "remove the file; `millrace up` makes another one",
        )
    return secret


def ensure(plan: Plan, secret: str) -> None:
    """Has the file, with that secret where there is none yet."""
    if not path_of(plan).exists():
        with replacing(plan, secret):
            pass
    secret_of(plan)


@contextmanager
def replacing(plan: Plan, secret: str) -> Iterator[None]:
    """Puts another secret into the file once the block has ended well.

    It is written aside before: a disk that is full stops what the block would do.
    """
    path = path_of(plan)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        with open(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"{secret}\n")
        yield
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
