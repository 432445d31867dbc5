"""Running other programs: quiet when they work, their last words when they don't."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from millrace.common.errors import OperatorError

TAIL = 15


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    hint: str | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    uninterrupted: bool = False,
) -> str:
    """The command's standard output; an OperatorError with its last lines when it fails.

    ``uninterrupted`` keeps the terminal's Ctrl-C from it: it ends before we do.
    """
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        process_group=0 if uninterrupted else None,
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-TAIL:]
        raise OperatorError("\n".join([f"{what} failed ({done.returncode}):", *said]), hint)
    return done.stdout


def as_root(command: Sequence[str | Path]) -> list[str | Path]:
    """The command with sudo in front where this user needs it."""
    if os.geteuid() == 0:
        return list(command)
    if not shutil.which("sudo"):
        raise OperatorError(
            f"`{' '.join(map(str, command))}` needs root, and there is no sudo",
            "run set-up as root, or install and configure sudo",
        )
    # -n: a step must never hang on a password prompt behind a progress display.
    if subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode:
        raise OperatorError(
            f"`{' '.join(map(str, command))}` needs root, and sudo wants a password",
            "run `sudo -v`, then the same command again",
        )
    return ["sudo", "-n", *command]
