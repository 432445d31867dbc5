"""Which events a row is made of, over archives on disk: all of its own, and no other."""

import json
import random
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.declared import loader
from millrace_jobs.declared.plan.origins import PLACE, origins
from millrace_jobs.declared.plan.refused import Refused
from millrace_jobs.output import WINDOW_START
from millrace_jobs.recount.generations import Exclusion, Generation, aware
from millrace_jobs.recount.why import (
    COPY,
    LATE,
    SINCE,
    DeclaredSubject,
    Explanation,
    Question,
    TrafficSubject,
    explain,
)
from millrace_jobs.sinks import archive
from millrace_jobs.stream import Stream
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millrace_shared.generations import NONE, Layer
from tests.jobs import random_jobs
from tests.jobs.random_jobs import RandomJob, examples, some_events
from tests.jobs.running import job_of
from tests.jobs.samples import settings_of, stream

EVENTS, CLICKS = stream("events"), stream("clicks")
NOON = datetime(2026, 1, 1, 12)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SETTINGS = settings_of("test", like="status_by_minute", tables=[])
BY_STATUS = (
    "SELECT window(event_time, '1 minute') AS window, status, count(*) AS requests,"
    " sum(bytes) AS bytes FROM events GROUP BY window(event_time, '1 minute'), status"
)


