"""The books as they are kept: whatever Kafka has that commits don't account for shows."""

import json
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cassandra.metadata import cql_keywords_reserved
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st
from millrace_gateway.books import commits, store, witness
from millrace_gateway.books.account import EARLIEST, Entry, Figures, Piece
from millrace_gateway.books.files import Files, Missing, Unreachable
from millrace_gateway.books.keeper import DAY, LETTERS_SECONDS, MOST, Keeper
from millrace_gateway.books.store import Position
from millrace_gateway.books.witness import Witness
from millrace_gateway.metrics import exposition, of_books
from millrace_gateway.settings import Cassandra
from millrace_gateway.submit import Archive

from millrace.common.paths import REPO
from tests.waiting import PATIENCE_SECONDS

NOW = 1_800_000_000.0
EVENTS = Archive("archive", "events", "events", "/archive/events")


class World:
    """A topic of one partition, an archive's table, and Cassandra. The offsets in ``markers`` are
    no records; ``counted`` is what Kafka was asked for."""

    def __init__(self, markers: Iterable[int] = ()) -> None:
        self.markers = set(markers)
        self.first = 0  # that Kafka hasn't forgotten
        self.log: dict[str, str] = {}
        self.checkpoint: int | None = None  # of the table
        self.files: dict[str, int] = {}
        self.letters: dict[int, int] = {}
        self.skips: list[Piece] = []
        self.rows: dict[int, Entry] = {}
        self.stored: Position | None = None
        self.counted: list[Piece] = []
        self.told: dict[int, int] = {}
        self.away: Exception | None = None

    def records(self, start: int, end: int) -> int:
        return sum(n not in self.markers for n in range(max(start, 0), end))

    def commit(self, batch: int, start: int, end: int, *, archived: int | None = None) -> None:
        """By default, all there is between the two."""
        rows = self.records(start, end) if archived is None else archived
        file = f"event_hour=1/{batch}.parquet"
        self.files[f"/archive/events/{file}"] = 100
        self.told = {0: end}
        self.add(
            {"commitInfo": {"timestamp": NOW * 1000, "userMetadata": _told(start, end)}},
            {"txn": {"appId": "archive checkpoint", "version": batch}},
            {"add": {"path": file, "size": 100, "stats": json.dumps({"numRecords": rows})}},
        )

    def add(self, *actions: dict[str, Any]) -> None:
        version = len(self.log)
        self.log[commits.name_of(version)] = "\n".join(map(json.dumps, actions))

    # What the keeper asks of HDFS, of Kafka and of Cassandra.

    def names_after(self, folder: str, name: str) -> list[str]:
        if self.away:
            raise self.away
        if not self.log:
            raise Missing(folder)
        crc = [found.replace(".json", ".crc") for found in self.log]
        return sorted(found for found in [*self.log, *crc] if found > name)

    def read(self, path: str) -> str:
        name = path.removeprefix("/archive/events/_delta_log/")
        if name == "_last_checkpoint" and self.checkpoint is not None:
            return json.dumps({"version": self.checkpoint})
        if name not in self.log:
            raise Missing(path)
        return self.log[name]

    def size(self, path: str) -> int | None:
        return self.files.get(path)

    def count(self, topic: str, pieces: Iterable[Piece]) -> int | None:
        self.counted += (found := list(pieces))
        if any(EARLIEST < piece.start < self.first for piece in found):
            return None
        return sum(self.records(piece.start, piece.end) for piece in found)

    def enter(self, entry: Entry) -> None:
        self.rows[entry.batch] = entry

    def entries(self, stream: str, days: Iterable[date]) -> list[Entry]:
        kept = [datetime.fromtimestamp(row.committed, UTC).date() for row in self.rows.values()]
        return [row for row, day in zip(self.rows.values(), kept, strict=True) if day in set(days)]

    def put_position(self, stream: str, position: Position) -> None:
        self.stored = position

    def position(self, stream: str) -> Position | None:
        return self.stored

    def dead_letters(self, checkpoint: str, batch: int) -> int:
        return self.letters.get(batch, 0)

    def skipped(self, job: str, topic: str) -> list[Piece]:
        assert (job, topic) == ("archive", "events")
        return self.skips


