"""Lock files: the complete list of a distribution's jars, each with its sha256."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from millrace.common.errors import OperatorError
from millrace.common.paths import CONFIGS

LOCKS = CONFIGS / "distributions"


@dataclass(frozen=True)
class Jar:
    """One published jar: where Maven finds it and what its bytes must hash to."""

    group: str
    artifact: str
    version: str
    classifier: str | None
    sha256: str

    @property
    def coordinates(self) -> str:
        parts = [self.group, self.artifact, self.version, self.classifier]
        return ":".join(part for part in parts if part)

    @property
    def filename(self) -> str:
        parts = [self.artifact, self.version, self.classifier]
        return "-".join(part for part in parts if part) + ".jar"


def parse_jar(coordinates: str, sha256: str = "") -> Jar:
    """Returns ``group:artifact:version[:classifier]`` as a Jar."""
    group, artifact, version, *rest = coordinates.split(":")
    return Jar(group, artifact, version, rest[0] if rest else None, sha256)


LINE = re.compile(r"([0-9a-f]{64})  ([^\s:]+:[^\s:]+:[^\s:]+(?::[^\s:]+)?)")


def lock_path(name: str, folder: Path = LOCKS) -> Path:
    return folder / f"{name}.lock"


def read_lock(path: Path) -> list[Jar]:
    """The jars of a lock file; file names are unique, because they share one ``lib/``."""
    if not path.exists():
        raise OperatorError(f"{path}: no such lock", "write it with `millrace lock`")
    jars: dict[str, Jar] = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if not match:
            raise OperatorError(
                f"{path}:{number}: expected '<sha256>  group:artifact:version[:classifier]', "
                f"found {line!r}",
                "locks are generated: take the committed file back, or run `millrace lock`",
            )
        jar = parse_jar(match[2], match[1])
        if jar.filename in jars:
            raise OperatorError(f"{path}:{number}: {jar.filename} stands twice in the lock")
        jars[jar.filename] = jar
    return list(jars.values())


def write_lock(path: Path, jars: list[Jar]) -> None:
    lines = [
        f"{jar.sha256}  {jar.coordinates}" for jar in sorted(jars, key=lambda jar: jar.coordinates)
    ]
    path.write_text("\n".join(["# Written by `millrace lock` from versions.yaml.", *lines]) + "\n")


def verify(jar: Jar, file: Path) -> None:
    """Refuse a jar whose bytes are not the ones that were locked."""
    found = sha256_of(file)
    if found != jar.sha256:
        raise OperatorError(
            f"{jar.coordinates}: checksum mismatch: locked {jar.sha256}, downloaded {found}",
            "the repository serves something else than what was locked: delete the jar from "
            "~/.m2/repository and try again; if it stays, do not trust that repository",
        )


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
