"""A log file, a gzipped one or standard input, as numbered lines in bounded memory."""

import os
import select
import stat
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain

from millrace.common.errors import OperatorError

STDIN = "-"
CHUNK = 64 * 1024
FINGERPRINT = 1024  # bytes of the log that tell it from others
GZIP_MAGIC = b"\x1f\x8b"
IDLE_SECONDS = 0.2

# None: nothing came for a while, and whoever holds lines back had better send them now.
Chunks = Iterator[bytes | None]


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its newline. ``size`` says how long it was before `data` was cut."""

    number: int
    end: int  # offset of the next line in the decompressed log
    data: bytes
    size: int


Lines = Iterator[Line | None]


class Source:
    """An open log. The same log is the same source whether it is plain, gzipped or piped."""

    def __init__(self, path: str) -> None:
        self.name = "standard input" if path == STDIN else path
        self._fd = sys.stdin.fileno() if path == STDIN else _open(path)
        status = os.fstat(self._fd)
        self._size = status.st_size if stat.S_ISREG(status.st_mode) else None
        raw = _read(self._fd)
        head = _take(raw, len(GZIP_MAGIC))
        self._gzipped = head.startswith(GZIP_MAGIC)
        self._chunks: Chunks = chain([head], raw)
        if self._gzipped:
            self._chunks = _gunzip(self._chunks, self.name)
        head = _take(self._chunks, FINGERPRINT)
        self._fingerprint = head[:FINGERPRINT]
        self._chunks = chain([head], self._chunks)

    def identity(self, run: str) -> str:
        """Names this log's content in this run; a log shorter than the fingerprint by all of it."""
        return blake2b(self._fingerprint + b"\0" + run.encode(), digest_size=16).hexdigest()

    @property
    def fraction(self) -> float | None:
        """Returns how much of the file has been read; None when its size isn't known."""
        if not self._size:
            return None
        return os.lseek(self._fd, 0, os.SEEK_CUR) / self._size

    def lines(self, number: int, offset: int, limit: int) -> Lines:
        """The lines from ``offset`` on, before which ``number`` lines stand; cut at ``limit``."""
        kept, dropped = b"", 0
        for chunk in self._from(offset):
            if chunk is None:
                yield None
                continue
            *pieces, tail = chunk.split(b"\n")
            for piece in pieces:
                data = kept + piece
                size = len(data) + dropped
                number, offset = number + 1, offset + size + 1
                yield Line(number, offset, _cut(data, limit), size)
                kept, dropped = b"", 0
            kept += tail
            before = len(kept)
            kept = _cut(kept, limit)
            dropped += before - len(kept)
        if kept or dropped:  # the last line may lack its newline
            size = len(kept) + dropped
            yield Line(number + 1, offset + size, kept, size)

    def _from(self, offset: int) -> Chunks:
        if self._size is None or self._gzipped:
            return _skip(self._chunks, offset, self.name)
        if offset > self._size:
            raise _shorter(self.name, offset)
        os.lseek(self._fd, offset, os.SEEK_SET)
        return _read(self._fd)


def _cut(data: bytes, limit: int) -> bytes:
    """At most ``limit`` bytes. Padding goes first: a log that was truncated while its server went
    on writing begins with as many zero bytes as it had been long."""
    return data if len(data) <= limit else data.lstrip(b"\0")[:limit]


def _open(path: str) -> int:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise OperatorError(f"cannot read {path}: {error.strerror}") from None
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.close(fd)
        raise OperatorError(f"cannot read {path}: it is a directory")
    return fd


def _read(fd: int) -> Chunks:
    while True:
        if not select.select([fd], [], [], IDLE_SECONDS)[0]:
            yield None
            continue
        chunk = os.read(fd, CHUNK)
        if not chunk:
            return
        yield chunk


def _gunzip(chunks: Chunks, name: str) -> Chunks:
    """Decompressed chunks of one or more gzip members (rotated logs are often concatenated).

    Zero bytes behind a member are padding, as tapes and block devices make it.
    """
    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        for chunk in chunks:
            if chunk is None:
                yield None
            while chunk:
                if inflate.eof:
                    chunk = chunk.lstrip(b"\0")
                    if not chunk:
                        break
                    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
                if data := inflate.decompress(chunk, CHUNK):
                    yield data
                chunk = inflate.unconsumed_tail or inflate.unused_data
        if data := inflate.flush():
            yield data
    except zlib.error as error:
        raise OperatorError(f"{name} is a damaged gzip file: {error}") from None
    if not inflate.eof:
        raise OperatorError(
            f"{name} ends in the middle of its gzip stream",
            "with the complete file, the same command goes on where this one stopped",
        )


def _take(chunks: Chunks, count: int) -> bytes:
    """At least the first ``count`` bytes, or all there is."""
    data = b""
    while len(data) < count:
        chunk = next(chunks, b"")
        if chunk == b"":
            break
        data += chunk or b""
    return data


def _skip(chunks: Chunks, count: int, name: str) -> Chunks:
    left = count
    for chunk in chunks:
        if chunk is None or left == 0:
            yield chunk
        elif len(chunk) > left:
            yield chunk[left:]
            left = 0
        else:
            left -= len(chunk)
    if left:
        raise _shorter(name, count)


def _shorter(name: str, offset: int) -> OperatorError:
    return OperatorError(
        f"{name} is shorter than what was already replayed of it ({offset:,} bytes)",
        "a different log that begins with the same bytes needs its own --run NAME",
    )
