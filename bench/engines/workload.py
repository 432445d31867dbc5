"""What engines are asked to do: events, and the results that must come of them. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from bench.engines.stream import Stream


@dataclass(frozen=True)
class Workload:
    """A query on a stream.

    Attributes:
        columns: of a row of results, each a whole number: the key's, and the value last.
        expected: all rows there must be after so many events, counted without any engine.
        row: of a result as it stands in Kafka.
        upserts: whether a newer row replaces that with its key; else each row comes exactly once.
        table: what events are joined with, if anything.
        in_redis: whether engines look it up there, instead of having all of it.
        query: of another workload, whose statements and programs are this one's, too.
    """

    name: str
    stream: Stream
    columns: tuple[str, ...]
    expected: Callable[[int], np.ndarray]
    row: Callable[[Mapping[str, Any]], tuple[int, ...]]
    upserts: bool = False
    table: Mapping[str, str] = field(default_factory=dict)
    in_redis: bool = False
    query: str = ""

    @property
    def program(self) -> str:
        return self.query or self.name


def text_number(text: str) -> int:
    """Stands for a text in a row."""
    return crc32(text.encode())
