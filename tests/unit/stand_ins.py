"""A runbook's own blocks, run where its commands are a few lines of shell."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from millrace.drill.runbook import load_runbook


def install(programs: Mapping[str, str], folder: Path) -> None:
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}")
        (folder / name).chmod(0o755)


def run_drill(name: str, folder: Path, meanwhile: str = "", **environment: str) -> bool:
    """Injects, recovers and, whatever happened, rolls back; False if a block failed.

    Args:
        folder: where the commands are.
        meanwhile: shell that runs while the fault is in place.
    """

    def script(tag: str) -> str:
        return "\n".join(block.script for block in load_runbook(name).tagged(tag))

    undo = f"undo() {{\n{script('rollback')}\n}}\ntrap undo EXIT\n"
    steps = "\n".join([undo, script("inject"), meanwhile, script("recover")])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", steps],
        env={"PATH": f"{folder}:/usr/bin:/bin"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode == 0