def _told(start: int, end: int) -> str:
    return json.dumps({"read": {"0": [start, end]}})


def keeper(world: World) -> Keeper:
    return Keeper(world, world, world, lambda _: world.told)


def looked(world: World, kept: Keeper | None = None, now: float = NOW) -> Figures:
    kept = kept or keeper(world)
    kept.look([EVENTS], now)
    return kept.figures()["events"]


def test_books_that_come_out_even_ask_kafka_nothing() -> None:
    world = World()
    world.commit(0, EARLIEST, 10)
    world.letters[1] = 4
    world.commit(1, 10, 20, archived=6)
    assert looked(world) == Figures(0, 0, NOW)
    assert [(row.archived, row.dead_letters) for row in world.rows.values()] == [(10, 0), (6, 4)]
    assert world.counted == []


def test_ends_of_transactions_are_no_records() -> None:
    world = World(markers=[4, 9, 14])
    world.commit(0, EARLIEST, 10)
    world.commit(1, 10, 20)
    assert looked(world) == Figures(0, 0, NOW)
    assert world.counted == [Piece(0, EARLIEST, 10), Piece(0, 10, 20)]
    assert [row.records for row in world.rows.values()] == [8, 9]


def test_a_batch_whose_commit_was_taken_away_is_missing_with_the_next_one() -> None:
    world = World(markers=[12])
    world.commit(0, EARLIEST, 10)
    kept = keeper(world)
    assert looked(world, kept).missing == 0
    world.commit(2, 20, 30)
    assert looked(world, kept).missing == 9


def test_a_file_that_was_taken_away_is_missing() -> None:
    world = World()
    world.commit(0, EARLIEST, 10)
    world.files.clear()
    assert looked(world).missing == 10


def test_files_of_yesterday_may_have_been_merged() -> None:
    world = World()
    world.commit(0, EARLIEST, 10)
    world.files.clear()
    assert looked(world, now=NOW + 2 * DAY).missing == 0


def test_a_row_too_few_and_one_too_many() -> None:
    world = World()
    world.commit(0, EARLIEST, 10, archived=9)
    world.commit(1, 10, 20, archived=12)
    assert looked(world) == Figures(1, 2, NOW)


def test_what_an_older_checkpoint_reads_again_is_too_much() -> None:
    world = World()
    world.commit(0, EARLIEST, 10)
    world.commit(0, 5, 15)
    assert looked(world).surplus == 5


def test_what_is_skipped_is_not_missing() -> None:
    world = World()
    world.skips = [Piece(0, 10, 13)]
    world.commit(0, EARLIEST, 10)
    world.commit(1, 13, 20)
    assert looked(world) == Figures(0, 0, NOW)
    assert world.rows[1].skipped == 3


def test_a_batch_is_entered_once_its_dead_letters_are_counted() -> None:
    """Until its job says that it has read it, they may be yet to come."""
    world = World()
    world.commit(0, EARLIEST, 10)
    world.commit(1, 10, 20, archived=8)
    world.told = {0: 10}
    world.stored = Position(-1, {}, NOW - 60)
    kept = keeper(world)
    assert looked(world, kept, NOW + 60) == Figures(0, 0, NOW)  # closed when it was committed
    assert list(world.rows) == [0]
    world.letters[1] = 2
    world.told = {0: 20}
    assert looked(world, kept, NOW + 60) == Figures(0, 0, NOW + 60)
    assert world.counted == []


def test_a_batch_is_over_once_there_is_a_next_one() -> None:
    world = World()
    world.commit(0, EARLIEST, 10, archived=8)
    world.commit(1, 10, 20)
    world.told = {}
    assert looked(world) == Figures(2, 0, NOW)


