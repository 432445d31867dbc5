"""Which records are events, and the reasons why the others are not."""

import json
import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from millrace_jobs.transforms import parse
from pyspark.sql import DataFrame

from millrace_shared.record_rules import MOST_DIGITS, MOST_NESTED
from tests.jobs.samples import EVENT, STREAM, at, event, without

REQUIRED = [field.name for field in STREAM.required]
TEXTS = [field.name for field in STREAM.required if field.type == "text"]
MOST_BYTES = 17179869184

Records = Callable[[list[bytes | None]], DataFrame]


def with_member(value: bytes, name: bytes = b"more") -> bytes:
    """An event with another member, behind the others."""
    return event()[:-1] + b',"' + name + b'":' + value + b"}"


def nested(levels: int) -> bytes:
    """An array in arrays."""
    return b"[" * levels + b"]" * levels


EVENTS = {
    "compact": event(),
    "with blanks": json.dumps(EVENT, indent=2).encode(),
    "another zone": event(event_time="2015-05-17T12:05:03+02:00"),
    "no decimals": event(event_time="2015-05-17T10:05:03Z"),
    "as Python prints a time": event(event_time="2015-05-17T10:05:03.123456+00:00"),
    "as Go prints a time": event(event_time="2015-05-17T12:05:03.12345678+02:00"),
    "a zone in a small letter": event(event_time="2015-05-17T10:05:03.5z"),
    "optional fields absent": json.dumps({name: EVENT[name] for name in REQUIRED}).encode(),
    "unknown fields": event(added_later={"a": [1]}),
    "an hour ahead of the broker": event(event_time="2026-01-01T01:00:00.000Z"),
    "as many bytes as may be": event(bytes=MOST_BYTES),
    "not ASCII": event(url="/straße?q=日本"),
    "a character by its numbers": event(url="/\U0001f6b0"),
    "no character by its number": event(url=r"/\ud800\u0000"),
    "NUL where nothing is required": event(user_agent="\0"),
    "nested": with_member(nested(MOST_NESTED - 1)),
    "nested in a field": event(campaign=None).replace(
        b'"campaign":null', b'"campaign":' + nested(MOST_NESTED - 1)
    ),
    "a long number": with_member(b"1" * MOST_DIGITS),
    "a name twice": with_member(b'"/twice"', b"url"),
    "largest": event(url="/" + "x" * (STREAM.record_bytes - len(event(url="/")))),
}

MALFORMED = {
    "no value": [None],
    "larger than 32768 bytes": [b"x" * 32769, b"\xff" * 10_000_000, event(url="/" + "x" * 32768)],
    "not UTF-8": [b"\xff\xfe", event().replace(b"xdotool", b"\xc3\x28")],
    "not JSON": [
        b"",
        b"  ",
        b'83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1',
        event()[:-1],
        event() + b" trailing",
        event() + event(),
        event() + b"," + event(),
        event() + b"]",
        event() + b"] and more",
        event() + b"]," + event(),
        event() + b",0]",
        *(event()[:-1] + b',"campaign":' + cut for cut in (b'"', b'"a', b"{", b"[1", b"1")),
        *(event().replace(b'5.0"', b"5.0" + end) for end in (b"\x12", b"\n", b"\\q", b"\\u12")),
        event().replace(b'"', b"'"),
        event(status=float("nan")),
        b"\xef\xbb\xbf" + event(),
        b'{"a":' * 2000,
        with_member(b"1" * (MOST_DIGITS + 1)),
        with_member(b"0." + b"1" * (MOST_DIGITS - 2) + b"e10"),
        event(campaign=10**MOST_DIGITS),
    ],
    "not a JSON object": [b"[]", b"[" + event() + b"]", b"5", b'"text"', b"null", b"true"],
    "nested too deeply": [
        with_member(nested(MOST_NESTED)),
        event().replace(b'"campaign":null', b'"campaign":' + nested(MOST_NESTED)),
    ],
    "half a surrogate pair": [
        event(url="\ud800"),
        event(url="\udc00"),
        event(url="\ud83d\ud83d\ude00"),
        event(campaign="\ude00"),
        event(**{"\ud83d": 1}),
        with_member(rb'"\ud83d\\\ude00"'),
    ],
    **{f"{name} is empty": [event(**{name: ""})] for name in TEXTS},
    **{f"{name} has the character NUL": [event(**{name: "a\0"})] for name in TEXTS},
    **{f"missing field: {name}": [without(name), event(**{name: None})] for name in REQUIRED},
    **{f"wrong type: {name}": [event(**{name: 5})] for name in (*TEXTS, "event_time")},
    "wrong type: url": [event(url={"path": "/"}), event(url=True), event(url=["/"])],
    "wrong type: status": [event(status="200"), event(status=200.0), event(status=10**10)],
    "wrong type: bytes": [event(bytes="1"), event(bytes=1.5), event(bytes=2**63), event(bytes=[])],
    "event_time unreadable": [
        event(event_time="17/May/2015:10:05:03 +0000"),
        event(event_time="2015-05-17"),
        event(event_time="2015-05-17T10:05:03"),
        event(event_time="2015-05-17t10:05:03Z"),
        event(event_time="2015-05-17T10:05:03.Z"),
        event(event_time="2015-05-17T10:05:03.0123456789Z"),
        event(event_time="2015-05-17T10:05:03+18:01"),
        event(event_time="2015-05-17T10:05:60Z"),
        event(event_time="2015-02-30T10:05:03.000Z"),
        event(event_time=""),
    ],
    "event_time out of range": [
        event(event_time="1999-12-31T23:59:59.999999999Z"),
        event(event_time="2026-01-01T01:00:00.000001Z"),
    ],
    "status out of range": [event(status=-1), event(status=1000), event(status=-200)],
    "bytes out of range": [event(bytes=-1), event(bytes=MOST_BYTES + 1), event(bytes=10**18 - 1)],
    "unusual JSON": [event().replace(b'"url"', b'"ur\\u006c"')],
}


