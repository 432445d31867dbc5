"""Runs the tagged blocks of a runbook, as an operator would paste them into a shell."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from millrace.common.paths import REPO
from millrace.drill.runbook import Block, Runbook

LONGEST_SECONDS = 1800  # of one block: waits for a cold start of everything, more than once
SHOWN_LINES = 20
GRACE_SECONDS = 5  # to save its variables

# Upper-case variables outlive their block, so that what was injected can be undone by name; they
# are saved on every exit, because a rollback needs them most after a failure. Names that bash had
# before the block are bash's own or the environment's.
PRELUDE = """\
__before=" $(compgen -v | tr '\\n' ' ') "
__save() {
  local name
  for name in $(compgen -v); do
    if [[ $name =~ ^[A-Z][A-Z0-9_]*$ && $__before != *" $name "* ]]; then
      printf '%s=%q\\n' "$name" "${!name}"
    fi
  done > "$__state"
}
trap __save EXIT
source "$__state"
"""
# Set by bash itself while a block runs.
OF_BASH = ("BASH_REMATCH", "REPLY", "MAPFILE", "OPTARG", "OLDPWD")


class BlockFailed(Exception):
    """A block ended with an error or took too long; the message has the end of its output."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def run_blocks(runbook: Runbook, tag: str, stack: str, folder: Path) -> None:
    """Runs a tag's blocks in order; variables and output are kept in ``folder``.

    Raises BlockFailed at the first block that fails; blocks after it don't run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, block in enumerate(runbook.tagged(tag), start=1):
        log = folder / f"{tag}-{number}.log"
        code = _run(block, stack, folder / "variables", log)
        if code:
            what = (
                f"took longer than {LONGEST_SECONDS} s"
                if code == -signal.SIGTERM
                else f"exit {code}"
            )
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-SHOWN_LINES:])
            raise BlockFailed(f"{runbook.path.name}:{block.line} ({tag}): {what}\n{tail}", code)


def _run(block: Block, stack: str, state: Path, log: Path) -> int:
    """Exit code of one block; negative is the signal that ended it."""
    state.touch()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    quiet = "".join(f"__before+='{name} '\n" for name in OF_BASH)
    setup = f"__state={shlex.quote(str(state))}\n{PRELUDE}{quiet}"
    with log.open("wb") as out:
        # A session of its own: Ctrl-C stops the drill, which then undoes what the block did.
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", setup + block.script],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=REPO,
            env=os.environ | {"PATH": path, "MILLRACE_STACK": stack},
            start_new_session=True,
        )
        try:
            return process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            return -signal.SIGTERM
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends all that a block started in its own process group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
