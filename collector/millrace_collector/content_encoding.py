"""Bodies without their Content-Encoding, a part at a time: how much it was is known before more of
it is there."""

import re
import sys
import zlib
from collections.abc import Callable
from typing import Protocol

from millrace_collector.refusals import BadBody, OtherFormat

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# A part is as much of the content, or of the body, or so many members, which may be empty.
PART_BYTES = 65_536
PART_OF_BODY_BYTES = 16_384
PART_MEMBERS = 100
BLOCK_BYTES = 4_096  # what a member gets at once; whatever it leaves of that is copied
GZIP_HEADER = 31  # zlib's number for: a gzip header and the largest window
ZSTD_WINDOW_LOG = 23  # RFC 9659: 8 MiB, which clients of HTTP keep to
_PADDING = re.compile(rb"\0*")  # behind a member of gzip, as tapes and gzip itself have it


class Member(Protocol):
    """A member of gzip, or a frame of zstd, as the standard library reads compressed data."""

    def decompress(self, data: bytes, max_length: int) -> bytes: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


class GzipMember:
    """What `zlib` has, in those words."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(GZIP_HEADER)
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        content = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        self.needs_input = not self._inflate.unconsumed_tail and len(content) < max_length
        return content

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data


def _zstd_frame() -> Member:
    return zstd.ZstdDecompressor(
        options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}
    )


MEMBERS: dict[str, Callable[[], Member]] = {
    "gzip": GzipMember,
    "x-gzip": GzipMember,  # RFC 9110: the same
    "zstd": _zstd_frame,
}
NONE = "identity"


def check(encoding: str) -> None:
    """Raises OtherFormat when it can't be read."""
    if encoding != NONE and encoding not in MEMBERS:
        known = ", ".join(MEMBERS)
        raise OtherFormat(f"Content-Encoding is {encoding}; one of {known} is taken, or none.")


class Content:
    """What a body's members have in them, one after the other; ``members`` counts those begun."""

    def __init__(self, body: bytes, encoding: str) -> None:
        """``encoding`` is one of `MEMBERS`."""
        self._body = body
        self._encoding = encoding
        self._at = 0
        self._member: Member | None = None
        self.members = 0

    @property
    def is_read(self) -> bool:
        return self._member is None and self._at == len(self._body)

    def read(self) -> bytes:
        """The next part; it may be empty. Raises BadBody."""
        parts: list[bytes] = []
        left, end, last = PART_BYTES, self._at + PART_OF_BODY_BYTES, self.members + PART_MEMBERS
        while left > 0 and self._at < end and self.members < last and not self.is_read:
            parts.append(self._decompressed(left))
            left -= len(parts[-1])
        return b"".join(parts)

    def _decompressed(self, most: int) -> bytes:
        member = self._member or self._begin()
        block = self._body[self._at : self._at + BLOCK_BYTES] if member.needs_input else b""
        if member.needs_input and not block:
            raise BadBody(f"The body is cut short: it ends within {self._encoding}.")
        try:
            content = member.decompress(block, most)
        except (zlib.error, zstd.ZstdError):
            raise BadBody(f"The body is not {self._encoding}, as Content-Encoding says.") from None
        self._at += len(block)
        if member.eof:
            self._member = None
            padding = _PADDING.match(self._body, self._at - len(member.unused_data))
            assert padding  # of whatever length
            self._at = padding.end()
        return content

    def _begin(self) -> Member:
        self.members += 1
        self._member = MEMBERS[self._encoding]()
        return self._member