def test_a_job_that_says_nothing_is_not_waited_for_long() -> None:
    world = World()
    world.commit(0, EARLIEST, 10, archived=8)
    world.told = {}
    kept = keeper(world)
    assert looked(world, kept).missing == 0
    assert looked(world, kept, NOW + LETTERS_SECONDS + 1).missing == 2


def test_a_batch_that_is_waited_for_hides_nothing_and_is_counted_once() -> None:
    """One commit is gone, and the newest batch is never over at a look."""
    world = World()
    world.commit(0, EARLIEST, 10)
    kept = keeper(world)
    looked(world, kept)
    for batch in range(2, 6):
        world.commit(batch, 10 * batch, 10 * (batch + 1))
        world.told = {0: 10 * batch}
        assert looked(world, kept).missing == 10


def test_a_file_that_is_put_back_and_letters_that_come_late_settle_a_difference() -> None:
    world = World()
    world.commit(0, EARLIEST, 10, archived=8)
    [(path, size)] = world.files.items()
    world.files.clear()
    assert looked(world).missing == 10
    kept = keeper(world)  # another gateway
    world.files[path] = size
    assert looked(world, kept).missing == 2
    world.letters[0] = 2
    assert looked(world, kept).missing == 0
    assert world.rows[0].difference == 0
    assert len(world.counted) == 1  # once


def test_a_commit_that_is_gone_since_stops_no_books() -> None:
    world = World()
    world.commit(0, EARLIEST, 10, archived=8)
    kept = keeper(world)
    looked(world, kept)
    world.log.pop(commits.name_of(0))
    assert looked(world, kept, NOW + 60) == Figures(2, 0, NOW + 60)


def test_a_difference_is_told_for_a_day() -> None:
    world = World()
    world.commit(0, EARLIEST, 10, archived=8)
    kept = keeper(world)
    assert looked(world, kept).missing == 2
    assert looked(world, kept, NOW + DAY + 1).missing == 0


def test_another_gateway_goes_on_where_the_books_were_left() -> None:
    world = World()
    world.commit(0, EARLIEST, 10, archived=8)
    looked(world)
    world.commit(2, 20, 30)
    world.counted.clear()
    assert looked(world).missing == 12  # two of the entry before, and the batch that isn't there
    assert world.counted == [Piece(0, 10, 30)]


def test_books_of_a_table_that_is_older_begin_at_its_checkpoint() -> None:
    world = World()
    world.commit(0, EARLIEST, 10)
    world.commit(1, 10, 20)
    world.commit(2, 20, 30)
    world.checkpoint = 1
    looked(world)
    assert [(row.batch, row.records) for row in world.rows.values()] == [(2, 10)]


def test_books_begin_anew_after_a_batch_that_does_not_say_what_it_read() -> None:
    """One of a version of the jobs without books, which may be backed out to."""
    world = World()
    world.commit(0, EARLIEST, 10)
    said_nothing = {"commitInfo": {"timestamp": NOW * 1000}}
    world.add(said_nothing, {"txn": {"appId": "archive checkpoint", "version": 1}})
    world.commit(2, 20, 30)
    assert looked(world) == Figures(0, 0, NOW)
    assert [(row.batch, row.records) for row in world.rows.values()] == [(0, 10), (2, 10)]


def test_the_upkeep_s_commits_are_no_batches() -> None:
    world = World()
    world.add({"commitInfo": {"operation": "OPTIMIZE"}}, {"remove": {"path": "x"}})
    assert looked(world) == Figures(0, 0, NOW)
    assert world.rows == {}


