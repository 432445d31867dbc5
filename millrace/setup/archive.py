"""Tarballs whose bytes depend on their content alone."""

import os
import tarfile
from pathlib import Path


def write_tar(folder: Path, target: Path) -> None:
    """Pack a folder's content: sorted, owned by root, dated 1970.

    Not compressed: nearly all of it is jars and wheels' binaries, which are compressed already,
    and a compressor's version would show in the checksum.
    """
    partial = target.with_name(f".{target.name}.partial")
    # dereference: installers hard-link files, and which ones is no part of the content.
    with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT, dereference=True) as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, path.relative_to(folder).as_posix(), recursive=False, filter=_neutral)
    os.replace(partial, target)


def _neutral(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mtime = 0
    # Only "executable or not" survives: the builder's umask must not.
    executable = member.isdir() or member.mode & 0o100
    member.mode = 0o755 if executable else 0o644
    return member