class Tables:
    """Cassandra's, by name; ``select`` finds a table's rows by what the query is from."""

    def __init__(self, **rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def select(self, query: str, _: Any) -> list[Any]:
        [name] = [
            word.removeprefix("{keyspace}.") for word in query.split() if "{keyspace}" in word
        ]
        return [SimpleNamespace(**row) for row in self.rows.get(name, [])]

    def select_one(self, query: str, values: Any) -> Any:
        return next(iter(self.select(query, values)), None)


def event(number: int, **changes: Any) -> dict[str, Any]:
    """The event at this offset: one each second from noon on."""
    return {
        "event_id": f"e{number}",
        "event_time": NOON + timedelta(seconds=number),
        "visitor_id": "v",
        "session_hint": None,
        "method": "GET",
        "url": "/a",
        "referrer": None,
        "status": 200,
        "bytes": 2**number,
        "user_agent": "u",
        "kind": "page_view",
        "campaign": None,
    } | changes


class Archives:
    """Delta tables, one for each stream, of events in two partitions."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def archive_of(self, one: Stream) -> str:
        return str(self.folder / one.name)

    def append(self, one: Stream, events: list[dict[str, Any]], partitions: int = 1) -> None:
        """Received in their order, long after their time."""
        rows = [
            {
                **found,
                "topic": one.topic,
                "partition": number % partitions,
                "offset": number // partitions,
                "timestamp": NOON + HOUR + timedelta(seconds=number),
            }
            for number, found in enumerate(events)
        ]
        kinds = one.columns | {
            "topic": "string",
            "partition": "int",
            "offset": "bigint",
            "timestamp": "timestamp",
        }
        schema = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        frame = self.spark.createDataFrame(
            [tuple(row.get(name) for name in kinds) for row in rows], schema
        )
        archive.append(frame, one.event_time, self.archive_of(one), "test", 0, 1, 1, 48)

    def declared(
        self,
        query: str | loader.Rows,
        streams: list[Stream] | None = None,
        tables: Tables | None = None,
        settings: Any = SETTINGS,
    ) -> DeclaredSubject:
        streams = streams or [EVENTS]
        if isinstance(query, str):
            query = loader.query("test", query, [one.name for one in streams])
        config, kept = SimpleNamespace(archive_of=self.archive_of), tables or Tables()
        found = job_of(self.spark, "test", streams, settings, query, config=config, tables=kept)
        return DeclaredSubject(found)

    def traffic(self, size: str, tables: Tables | None = None) -> TrafficSubject:
        context: Any = SimpleNamespace(
            job="traffic",
            spark=self.spark,
            streams=[EVENTS],
            stream=EVENTS,
            settings=settings_of("traffic"),
            config=SimpleNamespace(archive_of=self.archive_of),
            tables=tables or Tables(),
        )
        return TrafficSubject(context, size)


@pytest.fixture
def archives(spark: SparkSession, tmp_path: Path) -> Archives:
    return Archives(spark, tmp_path)


def asked(limit: int = 100, length: timedelta = MINUTE, **key: str) -> Question:
    return Question(NOON, NOON + length, key, limit)


def offsets(found: list[dict[str, Any]]) -> list[int]:
    return [one["offset"] for one in found]


def test_a_row_s_events_are_those_of_its_window_and_key(archives: Archives) -> None:
    events = [event(0), event(1, status=404), event(2), event(60), event(59)]
    archives.append(EVENTS, events)
    found = explain(archives.declared(BY_STATUS), asked(status="200"))
    assert offsets(found.events) == [0, 2, 4]
    assert found.count == 3
    start = "2026-01-01T12:00:00Z"
    assert found.rows == [
        {"window_start": start, "status": 200, "requests": 3, "bytes": 1 + 4 + 2**59}
    ]
    assert found.apart == []
    assert found.notes == []
    assert found.received == ["2026-01-01T13:00:00Z", "2026-01-01T13:00:04Z"]


def test_an_event_is_shown_with_what_the_job_uses_of_it(archives: Archives) -> None:
    archives.append(EVENTS, [event(0)])
    [shown] = explain(archives.declared(BY_STATUS), asked(status="200")).events
    assert shown == {
        "topic": "events",
        "partition": 0,
        "offset": 0,
        "received": "2026-01-01T13:00:00Z",
        "event_time": "2026-01-01T12:00:00Z",
        "id": "e0",
        "fields": {"event_time": "2026-01-01T12:00:00Z", "status": 200, "bytes": 1},
    }


def test_the_first_are_listed_and_all_are_counted(archives: Archives) -> None:
    archives.append(EVENTS, [event(number) for number in range(9)])
    found = explain(archives.declared(BY_STATUS), asked(limit=2, status="200"))
    assert (offsets(found.events), found.count) == ([0, 1], 9)
    assert found.rows[0]["requests"] == 9


def test_events_are_in_the_order_of_their_times(archives: Archives) -> None:
    half = NOON + timedelta(seconds=0.5)
    archives.append(EVENTS, [event(0, event_time=half), event(1, event_time=NOON)])
    found = explain(archives.declared(BY_STATUS), asked(status="200"))
    assert offsets(found.events) == [1, 0]


def test_what_a_job_leaves_out_is_apart_with_its_reason(archives: Archives) -> None:
    archives.append(EVENTS, [event(number) for number in range(4)] + [event(61)])
    left_out = {"topic": "events", "checkpoint": "c", "batch": 1, "since": NOON}
    quarantined = left_out | {"partition": 0, "offset": 1, "reason": "by zero"}
    skipped = {"topic": "events", "part": 0, "first_offset": 3, "end_offset": 5, "who": ""}
    tables = Tables(
        quarantine=[
            quarantined | {"retried": None},
            quarantined | {"offset": 0, "retried": NOON},
        ],
        skipped=[skipped],
    )
    found = explain(archives.declared(BY_STATUS, tables=tables), asked(status="200"))
    assert offsets(found.events) == [0, 2]
    reasons = [(one["offset"], one["reason"]) for one in found.apart]
    assert reasons == [(1, "quarantined: by zero"), (3, "skipped")]
    assert found.apart_count == 2


def test_the_last_that_kafka_took_are_the_late_ones(archives: Archives) -> None:
    late = [event(4, status=404), event(3)]
    archives.append(EVENTS, [event(0), event(1, status=404), event(2), event(61), *late])
    tables = Tables(late_windows=[{"window_start": NOON, "events": 2}])
    found = explain(archives.declared(BY_STATUS, tables=tables), asked(status="200"))
    assert offsets(found.events) == [0, 2]
    assert [(one["offset"], one["reason"]) for one in found.apart] == [(5, LATE)]
    assert found.rows[0]["requests"] == 2
    assert found.notes == [
        "late events of the window: 2; it isn't recorded which: the last ones that Kafka took are"
        " taken for them"
    ]


def test_of_windows_that_overlap_nobody_knows_the_late_ones(archives: Archives) -> None:
    archives.append(EVENTS, [event(0), event(61), event(62), event(120, bytes=1)])
    skipped = {"topic": "events", "part": 0, "first_offset": 2, "end_offset": 4, "who": ""}
    late = {"window_start": NOON, "events": 1}
    tables = Tables(late_windows=[late], skipped=[skipped])
    query = BY_STATUS.replace("'1 minute'", "'2 minutes', '1 minute'")
    found = explain(archives.declared(query, tables=tables), asked(status="200"))
    assert offsets(found.events) == [0, 1]
    assert [(one["offset"], one["reason"]) for one in found.apart] == [(2, "skipped")]
    [note] = found.notes
    assert note.startswith("late events of these windows: 1;")


def click(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "click_id": f"c{number}",
        "impression_id": f"i{number}",
        "event_time": NOON + timedelta(seconds=number),
        "campaign": "a",
    } | changes


def test_of_copies_one_counts(archives: Archives) -> None:
    once = replace(CLICKS, deduplicate_by="click_id")
    archives.append(CLICKS, [click(0), click(1), click(0)])
    query = (
        "SELECT window(event_time, '1 minute') AS window, campaign, count(*) AS n FROM clicks"
        " GROUP BY window(event_time, '1 minute'), campaign"
    )
    found = explain(archives.declared(query, [once]), asked(campaign="a"))
    assert found.count == 2
    assert found.rows[0]["n"] == 2
    [copy] = found.apart
    assert (copy["reason"], copy["id"]) == (COPY, "c0")
    assert copy["offset"] not in {one["offset"] for one in found.events if one["id"] == "c0"}


def test_of_a_join_both_sides_are_listed_and_no_partner_of_another_row(archives: Archives) -> None:
    """The job that ships: impressions, clicks, and pairs of them, in one union."""
    shown = stream("impressions")

    def impression(number: int, **changes: Any) -> dict[str, Any]:
        given = click(number, **changes)
        return {name: value for name, value in given.items() if name != "click_id"}

    before = NOON - timedelta(seconds=30)
    archives.append(shown, [impression(0, event_time=before), impression(1), impression(7)])
    archives.append(CLICKS, [click(0), click(1), click(9, campaign="b"), click(70)])
    streams, settings = [shown, CLICKS], settings_of("attribution", tables=[])
    rows = loader.load("attribution", [one.name for one in streams]).rows
    question = asked(limit=4, campaign="a")
    found = explain(archives.declared(rows, streams, settings=settings), question)
    places = [(one["topic"], one["offset"]) for one in found.events]
    assert found.count == 5
    assert places == [
        (shown.topic, 0),  # of the minute before, and partner of a click
        (CLICKS.topic, 0),
        (CLICKS.topic, 1),
        (shown.topic, 1),
    ]
    [row] = found.rows
    assert (row["impressions"], row["clicks"], row["matched"]) == (2, 2, 2)


@pytest.mark.parametrize(("size", "length", "count"), [("1m", MINUTE, 3), ("1h", HOUR, 4)])
def test_traffic_is_of_all_events_of_its_window(
    archives: Archives, size: str, length: timedelta, count: int
) -> None:
    archives.append(EVENTS, [event(0), event(1, url="/b?x#y"), event(2, status=500), event(60)])
    found = explain(archives.traffic(size), asked(length=length, window=size))
    assert found.count == count
    assert found.rows[0]["requests"] == count
    assert {"visitor_id", "status", "bytes", "url", "kind"} <= found.events[0]["fields"].keys()


def test_a_page_is_of_its_views(archives: Archives) -> None:
    events = [event(0), event(1, url="/b?x#y"), event(2, url="/b", status=500), event(3, url="/b")]
    archives.append(EVENTS, events)
    found = explain(archives.traffic("1h"), asked(length=HOUR, window="1h", url="/b"))
    assert offsets(found.events) == [1, 3]
    assert found.rows[0]["page_views"] == 2


@pytest.mark.parametrize(("of_day", "listed"), [(1, [0, 1]), (0, [0, 1, 2])])
def test_traffic_lacks_no_more_late_events_than_its_day(
    archives: Archives, of_day: int, listed: list[int]
) -> None:
    archives.append(EVENTS, [event(0), event(1), event(2)])
    tables = Tables(traffic=[{"requests": 2}], late_events=[{"events": of_day}])
    found = explain(archives.traffic("1m", tables), asked(window="1m"))
    assert offsets(found.events) == listed
    assert [one["reason"] for one in found.apart] == [LATE] * of_day


BOT = "user_agent = 'bot'"


def counted_again(start: datetime, end: datetime, **rows: list[dict[str, Any]]) -> Tables:
    """Readers see a count of some windows: of the first four offsets, and without a bot."""
    one = Generation(
        number=3,
        start=start,
        end=end,
        asked=end,
        done=end,
        ends={EVENTS.topic: {"0": 4}},
        exclusions=(Exclusion(start, end, BOT),),
        code="v1",
        version=7,
        since=NOON + 2 * HOUR,
        who="",
    )
    overlay = NONE.switched(Layer(aware(start), aware(end), one.number, one.version))
    return Tables(
        overlays=[{"content": overlay.content, "revision": overlay.revision}],
        generations=[{"content": one.to_json(), "revision": one.revision}],
        **rows,
    )


NOTE = (
    "readers see what was counted again at 2026-01-01T14:00:00Z, generation 3: late events are in"
    " it, if they came before"
)


@pytest.mark.parametrize("job", ["declared", "traffic"])
def test_of_windows_that_were_counted_again_readers_are_told_of_that_count(
    archives: Archives, job: str
) -> None:
    """What was late for the stream is in it, and what it was counted without is apart."""
    archives.append(EVENTS, [event(0), event(1, user_agent="bot"), event(2), event(3), event(4)])
    quarantined = {
        "topic": "events",
        "partition": 0,
        "offset": 3,
        "reason": "by zero",
        "checkpoint": "c",
        "batch": 1,
        "since": NOON,
        "retried": NOON + 3 * HOUR,
    }
    tables = counted_again(
        NOON,
        NOON + HOUR,
        quarantine=[quarantined],
        late_windows=[{"window_start": NOON, "events": 1}],
        traffic=[{"requests": 4}],
        late_events=[{"events": 1}],
    )
    if job == "traffic":
        found = explain(archives.traffic("1m", tables), asked(window="1m"))
    else:
        found = explain(archives.declared(BY_STATUS, tables=tables), asked(status="200"))
    assert offsets(found.events) == [0, 2]
    assert found.rows[0]["requests"] == 2
    reasons = {one["offset"]: one["reason"] for one in found.apart}
    assert reasons == {1: f"excluded: {BOT}", 3: "quarantined: by zero", 4: SINCE}
    assert found.apart_count == 3
    assert found.notes == [NOTE]


def test_windows_at_the_edge_of_a_count_are_each_on_their_own_terms(archives: Archives) -> None:
    bots = [event(number, user_agent="bot") for number in (1, 60)]
    archives.append(EVENTS, [event(0), *bots, event(61), event(2), event(62)])
    tables = counted_again(NOON - HOUR, NOON + MINUTE)
    subject = archives.declared(BY_STATUS, tables=tables)
    found = explain(subject, asked(length=2 * MINUTE, status="200"))
    assert offsets(found.events) == [0, 2, 3, 5]
    assert [row["requests"] for row in found.rows] == [1, 3]
    assert found.count == 4
    assert {one["offset"]: one["reason"] for one in found.apart} == {
        1: f"excluded: {BOT}",
        4: SINCE,
    }
    assert found.notes == [NOTE]
    assert found.received == ["2026-01-01T13:00:00Z", "2026-01-01T13:00:05Z"]


def test_windows_that_follow_are_told_as_one() -> None:
    moments = ["2026-01-01T12:00:00Z", "2026-01-01T12:00:00.500000Z"]
    found = Explanation()
    found.add(Explanation(count=1, events=[event(0)], received=[moments[1]] * 2, notes=["a"]), 2)
    assert found.received == [moments[1]] * 2
    found.add(Explanation(count=2, events=[event(1), event(2)], received=[moments[0]] * 2), 2)
    found.add(Explanation(apart_count=1, apart=[event(3)]), 2)
    assert (found.count, found.apart_count) == (3, 1)
    assert found.events == [event(0), event(1)]
    assert found.received == moments


HOSTILE = ["'; DROP TABLE x -- [b]x[/]{}${x}%s\\ \n\0\x1b[31m\u202e\U0001f600", ""]


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_an_event_has_is_text(archives: Archives, text: str) -> None:
    archives.append(EVENTS, [event(0, url=text), event(1)])
    query = BY_STATUS.replace("status", "url")
    found = explain(archives.declared(query), asked(url=text))
    assert offsets(found.events) == [0]
    assert found.events[0]["fields"]["url"] == text
    assert json.loads(json.dumps(found.rows))[0]["url"] == text


@examples(5)
@given(made=random_jobs.jobs(flawed=False), seed=st.integers(0, 2**32))
def test_each_row_of_any_query_has_as_many_events_as_it_counts(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    made: RandomJob,
    seed: int,
) -> None:
    archives = Archives(spark, tmp_path_factory.mktemp("archive"))
    archives.append(EVENTS, _timed(some_events(random.Random(seed), EVENTS)), partitions=2)
    subject = archives.declared(made.query)
    rows = subject.rows([spark.read.format("delta").load(archives.archive_of(EVENTS))])
    found = origins(rows)
    name = [column for column in found.columns if column not in PLACE]
    assert set(found.columns) - {*PLACE} < set(rows.columns)
    listed = Counter(tuple(row[column] for column in name) for row in found.collect())
    counted = {tuple(row[column] for column in name): row.counted for row in rows.collect()}
    assert listed == counted
    in_rows = found.groupBy(WINDOW_START, *PLACE).count().where("count > 1")
    assert in_rows.isEmpty()  # of a window an event is in one row


@examples(4)
@given(seed=st.integers(0, 2**32))
def test_the_rows_of_a_window_part_its_events(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    archives = Archives(spark, tmp_path_factory.mktemp("archive"))
    archives.append(EVENTS, _timed(some_events(random.Random(seed), EVENTS)), partitions=3)
    stored = spark.read.format("delta").load(archives.archive_of(EVENTS))
    found = origins(archives.declared(BY_STATUS).rows([stored]))
    listed = sorted((row[WINDOW_START], *row[2:]) for row in found.collect())
    start = F.date_trunc("minute", "event_time")
    assert listed == sorted(map(tuple, stored.select(start, *PLACE).collect()))


PAGES = "(VALUES ('/a') UNION ALL VALUES ('/c')) AS x(page)"


@pytest.mark.parametrize(
    ("source", "listed"),
    [
        ("(SELECT a.* FROM events a JOIN events b ON a.url = '/a' AND b.url = '/b')", [0, 1]),
        (f"events JOIN {PAGES} ON url = page", [0, 2]),
        (f"{PAGES} RIGHT JOIN events ON url = page", [0, 1, 2]),
        (f"events LEFT ANTI JOIN {PAGES} ON url = page", [1]),
        ("(SELECT * FROM events WHERE url > '/b' UNION ALL SELECT * FROM events)", [0, 1, 2, 2]),
        ("events LATERAL VIEW explode(array(1, 2)) AS twice", [0, 0, 1, 1, 2, 2]),
    ],
)
def test_events_are_told_behind_joins_unions_and_explosions(
    archives: Archives, source: str, listed: list[int]
) -> None:
    archives.append(EVENTS, [event(n, url=url) for n, url in enumerate(["/a", "/b", "/c"])])
    stored = archives.spark.read.format("delta").load(archives.archive_of(EVENTS))
    query = BY_STATUS.replace("FROM events", f"FROM {source}")
    found = origins(loader.query("test", query)(stored, {}))
    assert sorted(row.offset for row in found.collect()) == listed


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("events WHERE url IN (SELECT * FROM VALUES ('/a'))", "a query within an expression"),
        ("(SELECT * FROM events ORDER BY url LIMIT 1)", "Sort, behind which nobody knows"),
    ],
)
def test_what_nobody_can_explain_is_refused(archives: Archives, source: str, why: str) -> None:
    archives.append(EVENTS, [event(0)])
    stored = archives.spark.read.format("delta").load(archives.archive_of(EVENTS))
    query = BY_STATUS.replace("FROM events", f"FROM {source}")
    rows = loader.query("test", query)(stored, {})
    with pytest.raises(Refused, match=why):
        origins(rows)


def _timed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of JSON, as rows of an archive."""
    return [
        one | {"event_time": datetime.fromisoformat(one["event_time"].removesuffix("Z"))}
        for one in events
    ]