def test_events_are_recognised(records: Records) -> None:
    classified = records(list(EVENTS.values())).transform(parse.classify, STREAM)
    recognised = {row.offset for row in parse.valid(classified, STREAM).collect()}
    assert [name for i, name in enumerate(EVENTS) if i not in recognised] == []


def test_fields_arrive_unchanged(records: Records) -> None:
    classified = records([event(url="/straße?q=日本")]).transform(parse.classify, STREAM)
    row = parse.valid(classified, STREAM).first()
    assert row is not None
    fields = {name: row[name] for name in STREAM.columns}
    expected = EVENT | {"url": "/straße?q=日本", "event_time": at("2015-05-17 10:05:03")}
    assert fields == expected


def test_decimals_of_a_time_are_cut_off_behind_the_microsecond(records: Records) -> None:
    decimals = ["1", "12", "123456", "1234567", "999999999"]
    values = [event(event_time=f"2015-05-17T10:05:03.{some}Z") for some in decimals]
    classified = records(list(values)).transform(parse.classify, STREAM)
    rows = parse.valid(classified, STREAM).orderBy("offset").collect()
    micros = [100_000, 120_000, 123_456, 123_456, 999_999]
    assert [row.event_time.microsecond for row in rows] == micros


def test_every_malformed_record_has_its_reason(records: Records) -> None:
    cases = [(reason, value) for reason, values in MALFORMED.items() for value in values]
    classified = records([value for _, value in cases]).transform(parse.classify, STREAM)
    found = {row.offset: row.reason for row in parse.malformed(classified, STREAM).collect()}
    wrong = {
        (reason, (value or b"")[:200]): found.get(i, "taken for an event")
        for i, (reason, value) in enumerate(cases)
        if found.get(i) != reason
    }
    assert wrong == {}
    assert parse.valid(classified, STREAM).count() == 0


def test_malformed_records_keep_their_bytes(records: Records) -> None:
    values = [b"\xff\xfe\x00", event(status="200"), b"x" * 100_000]
    classified = records(list(values)).transform(parse.classify, STREAM)
    rows = parse.malformed(classified, STREAM).orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == [v[: STREAM.record_bytes] for v in values]
    assert [row.value_size for row in rows] == [len(value) for value in values]


# JSON values that may stand where any other was expected, and mutilated bytes of events.
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
altered_events = st.dictionaries(st.sampled_from(list(EVENT)), json_values, max_size=3).map(
    lambda changes: json.dumps(EVENT | changes).encode()
)


def _mutilated(seed: int) -> bytes:
    randomness = random.Random(seed)
    value = bytearray(event())
    for _ in range(randomness.randint(1, 4)):
        position = randomness.randrange(len(value))
        value[position : position + randomness.randint(0, 3)] = randomness.randbytes(1)
    return bytes(value)


anything = st.one_of(
    altered_events, st.integers(0, 2**32).map(_mutilated), st.binary(max_size=60), st.none()
)


# Many values to an example: Spark takes as long for one as for hundreds.
@settings(max_examples=8)
@given(values=st.lists(anything, min_size=50, max_size=200))
def test_every_record_gets_exactly_one_verdict(
    records: Records, values: list[bytes | None]
) -> None:
    classified = records(values).transform(parse.classify, STREAM)
    events = [row.offset for row in parse.valid(classified, STREAM).select("offset").collect()]
    others = parse.malformed(classified, STREAM).select("offset", "reason").collect()
    assert sorted(events + [row.offset for row in others]) == list(range(len(values)))
    assert all(row.reason for row in others)
