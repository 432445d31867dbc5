"""The collector and the jobs say the same of a record, and read the same time in it.

So what is acknowledged is an event, and no dead letter; and who sends past the collector meets no
other rules.
"""

import json
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from millrace_collector.records import Checker, moment
from millrace_collector.refusals import BadRecord
from millrace_collector.settings import StreamRule
from millrace_jobs.transforms import parse
from pyspark.sql import DataFrame

from millrace.config.streams import load_streams
from millrace.plan.streams import plan_stream
from millrace_shared.record_rules import MOST_DIGITS, MOST_NESTED
from tests.fuzz import records as fuzzed
from tests.jobs.samples import EVENT, RECEIVED, STREAM, event
from tests.jobs.test_parse import EVENTS, MALFORMED, anything, nested, with_member

Records = Callable[[list[bytes | None]], DataFrame]

PLANNED = plan_stream(load_streams()["events"], "events", "small")
CHECKER = Checker(StreamRule.model_validate(PLANNED.model_dump(mode="json")))
NOW = RECEIVED.replace(tzinfo=UTC)  # both clocks are the same one here
REQUIRED = [field.name for field in STREAM.required]
KNOWN = [value for values in (*MALFORMED.values(), [*EVENTS.values()]) for value in values]


def is_taken(value: bytes) -> bool:
    """The collector's verdict."""
    try:
        return CHECKER.key_of(value, NOW) == str(json.loads(value)["visitor_id"]).encode()
    except BadRecord:
        return False


def has_a_name_twice(value: bytes) -> bool:
    """Of one that is required, at whatever depth, however it is spelt."""
    plain = re.sub(
        rb"\\u00([2-7][0-9a-fA-F])", lambda found: bytes.fromhex(found[1].decode()), value
    )
    return any(len(re.findall(rb'"%s"\s*:' % name.encode(), plain)) > 1 for name in REQUIRED)


def compare(records: Records, values: list[bytes]) -> None:
    classified = records(list(values)).transform(parse.classify, STREAM)
    times = {row.offset: row.event_time for row in parse.valid(classified, STREAM).collect()}
    for number, value in enumerate(values):
        is_event = number in times
        if is_taken(value) != is_event:
            # The liberty that the jobs take: of a name that comes twice they look at the last one.
            assert is_event, (value[:500], "acknowledged, and a dead letter")
            assert has_a_name_twice(value), (value[:500], "refused, and an event")
        elif is_event:
            read = moment(json.loads(value)["event_time"])
            assert times[number].replace(tzinfo=UTC) == read, value[:500]


def test_known_cases(records: Records) -> None:
    compare(records, [value for value in KNOWN if value is not None])


@settings(max_examples=3)
@given(seed=st.integers(0, 2**32))
def test_what_the_fuzzer_sends(records: Records, seed: int) -> None:
    """Half of it are events; what is done to the others, its own file says."""
    found = fuzzed.records(PLANNED, seed, lambda: NOW)
    values = [next(found).value for _ in range(400)]
    compare(records, [value for value in values if value is not None])


# Times as somebody's language prints them, and others that look alike.
two = st.integers(0, 99).map("{:02}".format)
zones = st.sampled_from(["Z", "z", "+00:00", "-00:00", "+18:00", "-17:59", "+18:01", "+05:60", ""])
dates = st.sampled_from(["2015-05-17", "2016-02-29", "2015-02-29", "0000-01-01", "9999-12-31"])
honest_times = st.datetimes(
    datetime(1999, 12, 31),
    datetime(2026, 1, 2),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=2))]),
).map(lambda when: when.isoformat())
odd_times = st.builds(
    "{}{}{}:{}:{}{}{}".format,
    *(dates, st.sampled_from("Tt "), two, two, two),
    st.text("0123456789", max_size=11).map(lambda digits: f".{digits}" if digits else ""),
    st.one_of(zones, st.builds("{}{}:{}".format, st.sampled_from("+-"), two, two)),
)
nano_times = st.builds(
    "2015-05-17T10:05:03.{}{}".format, st.text("0123456789", min_size=1, max_size=9), zones
)
timed = st.one_of(honest_times, odd_times, nano_times).map(lambda text: event(event_time=text))

# Values that a reader may stumble over, as any member's.
escaped = st.lists(
    st.sampled_from(
        [
            r"\u0000",
            r"\ud83d",
            r"\ude00",
            r"\u00e9",
            r"\\",
            r"\n",
            "a",
            r"\x",
            "\t",
            r"\/",
            r"\"",
            "é",
        ]
    ),
    max_size=6,
).map(lambda parts: '"' + "".join(parts) + '"')
digits = st.integers(MOST_DIGITS - 2, MOST_DIGITS + 2)
numbers = st.one_of(
    digits.map(lambda count: "9" * count),
    digits.map(lambda count: "-" + "9" * count),
    st.builds(
        lambda count, behind, power: f"{'9' * (count - behind)}.{'1' * behind}e-{'1' * power}",
        *(digits, st.integers(1, 900), st.integers(1, 5)),
    ),
    st.sampled_from(["01", "1.", ".5", "+1", "-0", "1e5", "2E+3", "NaN", "1.0", "0x1", "-", "1e"]),
)
depths = st.integers(MOST_NESTED - 3, MOST_NESTED + 3)
deep = st.one_of(
    depths.map(lambda levels: nested(levels).decode()),
    depths.map(lambda levels: '{"a":' * levels + "1" + "}" * levels),
)
odd_values = st.one_of(
    escaped, numbers, deep, st.sampled_from(["", "nul", "[1,]", '{"a" 1}', "{}"])
)
names = st.sampled_from([*EVENT, "more", r"ur\u006c", r"stat\u0075s", r"\ud800", r"\u0000"])


def member(name: str, value: str, seed: int) -> bytes:
    """An event in which a member is another one, or one more, before or behind the others."""
    text = event().decode()
    written = f'"{name}":{value}'
    return random.Random(seed).choice(
        [
            with_member(value.encode(), name.encode()),
            f"{{{written},{text[1:]}".encode(),
            re.sub(rf'"{re.escape(name)}":("[^"]*"|\w+)', lambda _: written, text).encode(),
            f'{text[:-1]},"more":{{{written}}}}}'.encode(),
        ]
    )


hostile = st.one_of(
    anything.map(lambda value: value or b""),
    timed,
    st.builds(member, names, odd_values, st.integers(0, 99)),
)


# Many values to an example: Spark takes as long for one as for hundreds.
@settings(max_examples=10)
@given(values=st.lists(hostile, min_size=100, max_size=300))
def test_whatever_is_sent(records: Records, values: list[bytes]) -> None:
    compare(records, values)


def test_a_wrong_copy_of_a_field_is_the_one_difference() -> None:
    """What `compare` excuses, so that it excuses no more."""
    value: Any = with_member(b"5", b"url")
    assert not is_taken(value)
    assert has_a_name_twice(value)
    assert not has_a_name_twice(event())
