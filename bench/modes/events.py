"""Events of one length, and what has to come of them. Pure.

Event ``n`` has the type ``n mod 3`` and is in partition ``n mod 2``. The query keeps one type and
of it the number: a filter and a projection.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from bench.pool import BATCH_BYTES, Batch, digits_of, places, record

PARTITIONS = 2
TYPES = ("view", "like", "sale")
KEPT = 0
DIGITS = 10  # what `digits_of` writes
FIELDS = {
    "id": "0" * DIGITS,
    "type": TYPES[KEPT],
    "user": "00000000-0000-4000-8000-000000000001",
    "page": "00000000-0000-4000-8000-000000000002",
    "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
}
PLACE_AT = 4  # in a record: after its length, attributes and time
_TEMPLATE = record(b"", json.dumps(FIELDS, separators=(",", ":")).encode())
_ID_AT = _TEMPLATE.index(b'"id":"') + len(b'"id":"')
_TYPE_AT = _TEMPLATE.index(b'"type":"') + len(b'"type":"')
_TYPES = np.frombuffer("".join(TYPES).encode(), np.uint8).reshape(len(TYPES), -1)


def batches(first: int, end: int) -> Iterator[Batch]:
    """Events ``first`` to ``end``, those of each partition in order."""
    most = BATCH_BYTES // len(_TEMPLATE)
    for partition in range(PARTITIONS):
        own = np.arange(first + (partition - first) % PARTITIONS, end, PARTITIONS)
        for at in range(0, len(own), most):
            numbers = own[at : at + most]
            content = np.tile(np.frombuffer(_TEMPLATE, np.uint8), (len(numbers), 1))
            content[:, PLACE_AT : PLACE_AT + 2] = places(np.arange(len(numbers)))
            content[:, _ID_AT : _ID_AT + DIGITS] = digits_of(numbers)
            content[:, _TYPE_AT : _TYPE_AT + _TYPES.shape[1]] = _TYPES[numbers % len(TYPES)]
            yield Batch(partition, numbers, content.reshape(-1))


def result(number: int) -> bytes:
    return f'{{"id":"{number:0{DIGITS}d}"}}'.encode()


def number_of(value: bytes) -> int | None:
    """The event whose result it is, None if there is none such."""
    digits = value[len(b'{"id":"') :][:DIGITS]
    number = int(digits) if digits.isdigit() else -1
    return number if number % len(TYPES) == KEPT and value == result(number) else None


@dataclass(frozen=True)
class Check:
    """How many results never came, came again, and are of no event."""

    lost: int
    duplicates: int
    strange: int


def check(values: Iterable[bytes], sent: int) -> Check:
    """Of all results of the first ``sent`` events."""
    seen = Counter(map(number_of, values))
    expected = range(KEPT, sent, len(TYPES))
    known = [number for number in seen if number is not None and number < sent]
    return Check(
        len(expected) - len(known),
        sum(seen[number] - 1 for number in known),
        sum(seen.values()) - sum(seen[number] for number in known),
    )
