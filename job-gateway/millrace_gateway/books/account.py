"""What a batch owes, what it brought, and the difference. Pure.

The books go on from where they stand, not from where a batch says that it began: a batch that was
left out, or whose commit was taken away, is owed by the next one, and one that reads again what was
read before brings more than it owes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from millrace_shared.books import difference

EARLIEST = -2  # Kafka's number for "from the beginning"

Offsets = Mapping[int, int]  # partition → offset


@dataclass(frozen=True, order=True)
class Piece:
    """Offsets of one partition, ``end`` not included. ``start`` may be `EARLIEST`."""

    partition: int
    start: int
    end: int

    @property
    def offsets(self) -> int:
        """How many there are, if the topic begins with offset 0 or the piece later."""
        return self.end - max(self.start, 0)


@dataclass(frozen=True)
class Entry:
    """One batch in the books.

    Attributes:
        committed: when the archive's table took it, in seconds since 1970.
        version: that the archive's table has since.
        records: that Kafka has in what the batch owes; None if Kafka has forgotten some of them, or
            has some that are too large for whoever counts them.
        skipped: offsets that the archive was made to leave out. They aren't in ``records``.
    """

    stream: str
    committed: float
    checkpoint: str
    batch: int
    version: int
    records: int | None
    archived: int
    dead_letters: int
    skipped: int

    @property
    def difference(self) -> int:
        """Records that went nowhere; negative where more was archived than Kafka has."""
        return difference(self.records, self.archived, self.dead_letters)


@dataclass(frozen=True)
class Figures:
    """What is told of a stream: records of a day's batches that went nowhere, and those that came
    twice; and up to when all batches are entered, in seconds since 1970."""

    missing: int
    surplus: int
    closed: float


def owed(reached: Offsets, read: Mapping[int, tuple[int, int]]) -> list[Piece]:
    """What a batch has to account for: from where the books stand up to where it has read.

    Args:
        read: from and up to where the batch says that it read. Its beginning counts only for a
            partition of which the books know nothing.
    """
    pieces = (
        Piece(partition, reached.get(partition, start), end)
        for partition, (start, end) in read.items()
    )
    return [piece for piece in pieces if piece.offsets > 0]


def after(reached: Offsets, read: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Where the books stand once a batch is entered. They never go back: what is read again from an
    older position was accounted for."""
    ends = {partition: end for partition, (_, end) in read.items()}
    return {
        partition: max(reached.get(partition, 0), ends.get(partition, 0))
        for partition in reached.keys() | ends.keys()
    }


def without(pieces: Iterable[Piece], skipped: Sequence[Piece]) -> list[Piece]:
    """The pieces around what is skipped. Skipped ranges may overlap, and touch any piece."""
    left: list[Piece] = []
    for piece in pieces:
        start = piece.start
        for gap in sorted(skipped):
            if gap.partition != piece.partition or gap.end <= start or gap.start >= piece.end:
                continue
            if gap.start > max(start, 0):
                left.append(Piece(piece.partition, start, gap.start))
            start = gap.end
        if max(start, 0) < piece.end:
            left.append(Piece(piece.partition, start, piece.end))
    return left


def offsets(pieces: Iterable[Piece]) -> int:
    return sum(piece.offsets for piece in pieces)
