"""Whoever counts, switches, tells or is killed, in whatever order: readers see one count of each
window, the results topic comes to the same, and nothing is counted that came after it was begun."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.query.write_version import write_version
from millrace_jobs.reconcile import count as counting
from millrace_jobs.reconcile import switch as switching
from millrace_jobs.reconcile.count import Archived, count
from millrace_jobs.reconcile.plan import Asked, Refused
from millrace_jobs.reconcile.show import show
from millrace_jobs.reconcile.switch import back, switch
from millrace_jobs.recount.comparison import Findings
from millrace_jobs.recount.counted import Difference, Record
from millrace_jobs.recount.generations import Book, Outrun, Seen, Terms, aware, seen

from millrace_shared.generations import Layer
from tests.jobs.cells import Cells
from tests.jobs.samples import STREAM

NOON = datetime(2026, 1, 1, 12)
HOUR = timedelta(hours=1)
HOURS = 4
CLOSED = NOON + HOURS * HOUR
ARCHIVES = {STREAM.name: Archived("archive", 30)}

Values = dict[int, int]  # hour → what its events are worth


class Killed(Exception):
    pass


class Plain:
    """`Counted`, over a list: the value of each event is added to its hour's."""

    rows, step, grid = "plain", HOUR, HOUR

    def __init__(self, world: "World") -> None:
        self.context: Any = world.context
        self._world = world
        self.chunks: list[int] = []

    def closed_before(self, watermark: datetime) -> datetime:
        return watermark

    def count(
        self,
        start: datetime,
        end: datetime,
        terms: Terms,
        skips: Collection[Any],
        generation: int,
        version: int,
    ) -> int:
        hour = (start - NOON) // HOUR
        self.chunks.append(hour)
        known = self._world.archived
        if terms.ends is not None:
            known = known[: terms.ends[STREAM.topic]["0"]]
        values = [value for at, value in known if at == hour]
        rows = [(generation, hour, sum(values), version)] if values else []
        columns = ("generation", "hour", "value", "version")
        self.context.tables.upsert(self.rows, columns, rows, version)
        return len(rows)

    def audit(self, part: Seen, terms: Terms, skips: Collection[Any]) -> Findings:
        raise NotImplementedError

    def differences(
        self, start: datetime, end: datetime, before: int, after: int
    ) -> Iterator[Difference]:
        one, other = (self.stored(start, end, number) for number in (before, after))
        for hour in sorted(one.keys() | other.keys()):
            if one.get(hour) != other.get(hour):
                rows = [{"value": found[hour]} if hour in found else None for found in (one, other)]
                yield Difference(str(hour), *rows, "value", ["value"])

    def records(
        self, start: datetime, end: datetime, before: int, after: int, version: int
    ) -> Iterator[Record]:
        for one in self.differences(start, end, before, after):
            said = dict(one.after) if one.after else {"gone": True}
            yield {"key": one.name, "version": version, "generation": after} | said

    def stored(self, start: datetime, end: datetime, generation: int) -> Values:
        query = "SELECT hour FROM {keyspace}.plain WHERE generation = ?"
        found = {row.hour: row.value for row in self.context.tables.select(query, (generation,))}
        return {hour: value for hour, value in found.items() if start <= NOON + hour * HOUR < end}

    def seen(self) -> Values:
        """What readers see."""
        overlay = Book(self.context.tables, self.rows).overlay()
        values: Values = {}
        for piece in seen(overlay, NOON, CLOSED):
            values |= self.stored(piece.start, piece.end, piece.generation)
        return values


class World:
    """The archive, in order; the tables; and the results topic, for a reader who waits."""

    def __init__(self) -> None:
        self.archived: list[tuple[int, int]] = []
        self.read = 0  # by the job
        self.cells = Cells(plain=("generation", "hour"))
        self.context = SimpleNamespace(
            job="test",
            streams=[STREAM],
            tables=self,
            config=SimpleNamespace(version="v1", archive_of=lambda _: ""),
            spark=SimpleNamespace(sql=lambda _: self),
        )
        self.told: list[Record] = []
        self.tells = 10**9  # portions, until it is killed
        self.upsert, self.settle, self.scan = self.cells.upsert, self.cells.settle, self.select

    def collect(self) -> list[Any]:
        return [SimpleNamespace(createdAt=datetime.now(UTC).replace(tzinfo=None))]

    def select(self, query: str, values: Any) -> list[Any]:
        return [] if ".quarantine" in query else self.cells.select(query, values)

    def select_one(self, query: str, values: Any) -> Any:
        if "job_progress" in query:
            return SimpleNamespace(epoch=7, batch=4, watermark=CLOSED)
        return self.cells.select_one(query, values)

    def of(self, job: str, topics: list[str]) -> Any:
        """`Groups`."""
        return {
            topic: {"0": len(self.archived) if job == "archive" else self.read} for topic in topics
        }

    def publish(self, portion: Iterable[Record]) -> None:
        if not self.tells:
            raise Killed
        self.tells -= 1
        self.told += portion

    def topic(self, stream: Values) -> Values:
        """What a reader knows who had the stream's rows, and takes a change once all is told."""
        known = {str(hour): value for hour, value in stream.items()}
        versions, waiting = dict.fromkeys(known, 0), dict[str, Record]()
        for record in self.told:
            assert record["version"] > versions.get(record["key"], 0), record
            versions[record["key"]] = record["version"]
            if record.get("complete"):
                known |= {key: one.get("value") for key, one in waiting.items()}
                waiting = {}
            else:
                waiting[record["key"]] = record
        return {int(key): value for key, value in known.items() if value is not None}


