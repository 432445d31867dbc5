"""Lines of 100 bytes, and what has to come of them. Pure.

What the paper's records of 100 bytes had in them isn't known here: they are words with a space
between, five letters in the mean, as in English, and as often as Zipf's law has it. A pool of lines
comes again and again: line ``n`` is in partition ``n mod 2``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from bench.pool import BATCH_BYTES, Batch, places, record

LINE_BYTES = 100
PARTITIONS = 2
POOL = 20_000
VOCABULARY = 10_000
SHORTEST, LONGEST = 3, 7  # letters
SEED = 7
PATTERN, PATTERN_RANK = "alice", 100  # in 1.4 % of lines
K = 10
PLACE_AT = 4  # in a record: after its length, attributes and time
DRAWN = 65_536


@cache
def vocabulary() -> list[str]:
    """The most frequent word first."""
    draw = np.random.default_rng(SEED)
    found: dict[str, None] = {}
    while len(found) < VOCABULARY:
        letters = draw.integers(ord("a"), ord("z") + 1, LONGEST).astype(np.uint8).tobytes()
        found[letters[: draw.integers(SHORTEST, LONGEST + 1)].decode()] = None
    words = list(found)
    words[PATTERN_RANK] = PATTERN
    return words


@cache
def lines() -> list[str]:
    """The pool."""
    words, drawn = vocabulary(), _drawn()
    return [" ".join(words[rank] for rank in _line(words, drawn)) for _ in range(POOL)]


def _drawn() -> Iterator[int]:
    """Ranks, for ever."""
    draw = np.random.default_rng(SEED)
    weights = 1 / np.arange(1, VOCABULARY + 1)
    while True:
        yield from draw.choice(VOCABULARY, DRAWN, p=weights / weights.sum()).tolist()


def _line(words: list[str], drawn: Iterator[int]) -> Iterator[int]:
    """Words that fill it to the last byte; one that would leave too little is drawn again."""
    room = LINE_BYTES
    while room:
        rank = next(drawn)
        left = room - len(words[rank]) - 1
        if left == -1 or left >= SHORTEST:
            yield rank
            room = max(0, left)


@dataclass(frozen=True)
class Part:
    """A partition's lines of the pool.

    Attributes:
        records: Kafka's record of each, all of one length.
        ranks: of all their words, one line after the other.
        starts: where in ``ranks`` each begins, and the end.
        matches: how many of the lines before each match the pattern, and of all.
    """

    records: np.ndarray
    ranks: np.ndarray
    starts: np.ndarray
    matches: np.ndarray

    def words(self, count: int) -> np.ndarray:
        """How often each word is in the partition's first ``count`` lines, by rank."""
        cycles, rest = divmod(count, len(self.records))
        whole = np.bincount(self.ranks, minlength=VOCABULARY)
        return cycles * whole + np.bincount(self.ranks[: self.starts[rest]], minlength=VOCABULARY)

    def matching(self, count: int) -> int:
        """How many of the partition's first ``count`` lines match."""
        cycles, rest = divmod(count, len(self.records))
        return int(cycles * self.matches[-1] + self.matches[rest])


@cache
def parts() -> list[Part]:
    return [_part(lines()[partition::PARTITIONS]) for partition in range(PARTITIONS)]


def _part(own: list[str]) -> Part:
    rank = {word: rank for rank, word in enumerate(vocabulary())}
    split = [line.split(" ") for line in own]
    content = b"".join(record(b"", line.encode()) for line in own)
    return Part(
        np.frombuffer(content, np.uint8).reshape(len(own), -1),
        np.array([rank[word] for words in split for word in words]),
        np.concatenate([[0], np.cumsum([len(words) for words in split])]),
        np.concatenate([[0], np.cumsum([PATTERN in line for line in own])]),
    )


def batches(first: int, end: int) -> Iterator[Batch]:
    """Lines ``first`` to ``end``, those of each partition in order."""
    for partition, part in enumerate(parts()):
        low, high = (-(-(number - partition) // PARTITIONS) for number in (first, end))
        most = BATCH_BYTES // part.records.shape[1]
        for at in range(low, high, most):
            numbers = np.arange(at, min(at + most, high))
            content = part.records[numbers % len(part.records)]  # a copy
            content[:, PLACE_AT : PLACE_AT + 2] = places(np.arange(len(numbers)))
            yield Batch(partition, PARTITIONS * numbers + partition, content.reshape(-1))
