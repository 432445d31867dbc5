"""Programs out of Debian's packages, of the release that the hosts run. Nothing is installed here.

apt fetches and verifies them by lists of its own: this machine may run another release, or Ubuntu.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from millrace.setup.image import load_recipe
from millrace.setup.packages import ensure_file, one_apt
from millrace.setup.processes import run

MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
HINT = "it needs a Debian mirror: check the network, or set http_proxy to a proxy with one"


# Folders of /usr, and of a distribution.
FOLDERS = {"bin": "bin", "sbin": "sbin", "share": "share", "lib/*-linux-gnu*": "lib"}
# Of /usr/share: for people, not for programs.
READING = shutil.ignore_patterns("doc", "man", "lintian", "bash-completion")


def install(packages: Sequence[str], root: Path) -> None:
    """Put programs, libraries and data of the packages into a distribution's folder.

    What they depend on isn't fetched, so links that may lead there are left out: all but the
    further names of what lies beside them, as libraries have.
    """
    ensure_file(KEYRING, ["debian-archive-keyring"])
    with tempfile.TemporaryDirectory() as scratch:
        for package in _fetch(packages, Path(scratch)):
            run(["dpkg-deb", "--extract", package, scratch], what=f"unpacking {package.name}")
        for pattern, folder in FOLDERS.items():
            for source in (Path(scratch) / "usr").glob(pattern):
                shutil.copytree(source, root / folder, ignore=_left_out, dirs_exist_ok=True)


def _left_out(folder: str, names: list[str]) -> set[str]:
    links = {name for name in names if (Path(folder) / name).is_symlink()}
    further_names = {link for link in links if os.readlink(Path(folder) / link) in names}
    return links - further_names | READING(folder, names)


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
    what = f"fetching {' '.join(packages)}"
    with one_apt:
        run([*apt, "update"], what="fetching Debian's lists", hint=HINT, cwd=scratch)
    run([*apt, "download", *packages], what=what, hint=HINT, cwd=scratch)
    return sorted(scratch.glob("*.deb"))