def test_what_a_job_says_it_has_read_and_no_commit_tells_of_is_missing() -> None:
    """Also when nothing comes after it."""
    world = World(markers=[12])
    world.commit(0, EARLIEST, 10)
    world.told = {0: 20, 1: 5}  # of the other partition the books know nothing
    kept = keeper(world)
    assert looked(world, kept).missing == 9
    assert looked(world).missing == 9  # by another gateway
    world.skips = [Piece(0, 10, 13)]
    assert looked(world, kept).missing == 7
    world.commit(1, 13, 20)
    assert looked(world, kept).missing == 0


def test_what_kafka_has_forgotten_nobody_can_tell() -> None:
    world = World(markers=[3])
    world.first = 5
    world.commit(0, 0, 10)
    assert looked(world) == Figures(0, 0, NOW)
    assert world.rows[0].records is None


def test_a_stream_without_a_table_is_closed() -> None:
    assert looked(World()) == Figures(0, 0, NOW)


def test_books_that_can_t_be_kept_aren_t_closed() -> None:
    world = World()
    kept = keeper(world)
    looked(world, kept)
    for error in (Unreachable("no"), KafkaException(KafkaError(KafkaError._TIMED_OUT))):
        world.away = error
        assert looked(world, kept, NOW + 60).closed == NOW
    world.away = None
    assert looked(world, kept, NOW + 90).closed == NOW + 90


def test_a_long_way_is_gone_step_by_step() -> None:
    world = World()
    for batch in range(MOST + 1):
        world.commit(batch, 10 * batch, 10 * (batch + 1))
    world.stored = Position(-1, {}, NOW - 60)
    kept = keeper(world)
    assert looked(world, kept, NOW + 60).closed == NOW  # when those were committed
    assert len(world.rows) == MOST
    assert looked(world, kept, NOW + 60).closed == NOW + 60
    assert len(world.rows) == MOST + 1


@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=8),
    st.sets(st.integers(0, 40), max_size=8),
    st.data(),
)
def test_whatever_batch_s_commit_is_taken_away_all_its_records_are_missing(
    sizes: list[int], markers: set[int], data: st.DataObject
) -> None:
    away = data.draw(st.integers(0, len(sizes) - 2))
    world = World(markers)
    start, lost = 0, 0
    for batch, size in enumerate(sizes):
        if batch == away:
            lost = world.records(start, start + size)
            if batch == 0:  # the books begin with it
                world.commit(batch, start, start + size, archived=0)
        else:
            world.commit(batch, start, start + size)
        start += size
    assert looked(world) == Figures(lost, 0, NOW)


def test_what_prometheus_is_told() -> None:
    text = exposition(of_books({"events": Figures(3, 1, NOW)}))
    assert 'millrace_ledger_missing_records{stream="events"} 3.0' in text
    assert 'millrace_ledger_surplus_records{stream="events"} 1.0' in text
    assert f'millrace_ledger_closed_timestamp_seconds{{stream="events"}} {NOW!r}' in text


# -- Cassandra


