"""What a door follows keys by, without ZooKeeper and disks."""

from collections.abc import Mapping

from millrace_shared.keys import Key, Keys


class FakeRegistry:
    """ZooKeeper as a door has it: each call fails while it doesn't answer."""

    def __init__(self, keys: Mapping[str, Key]) -> None:
        self.content: bytes | None = Keys(keys).content()
        self.there = 2
        self.noted: dict[str, float] = {}
        self.notes = 0
        self.answers = True

    def keys(self) -> bytes:
        self._call()
        if self.content is None:
            raise LookupError("no such node")
        return self.content

    def register(self) -> int:
        self._call()
        return self.there

    def used(self) -> dict[str, float]:
        self._call()
        return self.noted

    def note_used(self, at: Mapping[str, float]) -> None:
        self._call()
        self.notes += 1
        self.noted = dict(at)

    def _call(self) -> None:
        if not self.answers:
            raise ConnectionError("nobody answers")


class Memory:
    """A store."""

    content: bytes | None = None

    def read(self) -> bytes | None:
        return self.content

    def write(self, content: bytes) -> None:
        self.content = content
