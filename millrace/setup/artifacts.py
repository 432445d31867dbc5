"""The tarballs that hosts install, and the manifest that tells the plan about them."""

import json
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from millrace.common.errors import OperatorError
from millrace.common.paths import ARTIFACTS

MANIFEST = "manifest.json"
_writing = threading.Lock()


@dataclass(frozen=True)
class Artifact:
    """``version`` names one build: two tarballs that differ never share it."""

    version: str
    file: str
    sha256: str


def read_manifest(folder: Path = ARTIFACTS) -> dict[str, dict[str, str]]:
    """``{name: {version, file, sha256}}`` of every tarball that is there."""
    manifest = folder / MANIFEST
    try:
        return json.loads(manifest.read_text())
    except FileNotFoundError:
        raise OperatorError(
            f"no distributions have been built: {manifest} does not exist", "run `millrace setup`"
        ) from None
    except json.JSONDecodeError as error:
        raise OperatorError(
            f"{manifest}: not valid JSON: {error}", "delete it and run `millrace setup`"
        ) from None


def record(name: str, artifact: Artifact, folder: Path = ARTIFACTS) -> None:
    """Put a finished tarball into the manifest; steps that end together take turns."""
    with _writing:
        manifest = read_manifest(folder) if (folder / MANIFEST).exists() else {}
        manifest[name] = asdict(artifact)
        partial = folder / f".{MANIFEST}.partial"
        partial.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
        os.replace(partial, folder / MANIFEST)


def is_current(name: str, version: str, folder: Path = ARTIFACTS) -> bool:
    """True when this very build is in the manifest and its tarball is still there."""
    if not (folder / MANIFEST).exists():
        return False
    entry = read_manifest(folder).get(name)
    return bool(entry and entry["version"] == version and (folder / entry["file"]).exists())
