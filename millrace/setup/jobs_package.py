"""The zips that edge hosts get: the jobs, and the gateway that keeps them running.

Apart, so that a change in one of them doesn't restart the other. What both need is in both. Their
bytes depend on their content alone, and so does the version that a deployment gets from them.
"""

import hashlib
import json
import os
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel

from millrace.common.errors import OperatorError
from millrace.common.paths import CACHE, REPO
from millrace.config.jobs import code_of

SHARED = "millrace_shared"
JOBS = "spark-jobs/millrace_jobs"
GATEWAY = "job-gateway/millrace_gateway"
# The oldest date that a zip can hold.
EPOCH = (1980, 1, 1, 0, 0, 0)


class Package(BaseModel):
    """A zip for Python's path, and the sha256 of what is in it."""

    path: Path
    digest: str


def build(
    repo: Path = REPO, target: Path = CACHE / "jobs", folders: Iterable[Path] = ()
) -> dict[str, Package]:
    """The packages ``jobs`` and ``gateway``, from the sources as they are now.

    ``folders`` hold jobs of other repositories, which are packed beside ours.
    """
    shared = _files(repo / SHARED)
    others = {f"millrace_jobs/jobs/{p.name}": p for folder in folders for p in code_of(folder)}
    return {
        "jobs": _package(shared | _files(repo / JOBS) | others, target, "jobs"),
        "gateway": _package(shared | _files(repo / GATEWAY), target, "gateway"),
    }


def _files(package: Path) -> dict[str, Path]:
    """Returns each file of a Python package by its name in a zip."""
    files = {
        path.relative_to(package.parent).as_posix(): path
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    if not files:
        raise OperatorError(f"{package} holds no source file", "is the checkout complete?")
    return files


def _package(files: dict[str, Path], target: Path, kind: str) -> Package:
    contents = {name: path.read_bytes() for name, path in sorted(files.items())}
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