class Session:
    """Keeps rows by the columns of their statement, and gives all to whoever reads the table."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}

    def prepare(self, query: str) -> str:
        return query

    def execute(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        table, columns = table_of(query), columns_of(query)
        if query.startswith("INSERT"):
            row = dict(zip(columns, values, strict=True))
            # The driver gives times without their zone.
            naive = {k: v.replace(tzinfo=None) for k, v in row.items() if isinstance(v, datetime)}
            self.tables.setdefault(table, []).append(row | naive)
            return []
        named = names_of(query)
        return [
            SimpleNamespace(**{named.get(name, name): value for name, value in row.items()})
            for row in self.tables.get(table, ())
        ]


def table_of(query: str) -> str:
    return re.search(r"(?:INTO|FROM) [{\w}]+\.(\w+)", query)[1]  # type: ignore[index]


def columns_of(query: str) -> list[str]:
    """Those that are written or asked for, as the table calls them."""
    found = re.search(
        r"\((.*?)\) VALUES" if query.startswith("INSERT") else r"SELECT (.*) FROM", query
    )
    return [column.split()[0].strip('"') for column in found[1].split(", ")]  # type: ignore[index]


def names_of(query: str) -> dict[str, str]:
    """Column → what it is called in an answer."""
    return dict(re.findall(r'"?(\w+)"? AS (\w+)', query))


@pytest.fixture
def cassandra(monkeypatch: pytest.MonkeyPatch) -> Session:
    session = Session()
    monkeypatch.setattr(store.Store, "_session", session)
    return session


def test_entries_and_positions_are_read_as_they_were_written(cassandra: Session) -> None:
    kept = store.Store(Cassandra([], 9042, "dc", "keyspace"))
    entry = Entry("events", NOW + 0.25, "checkpoint", 7, 12, None, 9, 1, 3)
    assert kept.position("events") is None
    kept.put_position("events", Position(3, {0: 10, 11: 5}, NOW, 4))
    kept.enter(entry)
    assert kept.position("events") == Position(3, {0: 10, 11: 5}, NOW, 4)
    day = datetime.fromtimestamp(NOW, UTC).date()
    assert kept.entries("events", [day]) == [entry]
    assert cassandra.tables["book_entries"][0]["day"] == day


def test_what_the_jobs_have_written(cassandra: Session) -> None:
    kept = store.Store(Cassandra([], 9042, "dc", "keyspace"))
    assert kept.dead_letters("checkpoint", 7) == 0
    cassandra.tables["dead_letter_batches"] = [{"records": 4}]
    assert kept.dead_letters("checkpoint", 7) == 4
    place = {"part": 1, "first_offset": 5, "end_offset": 9}
    cassandra.tables["skipped"] = [place | {"topic": "events"}, place | {"topic": "clicks"}]
    assert kept.skipped("archive", "events") == [Piece(1, 5, 9)]


STATEMENTS = [
    *(store.ENTER, store.ENTRIES, store.PUT_POSITION, store.POSITION),
    *(store.DEAD_LETTERS, store.SKIPPED),
]


@pytest.mark.parametrize("query", STATEMENTS)
def test_statements_are_of_the_schema_s_tables(query: str) -> None:
    schema = (REPO / "spark-jobs/schema.cql").read_text()
    table = schema.split(f":keyspace.{table_of(query)} (")[1].split("\n)")[0]
    names = set(re.findall(r'^  "?(\w+)"?', table, re.MULTILINE))
    assert set(columns_of(query)) <= names
    assert not cql_keywords_reserved & {*names_of(query).values()}


# -- HDFS


class WebHdfs(BaseHTTPRequestHandler):
    def answer(self, status: int, content: Any) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None: ...


class Standby(WebHdfs):
    def do_GET(self) -> None:
        self.answer(403, {"RemoteException": {"exception": "StandbyException"}})


@contextmanager
def served(handler: type[WebHdfs]) -> Iterator[str]:
    with ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"localhost:{server.server_port}"
        server.shutdown()


@pytest.fixture
def namenode() -> Iterator[tuple[str, list[str]]]:
    """An active NameNode: its address, and what it was asked."""
    asked: list[str] = []

    class Handler(WebHdfs):
        def do_GET(self) -> None:
            found = urlsplit(self.path)
            query = parse_qs(found.query)
            asked.append(f"{query['op'][0]} {found.path}")
            assert query["user.name"] == ["millrace"]
            if found.path.endswith("/none"):
                self.answer(404, {"RemoteException": {"exception": "FileNotFoundException"}})
            elif query["op"] == ["OPEN"] and "redirected" not in query:
                self.send_response(307)
                self.send_header("Location", f"{self.path}&redirected=1")
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif query["op"] == ["OPEN"]:
                self.answer(200, "content")
            elif query["op"] == ["GETFILESTATUS"]:
                self.answer(200, {"FileStatus": {"length": 7}})
            else:
                assert query["startafter"] == ["b"]  # it lowers the names that it gets
                names = {"FileStatus": [{"pathSuffix": "c"}, {"pathSuffix": "d"}]}
                listed = {"partialListing": {"FileStatuses": names}, "remainingEntries": 0}
                self.answer(200, {"DirectoryListing": listed})

    with served(Handler) as address:
        yield address, asked


def test_files_of_hdfs(namenode: tuple[str, list[str]]) -> None:
    address, asked = namenode
    files = Files(["localhost:1", address], "millrace", PATIENCE_SECONDS)
    assert files.read("/a") == '"content"'
    assert files.size("/a b=1/c") == 7
    assert files.size("/none") is None
    assert files.names_after("/log", "b") == ["c", "d"]
    with pytest.raises(Missing):
        files.read("/none")
    assert asked[2] == "GETFILESTATUS /webhdfs/v1/a%20b%3D1/c"


def test_whichever_namenode_is_active_is_asked(namenode: tuple[str, list[str]]) -> None:
    address, _ = namenode
    with served(Standby) as standby:
        assert Files([standby, address], "millrace", PATIENCE_SECONDS).size("/a") == 7
        with pytest.raises(Unreachable):
            Files([standby], "millrace", PATIENCE_SECONDS).size("/a")


def test_no_namenode_answers() -> None:
    with pytest.raises(Unreachable, match="/a"):
        Files(["localhost:1"], "millrace", PATIENCE_SECONDS).read("/a")


# -- Kafka


class Message:
    def __init__(self, offset: int, code: int | None = None) -> None:
        self._offset, self._code = offset, code

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def offset(self) -> int:
        return self._offset


class Consumer:
    """Of a partition with offsets 5 to 19, of which multiples of four are no records."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.at = 0

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        return 5, 20

    def assign(self, places: list[Any]) -> None:
        self.at = places[0].offset

    def unassign(self) -> None: ...

    def poll(self, timeout: float) -> Message:
        found = [n for n in range(self.at, 20) if n % 4]
        if not found:
            return Message(20, KafkaError._PARTITION_EOF)
        self.at = found[0] + 1
        return Message(found[0])


