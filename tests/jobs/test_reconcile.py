"""What is counted again is what plain Python counts of the same events, whoever is killed; readers
see it at once, of the results topic once it is told whole, and go back as they came."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.query.write_version import write_version
from millrace_jobs.reconcile import run
from millrace_jobs.reconcile.count import Archived, count
from millrace_jobs.reconcile.plan import Asked, Everything, Refused
from millrace_jobs.reconcile.show import show
from millrace_jobs.reconcile.switch import back, switch
from millrace_jobs.recount.counted import Counted
from millrace_jobs.recount.declared_rows import DeclaredRows
from millrace_jobs.recount.generations import ALL, Book, Generation, seen
from millrace_jobs.recount.run import recount
from millrace_jobs.recount.traffic_rows import TrafficRows
from millrace_jobs.sinks import archive
from millrace_jobs.transforms import parse
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.jobs.cells import Cells
from tests.jobs.running import RECEIVED, RECORD, job_of
from tests.jobs.samples import EVENT, STREAM, at, settings_of

NOON = at("2026-01-01 12:00:00")
HOUR = timedelta(hours=1)
CLOSED = NOON + 2 * HOUR
WATERMARK = CLOSED + timedelta(minutes=5)
BATCH = write_version(7, 4)
BOT = "bot-1"
IS_BOT = f"user_agent LIKE '{BOT}%'"  # of most events it is null
ARCHIVES = {STREAM.name: Archived("archive", 30)}
FOR_LONG = {STREAM.name: Archived("archive", 36_500)}
ALL_KEPT = Everything(None, "", "me")
SETTINGS = settings_of("test", like="sessions", session_gap_seconds=0)
TRAFFIC = settings_of("traffic")
RULE_ASSETS = tuple(TRAFFIC.page_view_asset_extensions)

Event = dict[str, Any]
Rows = dict[Any, tuple[Any, ...]]


def sent(number: int, random: Random) -> Event:
    moment = NOON + timedelta(seconds=random.randrange(3 * 3600))
    return EVENT | {
        "event_id": f"{number}",
        "event_time": f"{moment.isoformat()}.000Z",
        "visitor_id": f"v{random.randrange(6)}",
        "url": random.choice(["/a", "/b?x=1", "/c.css"]),
        "status": random.choice([200, 404, 500]),
        "bytes": random.randrange(1000),
        "user_agent": random.choice([None, None, BOT, "Mozilla"]),
    }


RANDOM = Random(1)
EVENTS = [sent(number, RANDOM) for number in range(240)]
IN_TIME, LATE, LATER = EVENTS[:100], EVENTS[100:200], EVENTS[200:]


def placed(events: Iterable[Event], first: int) -> list[tuple[Any, ...]]:
    """Records in two partitions, in the order in which they came."""
    return [
        (json.dumps(one).encode(), STREAM.topic, number % 2, number // 2, RECEIVED)
        for number, one in enumerate(events, first)
    ]


def truth(events: Iterable[Event], *, bot: bool) -> Iterable[tuple[datetime, Event]]:
    for one in events:
        if bot or one["user_agent"] != BOT:
            yield datetime.fromisoformat(one["event_time"]).replace(tzinfo=None), one


def visits_of(events: Iterable[Event], *, bot: bool) -> Rows:
    """(window's start, visitor) → events and bytes, of closed windows."""
    found: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for moment, one in truth(events, bot=bot):
        start = moment.replace(minute=moment.minute // 10 * 10, second=0)
        if start < CLOSED:
            found[start, one["visitor_id"]][0] += 1
            found[start, one["visitor_id"]][1] += one["bytes"]
    return {name: tuple(values) for name, values in found.items()}


def traffic_of(events: Iterable[Event], *, bot: bool) -> Rows:
    """(size, start) → requests, page views, bytes; (hour, page) → views."""
    windows: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    pages: Counter[Any] = Counter()
    for moment, one in truth(events, bot=bot):
        if moment >= CLOSED:
            continue
        page = one["url"].partition("?")[0]
        is_view = one["status"] == 200 and not page.endswith(RULE_ASSETS)
        hour = moment.replace(minute=0, second=0)
        for name in (("1m", moment.replace(second=0)), ("1h", hour)):
            for index, value in enumerate((1, is_view, one["bytes"])):
                windows[name][index] += value
        pages[hour, page] += is_view
    of_pages = {name: (count,) for name, count in pages.items() if count}
    return {name: tuple(values) for name, values in windows.items()} | of_pages


def visits(found: DataFrame, _: dict[str, Any]) -> DataFrame:
    return found.groupBy(F.window("event_time", "10 minutes"), "visitor_id").agg(
        F.count("*").alias("events"), F.sum("bytes").alias("bytes")
    )


class World:
    """A job's tables, its archive, which grows, and how far both jobs are."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, str(folder)
        self.cells = Cells(job_test=("day", "bucket", "window_start", "visitor_id"))
        self.batches = 0
        self.archived = self.read = 0
        self.told: list[list[dict[str, Any]]] = []
        self.watermark = WATERMARK

    def archive(self, events: list[Event]) -> None:
        found = self.spark.createDataFrame(placed(events, self.archived), RECORD)
        valid = parse.valid(found.transform(parse.classify, STREAM), STREAM)
        archive.append(valid, STREAM.event_time, self.folder, "a", self.batches, 1, 1, 48)
        self.batches += 1
        self.archived += len(events)

    def of(self, job: str, topics: list[str]) -> dict[str, dict[str, int]]:
        """`Groups`."""
        records = self.archived if job == "archive" else self.read
        return {topic: {"0": (records + 1) // 2, "1": records // 2} for topic in topics}

    def select_one(self, query: str, values: Any) -> Any:
        if "job_progress" in query:
            return SimpleNamespace(epoch=7, batch=4, watermark=self.watermark)
        return self.cells.select_one(query, values)

    def select(self, query: str, values: Any) -> list[Any]:
        if ".quarantine" in query or ".skipped" in query or ".late_" in query:
            return []
        return self.cells.select(query, values)

    @property
    def tables(self) -> Any:
        return SimpleNamespace(
            upsert=self.cells.upsert,
            select=self.select,
            scan=self.select,
            select_one=self.select_one,
            settle=self.cells.settle,
        )

    def publish(self, portion: Iterable[dict[str, Any]]) -> None:
        self.told.append(list(portion))

    def declared(self) -> Counted:
        config = SimpleNamespace(
            kafka="", archive_of=lambda _: self.folder, version="v1", names=None
        )
        job = job_of(self.spark, "test", [STREAM], SETTINGS, visits)
        job.context.tables, job.context.config = self.tables, config
        found = DeclaredRows(job)
        self.cells._keys[found.rows] = ("day", "bucket", "window_start", "visitor_id")
        return found

    def traffic(self) -> Counted:
        context: Any = SimpleNamespace(
            job="traffic",
            spark=self.spark,
            streams=[STREAM],
            stream=STREAM,
            settings=TRAFFIC,
            tables=self.tables,
            config=SimpleNamespace(kafka="", archive_of=lambda _: self.folder, version="v1"),
        )
        return TrafficRows(context)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    world = World(spark, tmp_path / "archive")
    world.archive(IN_TIME)
    world.read = world.archived
    return world


def asked(without: str = "", **changes: Any) -> Asked:
    return Asked(
        **{"start": NOON, "end": CLOSED, "closed": False, "who": "me"} | changes, without=without
    )


def seen_visits(counted: Counted, generation: int | None = None) -> Rows:
    """What readers see, or what there is of a generation: row by row as it is stored."""
    book = Book(counted.context.tables, counted.rows)
    return {
        (row["window_start"], row["visitor_id"]): (row["events"], row["bytes"])
        for piece in seen(book.overlay(), NOON, CLOSED)
        for row in stored(counted, piece, generation)
    }


def stored(counted: Any, piece: Any, generation: int | None) -> list[dict[str, Any]]:
    from millrace_jobs.recount.rows import stored_rows
    from millrace_jobs.recount.slices import Slice

    number = piece.generation if generation is None else generation
    return stored_rows(counted._job, Slice(piece.start, piece.end), number)


def seen_traffic(counted: Any) -> Rows:
    book = Book(counted.context.tables, counted.rows)
    found: Rows = {}
    for piece in seen(book.overlay(), NOON, CLOSED):
        for name, values in counted._stored(piece.start, piece.end, piece.generation).items():
            if name[0] == "page":
                found[name[1], name[2]] = (values["page_views"],)
            elif name[0] != "pages":
                found[name] = tuple(values[one] for one in ("requests", "page_views", "bytes"))
    return found


def told_to_readers(world: World, before: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The results topic for a reader who takes a generation once all of it is told."""
    known, waiting = dict(before), {}
    for record in (record for portion in world.told for record in portion):
        if record.get("complete"):
            known |= waiting
            waiting = {}
        else:
            assert record["version"] > known.get(record["key"], {"version": 0})["version"]
            waiting[record["key"]] = record
    assert not waiting
    return {key: one for key, one in known.items() if not one.get("gone")}


KINDS: dict[str, tuple[Callable[[World], Counted], Callable[..., Rows], Callable[..., Rows]]] = {
    "declared": (World.declared, visits_of, seen_visits),
    "traffic": (World.traffic, traffic_of, seen_traffic),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_came_late_and_a_bot_that_is_taken_out_are_as_if_it_had_always_been_so(
    world: World, kind: str
) -> None:
    make, expected, readers_see = KINDS[kind]
    counted = make(world)
    counted.count(NOON, CLOSED, ALL, [], 0, BATCH)  # what the stream has written
    assert readers_see(counted) == expected(IN_TIME, bot=True)

    world.archive(LATE)
    one, rows = count(counted, asked(IS_BOT), ARCHIVES, world)  # type: ignore[arg-type]
    assert (one.number, one.done, rows > 0) == (1, CLOSED, True)
    assert readers_see(counted) == expected(IN_TIME, bot=True)  # nobody was switched
    shown = show(counted, None)
    assert (shown["seen"], shown["changed"] > 0, shown["new"] > 0) == (False, True, True)

    changed = switch(counted, None, world.publish)
    assert readers_see(counted) == expected(IN_TIME + LATE, bot=False)
    assert [one.generation for one in changed.layers] == [1]
    assert show(counted, None)["changed"] == shown["changed"]  # as it was before they saw it
    found = recount(counted, NOON, CLOSED)
    assert (found.lost, found.extra, found.wrong, found.excused) == (0, 0, 0, 0), found.examples
    of_bot = [one for _, one in truth(IN_TIME + LATE, bot=True) if one["user_agent"] == BOT]
    in_range = [one for one in of_bot if one["event_time"] < f"{CLOSED.isoformat()}"]
    assert (found.excluded, found.since) == (len(in_range), 0)

    world.archive(LATER)  # it is as if the log went on: nothing moves until it is counted
    assert readers_see(counted) == expected(IN_TIME + LATE, bot=False)
    found = recount(counted, NOON, CLOSED)
    assert (found.lost, found.extra, found.wrong) == (0, 0, 0), found.examples
    assert found.since == sum(1 for at, _ in truth(LATER, bot=True) if at < CLOSED)
    count(counted, asked(), ARCHIVES, world)  # type: ignore[arg-type]
    switch(counted, None, world.publish)
    assert readers_see(counted) == expected(EVENTS, bot=False)  # the exclusion is inherited

    back(counted, world.publish)
    assert readers_see(counted) == expected(IN_TIME + LATE, bot=False)
    switch(counted, 2, world.publish)
    assert readers_see(counted) == expected(EVENTS, bot=False)
    assert recount(counted, NOON, CLOSED, generation=1).wrong == 0
    versions: dict[str, int] = {}
    for record in (record for portion in world.told for record in portion):
        assert record["version"] > versions.get(record["key"], 0), record
        versions[record["key"]] = record["version"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_is_younger_than_the_archive_gets_its_past_from_it(
    world: World, kind: str
) -> None:
    """Kafka had the last events alone, so the stream's rows begin within a window."""
    make, expected, readers_see = KINDS[kind]
    counted = make(world)
    world.archive(LATE + LATER)
    world.read = world.archived
    count(counted, asked(closed=True, end=NOON + 3 * HOUR), ARCHIVES, world)  # type: ignore[arg-type]
    assert readers_see(counted) == {}
    switch(counted, None, world.publish)
    assert readers_see(counted) == expected(EVENTS, bot=True)


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_the_archive_has_is_counted_without_saying_from_when(
    world: World, kind: str
) -> None:
    make, expected, readers_see = KINDS[kind]
    counted: Any = make(world)
    one, _ = count(counted, ALL_KEPT, FOR_LONG, world)  # type: ignore[arg-type]
    first = min(moment for moment, _ in truth(IN_TIME, bot=True))
    assert (first - timedelta(hours=1) < one.start <= first, one.end) == (True, CLOSED)
    switch(counted, None, world.publish)
    assert readers_see(counted) == expected(IN_TIME, bot=True)

    with pytest.raises(Refused, match=r"the archive has no event from .* to 2026-01-01 14:00"):
        count(counted, ALL_KEPT, ARCHIVES, world)  # type: ignore[arg-type]
    half = Everything(NOON + HOUR, "", "me")
    assert count(counted, half, FOR_LONG, world)[0].end == NOON + HOUR  # type: ignore[arg-type]


def test_a_question_without_times_is_of_all_that_the_archive_has(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_groups", lambda _: world)
    archives = {STREAM.name: {"job": "archive", "keep_days": 36_500}}
    question = {"do": "count", "without": "", "closed": False, "who": "me", "archives": archives}
    told = run.answer(world.traffic(), question | {"start": None, "end": None})
    assert (told["from"], told["to"]) == ("2026-01-01T12:00:00Z", "2026-01-01T14:00:00Z")


def test_a_count_of_all_that_was_killed_goes_on_though_more_windows_are_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: Any = world.traffic()
    counts = counted.count

    def killed(start: datetime, *others: Any) -> int:
        if start > NOON:
            raise KeyboardInterrupt
        return int(counts(start, *others))

    with monkeypatch.context() as patched:
        patched.setattr(counted, "count", killed)
        with pytest.raises(KeyboardInterrupt):
            count(counted, ALL_KEPT, FOR_LONG, world)  # type: ignore[arg-type]
    world.watermark += HOUR
    world.archive(LATER)
    world.read = world.archived
    without = Everything(None, IS_BOT, "me")
    ends = [
        (one.number, one.start, one.end)
        for asked in (ALL_KEPT, ALL_KEPT, without)
        for one, _ in [count(counted, asked, FOR_LONG, world)]  # type: ignore[arg-type]
    ]
    assert ends == [(1, NOON, CLOSED), (2, NOON, CLOSED + HOUR), (3, NOON, CLOSED + HOUR)]


def test_readers_of_the_topic_have_the_rows_of_the_table(world: World) -> None:
    counted: Any = world.declared()
    counted.count(NOON, CLOSED, ALL, [], 0, BATCH)
    output = counted.output
    begin = Book(world.tables, counted.rows).overlay()
    [piece] = seen(begin, NOON, CLOSED)
    before = {
        record["key"]: record
        for record in (output.record(row, row["version"]) for row in stored(counted, piece, 0))
    }
    world.archive(LATE)
    count(counted, asked("visitor_id = 'v1'"), ARCHIVES, world)  # type: ignore[arg-type]
    switch(counted, None, world.publish)
    rows = seen_visits(counted)
    told = told_to_readers(world, before)
    assert {
        (at(one["window_start"].removesuffix("Z")), one["visitor_id"]): (
            one["events"],
            one["bytes"],
        )
        for one in told.values()
    } == rows
    assert not [name for name in rows if name[1] == "v1"]
    assert {record["generation"] for record in world.told[0][:-1]} == {1}
    assert world.told[-1][-1]["ranges"] == [
        {"from": "2026-01-01T12:00:00Z", "to": "2026-01-01T14:00:00Z", "generation": 1}
    ]


@pytest.mark.parametrize(
    ("predicate", "why"),
    [
        ("visitor_id =", "isn't understood"),
        ("visitor = 'a'", "isn't about fields of its events: event_id, visitor_id"),
        ("visitor_id", "is string, and no condition"),
        ("rand() < 0.5", "says something else each time"),
        ("event_time > now() - INTERVAL 1 HOUR", "says something else each time"),
        ("bytes = (SELECT max(id) FROM range(3))", "has a query in it"),
    ],
)
def test_what_can_not_be_excluded_is_refused_before_anything_is_begun(
    world: World, predicate: str, why: str
) -> None:
    counted = world.declared()
    with pytest.raises(Refused, match=why):
        count(counted, asked(predicate), ARCHIVES, world)  # type: ignore[arg-type]
    assert Book(world.tables, counted.rows).all() == []


def test_a_generation_is_read_as_it_was_written(world: World) -> None:
    one, _ = count(world.declared(), asked(IS_BOT), ARCHIVES, world)  # type: ignore[arg-type]
    assert Generation.parse(one.number, one.to_json(), one.revision) == one
