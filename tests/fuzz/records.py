"""Random records of a stream: what its producers send, could send, and should never send. Pure.

The same seed makes the same records. Nothing here says which of them are events: that the jobs do,
and each record has to be somewhere afterwards, whatever they said.
"""

import json
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from millrace.plan.streams import StreamPlan

Event = dict[str, Any]
Headers = list[tuple[str, bytes | None]]
LARGEST = 900_000  # bytes of a value that a broker takes without compression
DEEPEST = 5_000  # brackets in brackets
EDGES = (0, -1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**400)
ODD_TEXT = (
    "",
    " ",
    "\x00",
    "\u2028",
    "é" * 50,
    "\U0001f6b0",
    "\ud800",
    "a" * 5_000,
    "../../",
    "null",
)
ODD_TIMES = (
    "1969-12-31T23:59:59.999Z",
    "2000-01-01T00:00:00Z",
    "2016-12-31T23:59:60Z",
    "9999-12-31T23:59:59.999Z",
    "2024-02-30T00:00:00Z",
    "2024-01-01",
    "now",
    "",
)


@dataclass(frozen=True)
class Record:
    """What is sent; ``kind`` names what was done to it, for whoever looks for one that is lost."""

    kind: str
    key: bytes | None
    value: bytes | None
    headers: Headers


def records(stream: StreamPlan, seed: int, now: Callable[[], datetime]) -> Iterator[Record]:
    """Records without end; half of them are events as they should be."""
    random = Random(f"{seed} {stream.topic}")
    kinds = list(KINDS.items())
    while True:
        kind, make = random.choice(kinds) if random.random() < 0.5 else ("event", _event)
        event = good(stream, random, now())
        yield Record(kind, _key(random, stream, event), make(random, event), _headers(random))


def good(stream: StreamPlan, random: Random, now: datetime) -> Event:
    """An event of the stream, a few seconds old."""
    moment = now - timedelta(seconds=random.uniform(0, 30))
    values: dict[str, Callable[[], Any]] = {
        "text": lambda: _word(random),
        "time": lambda: _iso(moment),
        "integer": lambda: random.randint(200, 299),
        "long": lambda: random.randint(0, 100_000),
    }
    return {name: values[field.type]() for name, field in stream.fields.items()}


# -- What is done to an event


def _event(_: Random, event: Event) -> bytes:
    return _json(event)


def _of_another_time(random: Random, event: Event) -> bytes:
    """Decades back, or a century ahead. One that is minutes ahead is honest, and makes others late;
    whoever counts on this cluster afterwards would find them."""
    era = random.choice((datetime(1990, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)))
    return _json(_with_times(event, _iso(era + timedelta(days=random.uniform(0, 12_000)))))


def _at_an_odd_time(random: Random, event: Event) -> bytes:
    return _json(_with_times(event, random.choice(ODD_TIMES)))


def _without_a_field(random: Random, event: Event) -> bytes:
    left_out = random.choice(list(event))
    return _json({name: event[name] for name in event if name != left_out})


def _with_null(random: Random, event: Event) -> bytes:
    return _json(event | {random.choice(list(event)): None})


def _with_more_fields(random: Random, event: Event) -> bytes:
    return _json(
        event | {_word(random): _anything(random, 3) for _ in range(random.randint(1, 20))}
    )


def _of_another_type(random: Random, event: Event) -> bytes:
    return _json(event | {random.choice(list(event)): _anything(random, 2)})


def _with_odd_text(random: Random, event: Event) -> bytes:
    return _json(event | {random.choice(list(event)): random.choice(ODD_TEXT)})


def _with_odd_numbers(random: Random, event: Event) -> bytes:
    return _json(event | {random.choice(list(event)): random.choice(EDGES)})


def _no_number(random: Random, event: Event) -> bytes:
    word = random.choice((b"NaN", b"Infinity", b"-0", b"1e999", b"01", b"0x10", b"1.5", b"'1'"))
    return b'{"' + random.choice(list(event)).encode() + b'":' + word + b"," + _json(event)[1:]


