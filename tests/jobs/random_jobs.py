"""Queries at random, out of parts of which each is known to be fine or flawed; and events for them.

A query of fine parts alone has to be taken, and one with a flawed part refused.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from millrace_jobs.stream import Stream

from tests.jobs.samples import EVENT

NOON = datetime(2026, 1, 1, 12)
TYPES = {"text": pa.string(), "time": pa.timestamp("us"), "integer": pa.int32(), "long": pa.int64()}

Events = list[dict[str, Any]]


@dataclass(frozen=True)
class Part:
    """Of a query; ``flaw`` is why no query can have it, empty for a fine one."""

    text: str
    flaw: str = ""


SOURCES = [
    Part("events"),
    Part("(SELECT * FROM events WHERE status < 500)"),
    Part("(SELECT *, bytes * 2 AS doubled FROM events)"),
    Part("some"),  # see WITH
]
WITH = "WITH some AS (SELECT * FROM events WHERE url LIKE '/a%') "
WINDOWS = [
    *map(Part, ("'1 minute'", "'1 hour'", "'10 minutes', '1 minute'", "'7 minutes', '3 minutes'")),
    *map(Part, ("'1 hour', '1 hour', '7 minutes'", "'1 day', '1 day', '5 hours'")),
    Part("'1 month'", "months differ in length"),
    Part("'1 minute', '1 minute', '500 milliseconds'", "no whole seconds"),
]
KEYS = [
    *map(Part, ("status", "method", "visitor_id", "status DIV 100 AS hundred")),
    *map(Part, ("coalesce(campaign, '') AS campaign_or_none", "status >= 500 AS failed")),
    *map(Part, ("substring_index(url, '?', 1) AS page", "lower(method) AS verb")),
    *map(Part, ("length(url) AS letters", "date_trunc('hour', event_time) AS hour")),
    Part("campaign", "null"),
    Part("substring(referrer, 1, 3) AS origin", "null"),
    Part("rand() > 0.5 AS coin", "random"),
    Part("current_date() AS today", "a clock"),
    Part("url AS bucket", "reserved"),
    Part("url AS `Straße`", "no name that the table takes"),
    Part("url AS `from`", "a word of Python's"),
    Part("array(url) AS urls", "no type of a column"),
]
COUNTS = [
    *map(Part, ("count(*) AS n", "sum(bytes) AS bytes", "min(bytes) AS least", "max(url) AS last")),
    *map(Part, ("avg(bytes) AS mean", "count_if(status >= 500) AS failures")),
    *map(Part, ("count(campaign) AS named", "max(event_time) AS latest")),
    *map(Part, ("sum(if(status >= 500, bytes, 0)) AS lost_bytes", "bool_or(status = 404) AS gone")),
    *map(Part, ("try_divide(sum(bytes), count(*)) AS rate", "size(collect_set(url)) AS urls")),
    Part("max_by(url, struct(event_time, event_id)) AS newest"),
    Part("percentile(bytes, 0.5) AS median"),
    Part("first(url) AS any_url", "whichever comes first"),
    Part("max_by(url, status) AS worst", "a tie"),
    Part("count(DISTINCT visitor_id) AS visitors", "distinct"),
    Part("concat_ws(' ', collect_list(url)) AS path", "an order"),
    Part("max(current_timestamp()) AS looked", "a clock"),
]
AROUND = [
    *map(Part, ("{}", "SELECT * FROM ({})", "SELECT *, 2 * counted AS twice FROM ({})")),
    Part("SELECT * FROM ({}) WHERE counted > 1", "filters what is counted"),
    Part("{} HAVING count(*) > 1", "filters what is counted"),
    Part("SELECT * FROM ({}) ORDER BY counted LIMIT 3", "a limit"),
    Part("SELECT *, row_number() OVER (ORDER BY counted) AS place FROM ({})", "a rank"),
]


@dataclass(frozen=True)
class RandomJob:
    query: str
    flaws: list[str]


@st.composite
def jobs(draw: st.DrawFn, flawed: bool) -> RandomJob:
    """``flawed`` ones have one flaw or several."""

    def some(parts: Sequence[Part], least: int, most: int) -> list[Part]:
        fine = [part for part in parts if not part.flaw]
        return draw(st.lists(st.sampled_from(fine), min_size=least, max_size=most, unique=True))

    chosen = {
        "source": some(SOURCES, 1, 1),
        "window": some(WINDOWS, 1, 1),
        "keys": some(KEYS, 0, 3),
        "counts": some(COUNTS, 0, 4),
        "around": some(AROUND, 1, 1),
    }
    if flawed:
        bad = {
            "window": WINDOWS,
            "keys": KEYS,
            "counts": COUNTS,
            "around": AROUND,
        }
        for name in draw(st.lists(st.sampled_from([*bad]), min_size=1, max_size=2, unique=True)):
            part = draw(st.sampled_from([part for part in bad[name] if part.flaw]))
            chosen[name] = [*chosen[name], part] if name in ("keys", "counts") else [part]
    return _job(chosen)


def _job(chosen: dict[str, list[Part]]) -> RandomJob:
    [source], [span], [around] = chosen["source"], chosen["window"], chosen["around"]
    keys = [part.text for part in chosen["keys"]]
    window = f"window(event_time, {span.text}) AS window"
    counts = ["count(*) AS counted", *(part.text for part in chosen["counts"])]
    positions = ", ".join(str(number + 1) for number in range(1 + len(keys)))
    inner = f"SELECT {', '.join([window, *keys, *counts])} FROM {source.text} GROUP BY {positions}"
    query = around.text.format(inner)
    flaws = [part.flaw for parts in chosen.values() for part in parts if part.flaw]
    return RandomJob((WITH if source.text == "some" else "") + query, flaws)


# -- Events for them


def some_events(chance: random.Random, of: Stream, number: int = 60) -> Events:
    return [one_event(chance, of) for _ in range(number)]


def one_event(chance: random.Random, of: Stream) -> dict[str, Any]:
    seconds = chance.choice([60, 3600, 25_000]) * chance.random()
    moment = NOON + timedelta(seconds=seconds)
    at = f"{moment.isoformat(timespec='milliseconds')}Z"
    ad = {"impression_id": f"ad-{chance.randrange(20)}", "campaign": chance.choice("xy")}
    if of.name == "impressions":
        return ad | {"event_time": at}
    if of.name == "clicks":
        return ad | {"event_time": at, "click_id": f"click-{chance.random()}"}
    return EVENT | {
        "event_id": f"event-{chance.random()}",
        "event_time": at,
        "visitor_id": chance.choice("abcd"),
        "method": chance.choice(["GET", "POST"]),
        "url": chance.choice(["/a", "/b", "/c", "/a/b?x=1", "/"]),
        "status": chance.choice([200, 404, 500, 503]),
        "bytes": chance.choice([0, 10, 12_345, 10**7]),
        "campaign": chance.choice([None, "", "spring"]),
        "referrer": chance.choice([None, "https://example.org/x", "nothing"]),
    }


def table(events: Events, of: Stream) -> pa.Table:
    """As the archive has them."""
    schema = pa.schema([(field.name, TYPES[field.type]) for field in of.fields])
    rows = [
        event | {"event_time": datetime.fromisoformat(event["event_time"]).replace(tzinfo=None)}
        for event in events
    ]
    return pa.Table.from_pylist([{n: row.get(n) for n in schema.names} for row in rows], schema)


def examples(number: int) -> settings:
    """Their fixtures are the same ones, and may be. None is made smaller: that takes long."""
    same = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    return settings(max_examples=number, deadline=None, phases=phases, suppress_health_check=same)
