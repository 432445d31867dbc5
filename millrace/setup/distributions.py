"""Distributions: pinned jars and Python packages with our launchers, or Debian's programs.

A tarball holds, with no folder around it: ``bin/`` (launchers, programs), ``sbin/``, ``lib/``
(jars, libraries), ``share/`` (defaults on the class path behind the host's own configuration; what
Debian's programs read), ``site-packages/`` (Python).
"""

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from millrace.common.errors import OperatorError
from millrace.common.paths import ARTIFACTS
from millrace.setup import artifacts, debian, python_env
from millrace.setup.archive import write_tar
from millrace.setup.locks import LOCKS, Jar, lock_path, read_lock, sha256_of, verify
from millrace.setup.maven import fetch
from millrace.setup.steps import Report
from millrace.setup.versions import Distribution, Unpack

LAUNCHERS = Path(__file__).with_name("launchers")
COMMANDS = "commands"
COMMAND = """\
#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/run" {main_class} "$@"
"""


@dataclass(frozen=True)
class Places:
    """Where a build takes jars and launchers from, and the folder that its tarball goes to."""

    artifacts: Path = ARTIFACTS
    locks: Path = LOCKS
    launchers: Path = LAUNCHERS
    fetch: Callable[[list[Jar], Path], None] = fetch


PLACES = Places()


def ensure(name: str, distribution: Distribution, report: Report, at: Places = PLACES) -> None:
    """Build the tarball of a distribution unless this very build is there already."""
    jars = read_lock(lock_path(name, at.locks)) if distribution.jars else []
    version = build_version(name, distribution, at)
    if artifacts.is_current(name, version, at.artifacts):
        report(f"{version}, already built")
        return
    at.artifacts.mkdir(parents=True, exist_ok=True)
    tarball = at.artifacts / f"{name}-{version}.tar"
    root = at.artifacts / f".{name}.partial"
    shutil.rmtree(root, ignore_errors=True)  # of a set-up that was killed
    try:
        root.mkdir()
        _assemble(root, name, distribution, jars, report, at)
        report("packing")
        write_tar(root, tarball)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    artifact = artifacts.Artifact(version, tarball.name, sha256_of(tarball))
    artifacts.record(name, artifact, at.artifacts)
    _remove_older(name, tarball)
    report(version)


def build_version(name: str, distribution: Distribution, at: Places) -> str:
    """The version and a digest of all that goes in, so that any change makes a new build."""
    digest = hashlib.sha256(distribution.model_dump_json().encode())
    folders = launcher_folders(name, distribution, at.launchers)
    inputs = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    if distribution.jars:
        inputs.append(lock_path(name, at.locks))
    if distribution.python:
        inputs.append(python_env.requirements(distribution.python))
    for path in inputs:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{distribution.version}-{digest.hexdigest()[:8]}"


def launcher_folders(
    name: str, distribution: Distribution, launchers: Path = LAUNCHERS
) -> list[Path]:
    """A Python environment is run by `python`, Java's can run any class; both next to their own."""
    folders = [launchers / name]
    if distribution.python is None and distribution.jars:
        folders.insert(0, launchers / "common")
    if distribution.python and not distribution.jars:
        folders.insert(0, launchers / "python-env")
    return [folder for folder in folders if folder.exists()]


def _assemble(
    root: Path, name: str, distribution: Distribution, jars: list[Jar], report: Report, at: Places
) -> None:
    library = root / "lib"
    if distribution.python:
        report("installing Python packages")
        python_env.install(distribution.python, root / "site-packages")
        # Spark finds its own jars by folder, so its connectors have to be in the same one.
        library = root / "site-packages" / "pyspark" / "jars"
    if jars:
        report(f"downloading {len(jars)} jars")
        _install_jars(jars, library, root / "share", distribution.unpack, at.fetch)
    _install_launchers(launcher_folders(name, distribution, at.launchers), root)
    if distribution.debian:
        report("unpacking Debian's packages")
        debian.install(distribution.debian, root)


def _install_launchers(folders: Iterable[Path], root: Path) -> None:
    (root / "bin").mkdir()
    for folder in folders:
        shutil.copytree(folder, root, dirs_exist_ok=True, ignore=lambda *_: {COMMANDS})
        if (folder / COMMANDS).exists():
            _write_commands(folder / COMMANDS, root / "bin")
    for launcher in (root / "bin").iterdir():
        launcher.chmod(0o755 if launcher.read_bytes().startswith(b"#!") else 0o644)


def _write_commands(table: Path, folder: Path) -> None:
    """A launcher per line of a ``commands`` table: name, main class."""
    for line in table.read_text().splitlines():
        if line and not line.startswith("#"):
            name, main_class = line.split()
            (folder / name).write_text(COMMAND.format(main_class=main_class))


def _install_jars(
    jars: list[Jar],
    library: Path,
    share: Path,
    unpack: list[Unpack],
    fetch: Callable[[list[Jar], Path], None],
) -> None:
    """Download, verify every jar, then unpack or install it."""
    with tempfile.TemporaryDirectory(dir=share.parent.parent) as scratch:
        folder = Path(scratch)
        fetch(jars, folder)
        library.mkdir(parents=True, exist_ok=True)
        for jar in jars:
            verify(jar, folder / jar.filename)
            rule = next((rule for rule in unpack if rule.jar == jar.coordinates), None)
            if rule:
                extract(folder / jar.filename, rule.path, share)
            else:
                shutil.move(folder / jar.filename, library)


def extract(jar: Path, path: str, share: Path) -> None:
    """Unpacks one folder of a jar."""
    with zipfile.ZipFile(jar) as archive:
        members = [name for name in archive.namelist() if name.startswith(f"{path}/")]
        if not members:
            raise OperatorError(f"{jar.name} holds no {path}/", "check `unpack` in versions.yaml")
        archive.extractall(share, members)


def _remove_older(name: str, current: Path) -> None:
    """Builds that were replaced; an environment without its own tarball name never matches."""
    for path in current.parent.glob(f"{name}-[0-9]*.tar"):
        if path != current:
            path.unlink()
