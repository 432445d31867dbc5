"""What a commit of an archive's table says: an entry of Delta's log, one action a line. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SUFFIX = ".json"


@dataclass(frozen=True)
class File:
    """A file that a commit added; ``path`` is encoded as in a URL, below the table's folder."""

    path: str
    bytes: int
    rows: int


@dataclass(frozen=True)
class Append:
    """A batch that an archive's job has added.

    Attributes:
        committed: in seconds since 1970, by the driver's clock.
        checkpoint: of the job; batches of another one have other numbers.
        read: from and up to where the batch read each partition; None of a version of the job that
            didn't say so yet.
    """

    version: int
    committed: float
    checkpoint: str
    batch: int
    read: Mapping[int, tuple[int, int]] | None
    files: tuple[File, ...]


def name_of(version: int) -> str:
    return f"{version:020}{SUFFIX}"


def version_of(name: str) -> int | None:
    """None for what is no commit: the log's folder has checkpoints and checksums, too."""
    number = name.removesuffix(SUFFIX)
    return int(number) if name.endswith(SUFFIX) and number.isdecimal() else None


def parse(version: int, text: str) -> Append | None:
    """None for a commit that is no batch's: the upkeep merges files, and deletes expired rows."""
    actions: dict[str, list[dict[str, Any]]] = {}
    for line in text.splitlines():
        for kind, content in json.loads(line).items():
            actions.setdefault(kind, []).append(content)
    if "txn" not in actions:
        return None
    [written], [info] = actions["txn"], actions["commitInfo"]
    _, _, checkpoint = written["appId"].partition(" ")  # after the job's name
    return Append(
        *(version, info["timestamp"] / 1000, checkpoint, written["version"]),
        _read(info.get("userMetadata")),
        tuple(map(_file, actions.get("add", ()))),
    )


def _read(told: str | None) -> dict[int, tuple[int, int]] | None:
    if told is None:
        return None
    return {int(number): (start, end) for number, (start, end) in json.loads(told)["read"].items()}


def _file(added: Mapping[str, Any]) -> File:
    return File(added["path"], added["size"], json.loads(added["stats"])["numRecords"])
