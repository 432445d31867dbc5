"""Relocatable Python environments from hash-pinned requirements, for hosts with Python 3.11."""

import compileall
import py_compile
import shutil
import sys
from pathlib import Path

from uv import find_uv_bin

from millrace.common.errors import OperatorError
from millrace.common.paths import REPO
from millrace.setup.processes import run

REQUIREMENTS = REPO / "requirements"
PYTHON = (3, 11)  # the hosts' Python: wheels and byte code are made for it
HINT = "uv reads the package index from UV_INDEX_URL or its own configuration; try again"


def requirements(name: str) -> Path:
    return REQUIREMENTS / f"{name}.txt"


def install(name: str, target: Path) -> None:
    """Install a deployable's locked packages into a folder for PYTHONPATH."""
    if sys.version_info[:2] != PYTHON:
        raise OperatorError(
            f"set-up runs on Python {sys.version.split()[0]}, the hosts on {PYTHON[0]}.{PYTHON[1]}",
            "make the toolkit's environment with python3.11",
        )
    command: list[str | Path] = [find_uv_bin(), "pip", "install", "--quiet", "--require-hashes"]
    command += ["--python", sys.executable, "--target", target, "--requirement", requirements(name)]
    run(command, what=f"installing requirements/{name}.txt", hint=HINT)
    # The scripts' first lines name this machine's Python; hosts use our launchers.
    shutil.rmtree(target / "bin", ignore_errors=True)
    (target / ".lock").unlink(missing_ok=True)
    # Unchecked: the tarball's files are dated 1970 and nobody edits them on a host.
    compileall.compile_dir(
        target,
        quiet=2,
        stripdir=target,  # or the folder that it was built in would be part of the content
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