def _with_a_key_twice(random: Random, event: Event) -> bytes:
    name = json.dumps(random.choice(list(event))).encode()
    return b"{" + name + b":" + _json(_anything(random, 1)) + b"," + _json(event)[1:]


def _cut_short(random: Random, event: Event) -> bytes:
    whole = _json(event)
    return whole[: random.randrange(len(whole))]


def _with_a_byte_changed(random: Random, event: Event) -> bytes:
    whole = bytearray(_json(event))
    whole[random.randrange(len(whole))] = random.randrange(256)
    return bytes(whole)


def _with_something_behind(random: Random, event: Event) -> bytes:
    return _json(event) + random.choice((b" ", b"\n", b"{}", b",", b"]", b"\x00", _json(event)))


def _in_another_encoding(random: Random, event: Event) -> bytes:
    text = json.dumps(event)
    return text.encode(random.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7")))


def _another_json(random: Random, _: Event) -> bytes:
    return _json(random.choice([None, True, 0, "text", [], {}, [{}], _anything(random, 4)]))


def _deep(random: Random, _: Event) -> bytes:
    depth = random.randint(1, DEEPEST)
    return random.choice((b"[", b'{"a":')) * depth


def _noise(random: Random, _: Event) -> bytes:
    return random.randbytes(random.choice((0, 1, 12, 200, 5_000)))


def _large(random: Random, event: Event) -> bytes:
    """Of one letter, or of noise: the first is a few bytes for a broker."""
    size = random.randint(30_000, LARGEST)
    text = "a" * size if random.random() < 0.5 else random.randbytes(size // 2).hex()
    return _json(event | {random.choice(list(event)): text})


def _tombstone(_: Random, __: Event) -> None:
    return None


KINDS: dict[str, Callable[[Random, Event], bytes | None]] = {
    function.__name__.strip("_").replace("_", " "): function
    for function in (
        *(_of_another_time, _at_an_odd_time, _without_a_field, _with_null, _with_more_fields),
        *(_of_another_type, _with_odd_text, _with_odd_numbers, _no_number, _with_a_key_twice),
        *(_cut_short, _with_a_byte_changed, _with_something_behind, _in_another_encoding),
        *(_another_json, _deep, _noise, _large, _tombstone),
    )
}


def _key(random: Random, stream: StreamPlan, event: Event) -> bytes | None:
    odd = (None, b"", b"\xff\x00", b"k" * 10_000)
    return random.choice(odd) if random.random() < 0.1 else str(event[stream.key]).encode()


def _headers(random: Random) -> Headers:
    if random.random() < 0.8:
        return []
    odd: Headers = [
        ("", b""),
        ("x", None),
        ("x", b"\xff" * 1_000),
        ("reason", b"none"),
        ("é", b"1"),
    ]
    return random.sample(odd, random.randint(1, len(odd)))


def _anything(random: Random, depth: int) -> Any:
    makers: list[Callable[[], Any]] = [
        lambda: None,
        lambda: random.random() < 0.5,
        lambda: random.choice(EDGES),
        lambda: random.uniform(-1e300, 1e300),
        lambda: random.choice(ODD_TEXT),
    ]
    if depth:
        makers += [
            lambda: [_anything(random, depth - 1) for _ in range(random.randint(0, 4))],
            lambda: {_word(random): _anything(random, depth - 1) for _ in range(3)},
        ]
    return random.choice(makers)()


def _with_times(event: Event, text: str) -> Event:
    return {name: text if name.endswith("time") else value for name, value in event.items()}


def _word(random: Random) -> str:
    return "".join(random.choices(string.ascii_letters + string.digits + "/_", k=12))


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(value: Any) -> bytes:
    """With escapes, so that half a surrogate pair can be written, too."""
    return json.dumps(value).encode()
