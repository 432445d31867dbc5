"""As much of a log as there is room for: the newest. Pure."""

import gzip
from collections import deque
from collections.abc import Callable

CHUNK = 2**18  # characters that are compressed together


class Newest:
    """The newest of the lines that are added, compressed, in ``most`` bytes at most.

    Args:
        most: bytes of `content`.
        prepare: what becomes of some lines together before they are compressed.

    Lines are compressed some at a time; the oldest of these parts are left out.
    """

    def __init__(self, most: int, prepare: Callable[[str], str]) -> None:
        self._most = most
        self._prepare = prepare
        self._chunk = max(1, min(CHUNK, most // 8))
        self._kept: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._lines: list[str] = []
        self._length = 0
        self._began = 0.0
        self.is_cut = False

    def add(self, time: float, line: str) -> None:
        """Adds a line; ``time`` is in seconds since 1970."""
        if not self._lines:
            self._began = time
        self._lines.append(line + "\n")
        self._length += len(line)
        if self._length >= self._chunk:
            self.end()

    def end(self) -> None:
        """Compresses what has been added until now."""
        if not self._lines:
            return
        text = self._prepare("".join(self._lines))
        data = gzip.compress(text.encode(errors="replace"), mtime=0)
        self._kept.append((self._began, data))
        self._size += len(data)
        self._lines, self._length = [], 0
        while self._size > self._most:
            _, oldest = self._kept.popleft()
            self._size -= len(oldest)
            self.is_cut = True

    @property
    def content(self) -> bytes:
        """Returns what was kept until the last `end`, as a .gz file has it."""
        return b"".join(data for _, data in self._kept)

    @property
    def since(self) -> float | None:
        """The time of the first line that is kept; None when there is none."""
        return self._kept[0][0] if self._kept else None