def asked(start: int = 0, end: int = HOURS) -> Asked:
    return Asked(NOON + start * HOUR, NOON + end * HOUR, "", False, "me")


def totals(events: Iterable[tuple[int, int]], start: int = 0, end: int = HOURS) -> Values:
    found = Counter[int]()
    for hour, value in events:
        if start <= hour < end:
            found[hour] += value
    return dict(found)


events = st.lists(st.tuples(st.integers(0, HOURS - 1), st.integers(1, 9)), max_size=4)
ranges = st.tuples(st.integers(0, HOURS - 1), st.integers(1, HOURS)).map(
    lambda pair: (pair[0], min(pair[0] + pair[1], HOURS))
)
actions = st.one_of(
    st.tuples(st.just("archive"), events),
    st.tuples(st.just("count"), ranges),
    st.tuples(st.just("count and be killed"), ranges),
    st.tuples(st.just("switch"), st.none()),
    st.tuples(st.just("switch and be killed"), st.integers(0, 2)),
    st.tuples(st.just("back"), st.none()),
    st.tuples(st.just("back and be killed"), st.integers(0, 2)),
)


@given(events, st.lists(actions, max_size=12))
def test_readers_see_one_count_of_each_window_whatever_happens(
    first: list[tuple[int, int]], done: list[tuple[str, Any]]
) -> None:
    world = World()
    world.archived += first
    counted = Plain(world)
    for hour, value in totals(first).items():
        world.upsert("plain", ("generation", "hour", "value"), [(0, hour, value)], 0)
    stream = totals(first)
    book = Book(world, counted.rows)  # type: ignore[arg-type]
    expected: dict[int, Values] = {0: stream}  # by generation
    shown = dict.fromkeys(range(HOURS), 0)  # hour → the generation that readers see
    before = dict(shown)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(switching, "PORTION", 1)
        for what, how in done:
            action, _, killed = what.partition(" and be ")
            world.tells = how if killed and action != "count" else 10**9
            try:
                if action == "archive":
                    world.archived += how
                elif action == "count":
                    known = {one.number for one in book.all()}
                    chunks = world.cells.before_write
                    if killed:
                        world.cells.before_write = _dying(counted.rows)
                    try:
                        count(counted, asked(*how), ARCHIVES, world)  # type: ignore[arg-type]
                    finally:
                        world.cells.before_write = chunks
                        for one in book.all():
                            if one.number not in known:
                                span = ((at - NOON) // HOUR for at in (one.start, one.end))
                                expected[one.number] = totals(world.archived, *span)
                elif action == "switch":
                    switch(counted, None, world.publish)
                else:
                    back(counted, world.publish)
            except (Refused, Killed):
                pass
            overlay = book.overlay()
            now = {hour: overlay.at(aware(NOON + hour * HOUR)).generation for hour in range(HOURS)}
            if action in ("archive", "count"):
                assert now == shown  # nobody is switched by a count
            shown = now
            assert counted.seen() == {
                hour: expected[number][hour]
                for hour, number in shown.items()
                if hour in expected[number]
            }
            if overlay.is_told:
                assert world.topic(stream) == counted.seen()
    assert before == dict.fromkeys(range(HOURS), 0)


def _dying(rows: str) -> Any:
    writes = Counter[str]()

    def die(table: str) -> None:
        writes[table] += 1
        if writes[rows] == 2:
            raise Killed

    return die


@pytest.fixture
def world() -> World:
    world = World()
    world.archived += [(0, 1), (1, 2), (3, 4)]
    return world


def test_a_run_that_is_killed_is_gone_on_with_and_counts_no_more_than_before(world: World) -> None:
    counted = Plain(world)
    world.cells.before_write = _dying(counted.rows)
    with pytest.raises(Killed):
        count(counted, asked(), ARCHIVES, world)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="counted up to 2026-01-01 13:00:00Z"):
        switch(counted, None, world.publish)
    world.cells.before_write = lambda table: None
    world.archived += [(2, 8)]  # for the next one
    counted.chunks.clear()
    world.read = len(world.archived) + 1  # the archive is behind, and not waited for
    one, rows = count(counted, asked(), ARCHIVES, world)  # type: ignore[arg-type]
    world.read = 0
    assert (one.number, counted.chunks, rows) == (1, [1, 2, 3], 2)
    assert counted.stored(NOON, CLOSED, 1) == {0: 1, 1: 2, 3: 4}
    again, _ = count(counted, asked(), ARCHIVES, world)  # type: ignore[arg-type]
    assert again.number == 2
    assert counted.stored(NOON, CLOSED, 2) == {0: 1, 1: 2, 2: 8, 3: 4}


