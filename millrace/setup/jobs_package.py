"""The zips that edge hosts get of spark-jobs/: the jobs, and the gateway that keeps them running.

Apart, so that a change in one of them doesn't restart the other. Their bytes depend on their
content alone, and so does the version that a deployment gets from them.
"""

import hashlib
import json
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel

from millrace.common.errors import OperatorError
from millrace.common.paths import CACHE, REPO
from millrace.jobs import code_of

SOURCE = REPO / "spark-jobs"
PACKAGE = "millrace_jobs"
GATEWAY = f"{PACKAGE}/gateway"
JOBS = f"{PACKAGE}/jobs"
SHARED = [f"{PACKAGE}/__init__.py", f"{PACKAGE}/strict.py"]
# The oldest date that a zip can hold.
EPOCH = (1980, 1, 1, 0, 0, 0)


class Package(BaseModel):
    """A zip for Python's path, and the sha256 of what is in it."""

    path: Path
    digest: str


def build(
    source: Path = SOURCE, target: Path = CACHE / "jobs", folders: Iterable[Path] = ()
) -> dict[str, Package]:
    """The packages ``jobs`` and ``gateway``, from the sources as they are now.

    ``folders`` hold jobs of other repositories, which are packed beside ours.
    """
    files = dict(sorted(_files(source)))
    if not files:
        raise OperatorError(f"{source / PACKAGE} holds no source file", "is the checkout complete?")
    gateway = {name: path for name, path in files.items() if name.startswith(f"{GATEWAY}/")}
    shared = {name: path for name, path in files.items() if name in SHARED}
    jobs = {name: path for name, path in files.items() if name not in gateway}
    others = {f"{JOBS}/{path.name}": path for folder in folders for path in code_of(folder)}
    return {
        "jobs": _package(dict(sorted((jobs | others).items())), target, "jobs"),
        "gateway": _package(shared | gateway, target, "gateway"),
    }


def _files(source: Path) -> Iterator[tuple[str, Path]]:
    for path in (source / PACKAGE).rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(source).as_posix(), path


def _package(files: dict[str, Path], target: Path, kind: str) -> Package:
    contents = {name: path.read_bytes() for name, path in files.items()}
    digest = _digest(contents)
    path = target / f"{kind}-{digest[:8]}.zip"
    if not path.exists():
        _write(contents, path)
    return Package(path=path, digest=digest)


def _digest(contents: dict[str, bytes]) -> str:
    table = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def _write(contents: dict[str, bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    # Stored, not compressed: a compressor's version would show in the bytes.
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    os.replace(partial, path)


if __name__ == "__main__":
    # For the playbooks; the arguments are the environment's job_folders.
    packages = build(folders=[REPO / folder for folder in sys.argv[1:]])
    print(json.dumps({kind: p.model_dump(mode="json") for kind, p in packages.items()}))
