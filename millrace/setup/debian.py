"""Programs out of Debian's packages, of the release that the hosts run. Nothing is installed here.

apt fetches and verifies them by lists of its own: this machine may run another release, or Ubuntu.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from millrace.setup.image import load_recipe
from millrace.setup.packages import ensure_file
from millrace.setup.processes import run

MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
HINT = "it needs a Debian mirror: check the network, or set http_proxy to a proxy with one"


# Of /usr/share: for people, not for programs.
READING = shutil.ignore_patterns("doc", "man", "lintian", "bash-completion")


def install(packages: Sequence[str], root: Path) -> None:
    """Put what the packages have in ``/usr`` into ``bin/`` and ``share/`` of a folder.

    What they depend on isn't fetched, so links that may lead there are left out.
    """
    ensure_file(KEYRING, ["debian-archive-keyring"])
    with tempfile.TemporaryDirectory() as scratch:
        for package in _fetch(packages, Path(scratch)):
            run(["dpkg-deb", "--extract", package, scratch], what=f"unpacking {package.name}")
        for folder in ("bin", "share"):
            source = Path(scratch) / "usr" / folder
            if source.exists():
                shutil.copytree(source, root / folder, ignore=_left_out, dirs_exist_ok=True)


def _left_out(folder: str, names: list[str]) -> set[str]:
    links = {name for name in names if (Path(folder) / name).is_symlink()}
    return links | READING(folder, names)


def _fetch(packages: Sequence[str], scratch: Path) -> list[Path]:
    sources = scratch / "sources.list"
    (scratch / "lists" / "partial").mkdir(parents=True)
    sources.write_text(f"deb [signed-by={KEYRING}] {MIRROR} {load_recipe().release} main\n")
    folders = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": scratch / "lists",
        "Dir::Cache": scratch / "cache",
        "APT::Sandbox::User": "",  # it couldn't write into our folder
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in folders.items())]
    run([*apt, "update"], what="fetching Debian's lists", hint=HINT, cwd=scratch)
    what = f"fetching {' '.join(packages)}"
    run([*apt, "download", *packages], what=what, hint=HINT, cwd=scratch)
    return sorted(scratch.glob("*.deb"))
