"""A command on a host, heard of while it runs; a program on this machine stands for ``ssh``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.cluster.ssh import followed
from millrace_shared.progress import MARK

# It ends once it is answered, so what it says before is heard before.
PROGRAM = f"""
import sys
print("a warning of Spark's", file=sys.stderr)
print("{MARK}1 of 2", file=sys.stderr, flush=True)
open(sys.argv[1]).read()
print("{MARK}2 of 2", file=sys.stderr)
print("asked: " + sys.stdin.read())
sys.exit(3)
"""


def test_progress_is_heard_while_a_command_runs(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    heard: list[str] = []

    def follow(said: str) -> None:
        heard.append(said)
        if len(heard) == 1:
            gate.write_text("go on")

    done = followed([sys.executable, "-c", PROGRAM, str(gate)], "why", 60, follow)
    assert heard == ["1 of 2", "2 of 2"]
    assert (done.returncode, done.stdout) == (3, "asked: why\n")
    assert done.stderr.splitlines()[0] == "a warning of Spark's"


def test_a_command_that_takes_too_long_is_ended() -> None:
    forever = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(subprocess.TimeoutExpired):
        followed(forever, "", 0.1, lambda _: None)
