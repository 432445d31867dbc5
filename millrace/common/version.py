"""Which Millrace this is: the package's version, and the checkout's commit."""

import subprocess
from importlib.metadata import version

from millrace.common.paths import REPO


def described() -> str:
    """Returns ``0.1.0 (1a2b3c4)``; the version alone where there is no commit."""
    found = commit()
    return version("millrace") + (f" ({found})" if found else "")


def commit() -> str | None:
    """Returns ``1a2b3c4``, or the tag, with ``-dirty`` after changes; None without git or a
    repository."""
    command = ["git", "-C", str(REPO), "describe", "--always", "--dirty"]
    try:
        said = subprocess.run(command, capture_output=True, text=True).stdout
    except FileNotFoundError:
        return None
    return said.strip() or None
