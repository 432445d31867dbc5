"""promtool, which checks rules and tries them on made-up series. It comes in Debian's package of
Prometheus, of which only this file is taken: nothing is installed, no service starts."""

import shutil
import tempfile
from pathlib import Path

from millrace.common.errors import OperatorError
from millrace.common.paths import CACHE
from millrace.setup.processes import run

PACKAGE = "prometheus"
HINT = "check the network, or install Debian's package prometheus"


def ensure_promtool() -> Path:
    """Returns its path: the system's, or our own copy, which apt fetches and verifies."""
    if found := shutil.which("promtool"):
        return Path(found)
    kept = CACHE / "promtool"
    if kept.exists():
        return kept
    if not shutil.which("apt-get"):
        raise OperatorError("promtool is missing, and this machine has no apt-get", HINT)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        scratch = Path(folder)
        run(
            ["apt-get", "download", "-qq", PACKAGE],
            what=f"fetching {PACKAGE}",
            hint=HINT,
            cwd=scratch,
        )
        (package,) = scratch.glob("*.deb")
        run(
            ["dpkg-deb", "--extract", package, scratch], what=f"unpacking {package.name}", hint=HINT
        )
        (scratch / "usr" / "bin" / "promtool").rename(kept)
    return kept