def test_rows_of_a_run_are_newer_than_those_of_runs_before(world: World) -> None:
    counted = Plain(world)
    world.cells.before_write = _dying(counted.rows)
    with pytest.raises(Killed):
        count(counted, asked(), ARCHIVES, world)  # type: ignore[arg-type]
    [killed] = Book(world, counted.rows).all()  # type: ignore[arg-type]
    world.cells.before_write = lambda table: None
    one, _ = count(counted, asked(), ARCHIVES, world)  # type: ignore[arg-type]
    assert one.version > killed.version > write_version(7, 4)
    assert switch(counted, None, world.publish).version > one.version


def test_of_two_runs_one_stops(world: World) -> None:
    counted, book = Plain(world), Book(world, Plain.rows)  # type: ignore[arg-type]
    count_chunk, other = counted.count, list[Any]()

    def overtaken(*arguments: Any) -> int:
        if not other:
            other.append(book.note(book.all()[-1], version=10**15))
        return count_chunk(*arguments)

    counted.count = overtaken  # type: ignore[method-assign]
    with pytest.raises(Outrun, match="another run counts generation 1"):
        count(counted, asked(), ARCHIVES, world)  # type: ignore[arg-type]


def test_of_two_switches_one_is_refused(world: World) -> None:
    counted, book = Plain(world), Book(world, Plain.rows)  # type: ignore[arg-type]
    count(counted, asked(), ARCHIVES, world)  # type: ignore[arg-type]
    before = book.overlay()
    switch(counted, None, world.publish)
    with pytest.raises(Outrun, match="switched by somebody else"):
        book.change(before, before.switched(Layer(aware(NOON), aware(CLOSED), 9, 9)))


def test_another_change_waits_until_the_topic_was_told_of_the_last_one(world: World) -> None:
    counted = Plain(world)
    count(counted, asked(), ARCHIVES, world)  # type: ignore[arg-type]
    count(counted, asked(0, 1), ARCHIVES, world)  # type: ignore[arg-type]
    world.tells = 0
    with pytest.raises(Killed):
        switch(counted, 1, world.publish)
    world.tells = 10**9
    with pytest.raises(Refused, match="wasn't told all of the last change"):
        switch(counted, 2, world.publish)
    assert switch(counted, 1, world.publish).is_told
    assert switch(counted, 2, world.publish).is_told
    assert world.topic({}) == counted.seen() == {0: 1, 1: 2, 3: 4}


def test_an_archive_that_is_behind_the_job_is_waited_for_and_then_refused(world: World) -> None:
    counted, pauses = Plain(world), list[float]()
    world.read = len(world.archived) + 1
    with pytest.raises(Refused, match="the archive is behind job test"):
        count(counted, asked(), ARCHIVES, world, pauses.append)  # type: ignore[arg-type]
    assert sum(pauses) == counting.CATCH_UP_SECONDS
    assert Book(world, counted.rows).all() == []  # type: ignore[arg-type]

    def catch_up(_: float) -> None:
        world.archived.append((0, 1))

    one, _ = count(counted, asked(), ARCHIVES, world, catch_up)  # type: ignore[arg-type]
    assert one.ends == {STREAM.topic: {"0": world.read}}


def test_what_was_not_counted_or_switched_can_not_be_switched_or_taken_back(world: World) -> None:
    counted = Plain(world)
    for change in (
        lambda: switch(counted, None, world.publish),
        lambda: show(counted, None),
    ):
        with pytest.raises(Refused, match="nothing was counted again yet"):
            change()
    with pytest.raises(Refused, match="never switched"):
        back(counted, world.publish)
    count(counted, asked(), ARCHIVES, world)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="no generation 7; there are 1"):
        switch(counted, 7, world.publish)


def test_what_a_count_has_otherwise_is_shown_also_once_readers_see_it(world: World) -> None:
    counted = Plain(world)
    stored = [(0, 0, 5), (0, 1, 2), (0, 2, 6)]
    world.upsert("plain", ("generation", "hour", "value"), stored, 0)
    count(counted, asked(), ARCHIVES, world)  # type: ignore[arg-type]
    shown = show(counted, None)
    assert (shown["changed"], shown["new"], shown["gone"], shown["seen"]) == (1, 1, 1, False)
    assert shown["sums"] == {"value": [11, 5]}
    assert shown["examples"] == ["changed: 0: value", "gone: 2: value", "new: 3: value"]
    switch(counted, None, world.publish)
    assert show(counted, 1) == shown | {"seen": True}
