"""Debian packages that set-up itself needs on the operator's machine."""

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from millrace.common.errors import OperatorError
from millrace.setup.processes import as_root, run

# apt runs once at a time on a machine, by lists of its own too: a machine may empty the archive of
# packages after each update, as those made from Docker's images do, and so under an installation.
one_apt = threading.Lock()
# The machine's lists need fetching once per set-up.
_updated = threading.Event()


def ensure_command(command: str, packages: Sequence[str]) -> str:
    """The path of a command; its Debian packages are installed when it's missing."""
    with one_apt:
        if not _find(command):
            _install(command, packages)
        if path := _find(command):
            return path
    raise OperatorError(f"`{command}` is still missing after installing {' '.join(packages)}")


def ensure_file(path: Path, packages: Sequence[str]) -> None:
    """Installs packages for a file that is no command. Raises OperatorError if it stays away."""
    with one_apt:
        if not path.exists():
            _install(str(path), packages)
    if not path.exists():
        raise OperatorError(f"{path} is still missing after installing {' '.join(packages)}")


def _install(missing: str, packages: Sequence[str]) -> None:
    if not shutil.which("apt-get"):
        raise OperatorError(
            f"`{missing}` is missing and this machine has no apt-get to install it with",
            f"install {' '.join(packages)} with this system's package manager",
        )
    hint = "check the network and sudo rights, or install it by hand"
    if not _updated.is_set():
        run(as_root(["apt-get", "update", "-q"]), what="apt-get update", hint=hint)
        _updated.set()
    install = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-qy"]
    install += ["--no-install-recommends", *packages]
    # Cut short, dpkg would refuse all further work until it's repaired by hand.
    what = f"installing {' '.join(packages)}"
    run(as_root(install), what=what, hint=hint, uninterrupted=True)


def _find(command: str) -> str | None:
    # dockerd and debootstrap live in sbin, which an ordinary user's PATH lacks.
    return shutil.which(command) or shutil.which(command, path="/usr/sbin:/sbin")