@pytest.mark.parametrize(
    ("pieces", "records"),
    [
        ([Piece(0, 8, 13)], 3),
        ([Piece(0, 17, 20)], 3),
        ([Piece(0, 5, 6), Piece(0, 16, 17)], 1),
        ([Piece(0, EARLIEST, 8)], 3),
        ([Piece(0, 4, 8)], None),
    ],
)
def test_records_between_two_offsets(
    monkeypatch: pytest.MonkeyPatch, pieces: list[Piece], records: int | None
) -> None:
    monkeypatch.setattr(witness, "Consumer", Consumer)
    assert Witness("").count("events", pieces) == records


def test_kafka_that_does_not_answer_is_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness, "Consumer", Consumer)
    monkeypatch.setattr(Consumer, "poll", lambda *_: None)
    with pytest.raises(KafkaException):
        Witness("").count("events", [Piece(0, 8, 13)])


@pytest.mark.parametrize(
    ("pieces", "records"),
    [
        ([Piece(0, 8, 13)], 3),
        ([Piece(0, 8, 14)], None),
        ([Piece(0, 8, 13), Piece(0, 14, 19)], 7),  # around what the archive has skipped
        ([Piece(0, 14, 19), Piece(0, 8, 14)], None),
    ],
)
def test_a_record_that_is_too_large_ends_what_is_before_it(
    monkeypatch: pytest.MonkeyPatch, pieces: list[Piece], records: int | None
) -> None:
    """Books that waited until Kafka forgets it would stand still for a month."""

    class Bomb(Consumer):
        def poll(self, timeout: float) -> Message:
            found = super().poll(timeout)
            return found if found.offset() != 13 else Message(13, KafkaError._BAD_COMPRESSION)

    monkeypatch.setattr(witness, "Consumer", Bomb)
    assert Witness("").count("events", pieces) == records
