"""Replays: every line once, whatever happens in between."""

import gzip
import io
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.common.paths import REPO
from millrace.config import load_names
from millrace.replay import run, start
from millrace.replay.events import ORIGINAL_SIZE, Encoder, Limits, Message
from millrace.replay.pace import Pace, parse_speed
from millrace.replay.pipeline import Pipeline
from millrace.replay.progress import Progress
from millrace.replay.run import ReplayOptions
from millrace.replay.session import Replay
from millrace.replay.source import GZIP_MAGIC, Line, Lines, Source
from millrace.replay.transactions import EventLog, Stopped
from millrace.weblog import Reader, format_of, parse_line

TOPICS = load_names().kafka.topics
DAY = 86400
LIMITS = Limits(earliest=946684800, ahead=3600, line_bytes=1000)
UNLIMITED = 10**12  # seconds of watermark: nothing is held back


def log_line(number: int, time: str = "17/May/2015:10:05:03 +0000") -> bytes:
    return f'10.0.0.{number % 7} - - [{time}] "GET /{number} HTTP/1.1" 200 1 "-" "-"'.encode()


# --- a broker that honours transactions, and fails where a test says ------------------------------


class Killed(BaseException):
    """kill -9: nothing in the replay gets to handle it."""


@dataclass
class Broker:
    """Committed records, and the open transaction of the newest producer."""

    committed: list[tuple[str, bytes, bytes]] = field(default_factory=list)
    epoch: int = 0

    def values(self, topic: str) -> list[bytes]:
        return [value for name, _, value in self.committed if name == topic]

    def last_progress(self) -> Progress | None:
        records = self.values(TOPICS.replay_progress)
        return Progress.from_json(records[-1]) if records else None


class FakeProducer:
    """One step per call; ``script`` says what happens at which step, counted over its life.

    ``kill`` dies before the step, ``kill after`` behind it, ``abort`` and ``retry`` are errors that
    Kafka reports in place of the step; ``retry after`` is one whose step did happen.
    """

    def __init__(self, broker: Broker, script: dict[int, str]) -> None:
        self._broker = broker
        self._script = script
        self._step = 0
        self._pending: list[tuple[str, bytes, bytes]] | None = None
        self._last_commit_done = False

    def init_transactions(self, timeout: float) -> None:
        self._broker.epoch += 1
        self._epoch = self._broker.epoch

    def begin_transaction(self) -> None:
        assert self._pending is None
        with self._scripted():
            self._pending = []
            self._last_commit_done = False

    def produce(
        self, topic: str, value: bytes, key: bytes, *, headers: list[tuple[str, bytes]]
    ) -> None:
        assert self._pending is not None
        with self._scripted():
            self._pending.append((topic, key, value))

    def poll(self, timeout: float) -> int:
        return 0

    def commit_transaction(self, timeout: float) -> None:
        # Asked again about a transaction that did happen, Kafka doesn't abort it.
        with self._scripted(impossible="abort" if self._last_commit_done else None):
            if self._epoch != self._broker.epoch:
                raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
            if not self._last_commit_done:
                self._broker.committed += self._pending or []
            self._last_commit_done = True
        self._pending = None

    def abort_transaction(self, timeout: float) -> None:
        self._pending = None

    def _scripted(self, impossible: str | None = None) -> "Scripted":
        self._step += 1
        fault = self._script.get(self._step, "")
        return Scripted("" if fault == impossible else fault)


@dataclass
class Scripted:
    fault: str

    def __enter__(self) -> None:
        if self.fault == "kill":
            raise Killed
        if self.fault == "abort":
            error = KafkaError(KafkaError._TIMED_OUT, "abort", txn_requires_abort=True)
            raise KafkaException(error)
        if self.fault == "retry":
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "retry", retriable=True))

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self.fault == "kill after":
            raise Killed
        if kind is None and self.fault == "retry after":
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "retry", retriable=True))


def replay(path: str, broker: Broker, script: dict[int, str], watermark: float = UNLIMITED) -> None:
    """One life of a replay: from the position that the broker knows to the end, or to its death."""
    source = Source(path)
    source_id = source.identity("")
    log = EventLog(
        FakeProducer(broker, script), TOPICS, source_id, lambda: False, lambda text: None
    )
    log.open()
    begin = broker.last_progress() or Progress(source.name, "")
    lines = source.lines(begin.lines, begin.offset, LIMITS.line_bytes)
    encode = Encoder(source_id, begin.shift, LIMITS, parse_line)
    Replay(log, encode, Pace(None, watermark), begin, watermark / 10, Event(), lambda *_: None).run(
        lines
    )


def write(folder: Path, content: bytes, zipped: bool = False) -> str:
    path = folder / ("access.log.gz" if zipped else "access.log")
    path.write_bytes(gzip.compress(content) if zipped else content)
    return str(path)


# --- exactly once ---------------------------------------------------------------------------------

faults = st.sampled_from(["kill", "kill after", "abort", "retry", "retry after"])
lives = st.lists(st.dictionaries(st.integers(1, 40), faults, max_size=4), max_size=6)


def in_members(content: bytes) -> bytes:
    """Gzipped in two members, with padding behind both."""
    half = len(content) // 2
    return b"".join(gzip.compress(part) + b"\0" * 600 for part in (content[:half], content[half:]))


# A log as it may come: with a byte order mark, behind a hole, and packed.
FORMS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "marked": lambda content: b"\xef\xbb\xbf" + content,
    "behind a hole": lambda content: b"\0" * 5000 + content,
    "gzipped": gzip.compress,
    "gzipped in members": in_members,
}


@given(
    count=st.integers(1, 60),
    lives=lives,
    form=st.sampled_from(sorted(FORMS)),
    batch=st.integers(1, 20),
)
def test_every_line_arrives_once_wherever_the_replay_dies(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    lives: list[dict[int, str]],
    form: str,
    batch: int,
) -> None:
    lines = [log_line(n) for n in range(count)]
    path = write(tmp_path_factory.mktemp("log"), FORMS[form](b"\n".join(lines)))
    broker = Broker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millrace.replay.session.BATCH_MESSAGES", batch)
        for script in [*lives, {}]:
            try:
                replay(path, broker, script)
            except Killed:
                continue
    events = [json.loads(value) for value in broker.values(TOPICS.events)]
    assert [event["url"] for event in events] == [f"/{n}" for n in range(count)]
    assert len({event["visitor_id"] for event in events}) == min(count, 7)
    progress = broker.last_progress()
    assert progress
    assert (progress.lines, progress.done) == (count, True)


def test_an_error_the_operator_must_see_is_not_retried(tmp_path: Path) -> None:
    broker = Broker()
    older = EventLog(FakeProducer(broker, {}), TOPICS, "id", lambda: False, lambda text: None)
    older.open()
    newer = EventLog(FakeProducer(broker, {}), TOPICS, "id", lambda: False, lambda text: None)
    newer.open()
    with pytest.raises(OperatorError, match="another replay of the same source"):
        older.append([], Progress("log", ""))
    newer.append([], Progress("log", ""))
    assert len(broker.values(TOPICS.replay_progress)) == 1


def test_stopping_while_kafka_is_away_leaves_nothing_half_done() -> None:
    broker = Broker()
    log = EventLog(
        FakeProducer(broker, dict.fromkeys(range(3, 100), "retry")),
        TOPICS,
        "id",
        lambda: True,
        print,
    )
    log.open()
    with pytest.raises(Stopped):
        log.append([], Progress("log", ""))
    assert broker.committed == []


def test_a_finished_log_that_has_grown_continues_with_what_is_new(tmp_path: Path) -> None:
    broker = Broker()
    first = log_line(0) + b"\n" + log_line(1) * 9 + b"\n"  # the fingerprint is within these
    path = write(tmp_path, first)
    replay(path, broker, {})
    write(tmp_path, first + log_line(2) + b"\n")
    replay(path, broker, {})
    assert len(broker.values(TOPICS.events)) == 3
    assert json.loads(broker.values(TOPICS.events)[-1])["url"] == "/2"


def test_a_transaction_spans_a_bounded_part_of_event_time(tmp_path: Path) -> None:
    hours = [f"17/May/2015:{hour:02}:00:00 +0000" for hour in range(24)]
    path = write(tmp_path, b"\n".join(log_line(n, time) for n, time in enumerate(hours)))
    broker = Broker()
    # A watermark of 50 h: transactions of at most 5 h, which are at most six of these events.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pace, "wait", lambda *_: 0.0)
        replay(path, broker, {}, watermark=50 * 3600)
    spans, size = [], 0
    for topic, _, _ in broker.committed:
        size = size + 1 if topic == TOPICS.events else 0
        spans.append(size)
    assert max(spans) == 6
    assert len(broker.values(TOPICS.events)) == 24


# --- sources --------------------------------------------------------------------------------------


def piped(content: bytes, monkeypatch: pytest.MonkeyPatch, chunk: int = 7) -> Source:
    """A source on standard input, written to in small pieces by another process."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        for begin in range(0, len(content), chunk):
            os.write(writer, content[begin : begin + chunk])
        os._exit(0)
    os.close(writer)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(os.fdopen(reader, "rb")))
    return Source("-")


def data(source: Source, number: int = 0, offset: int = 0, limit: int = 1000) -> list[bytes]:
    return [line.data for line in source.lines(number, offset, limit) if line is not None]


LOG = b"".join(log_line(n) + b"\n" for n in range(40))


def test_plain_gzipped_and_piped_are_the_same_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Source(write(tmp_path, LOG))
    zipped = Source(write(tmp_path, LOG, zipped=True))
    pipe = piped(LOG, monkeypatch)
    pipe_of_zipped = piped(gzip.compress(LOG), monkeypatch)
    sources = [plain, zipped, pipe, pipe_of_zipped]
    assert len({source.identity("") for source in sources}) == 1
    assert [data(source) for source in sources] == [LOG.splitlines()] * 4


def test_another_run_or_another_log_is_another_source(tmp_path: Path) -> None:
    path = write(tmp_path, LOG)
    assert Source(path).identity("") != Source(path).identity("second")
    other = tmp_path / "other.log"
    other.write_bytes(b"#" + LOG)
    assert Source(path).identity("") != Source(str(other)).identity("")


@given(
    content=st.lists(st.binary(max_size=60), max_size=30)
    .map(b"\n".join)
    .filter(lambda content: not content.startswith(GZIP_MAGIC)),
    zipped=st.booleans(),
    cut=st.integers(0, 30),
)
def test_lines_from_any_position_are_the_rest_of_the_lines(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, zipped: bool, cut: int
) -> None:
    path = write(tmp_path_factory.mktemp("log"), content, zipped)
    lines = [line for line in Source(path).lines(0, 0, 1000) if line is not None]
    expected = content.split(b"\n")
    assert [line.data for line in lines] == (expected if expected[-1] else expected[:-1])
    for position in lines[cut : cut + 1]:
        rest = list(Source(path).lines(position.number, position.end, 1000))
        assert rest == lines[cut + 1 :]


def test_concatenated_gzip_members_are_one_log(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(LOG[:500]) + gzip.compress(LOG[500:]))
    assert data(Source(str(path))) == LOG.splitlines()


@pytest.mark.parametrize("padding", [1, 511, 200_000])
def test_zero_bytes_behind_a_gzip_member_are_padding(tmp_path: Path, padding: int) -> None:
    path = tmp_path / "log.gz"
    zeros = b"\0" * padding
    path.write_bytes(gzip.compress(LOG[:500]) + zeros + gzip.compress(LOG[500:]) + zeros)
    assert data(Source(str(path))) == LOG.splitlines()
    last = Source(str(path)).lines(39, len(LOG) - len(LOG.splitlines()[-1]) - 1, 1000)
    assert [line.data for line in last if line] == LOG.splitlines()[-1:]


def test_what_else_stands_behind_a_gzip_member_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(LOG) + b"\0\0trailing")
    with pytest.raises(OperatorError, match="damaged gzip file"):
        data(Source(str(path)))


def test_a_gzip_file_that_ends_too_early_gives_its_lines_and_then_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(os.urandom(300_000).hex().encode())[:-1000])
    with pytest.raises(OperatorError, match="ends in the middle of its gzip stream"):
        data(Source(str(path)))


def test_a_damaged_gzip_file_is_an_error_of_the_operator(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(LOG)[:10] + b"\xff" * 100)
    with pytest.raises(OperatorError, match="damaged gzip file"):
        data(Source(str(path)))


def test_an_endless_line_is_cut_and_says_how_long_it_was(tmp_path: Path) -> None:
    path = write(tmp_path, b"a\n" + b"x" * 300_000 + b"\nb\n" + b"y" * 50)
    lines = [line for line in Source(path).lines(0, 0, 20) if line]
    assert [(line.data, line.size) for line in lines] == [
        (b"a", 1),
        (b"x" * 20, 300_000),
        (b"b", 1),
        (b"y" * 20, 50),
    ]
    assert [line.end for line in lines] == [2, 300_003, 300_005, 300_055]


def test_padding_is_cut_before_the_line_behind_it(tmp_path: Path) -> None:
    """As where a log was truncated while its server went on writing at its old position."""
    hole = b"\0" * 300_000
    path = write(tmp_path, hole + b"first\n" + hole + b"x" * 30 + b"\n\0\0b\n" + hole)
    lines = [line for line in Source(path).lines(0, 0, 20) if line]
    assert [(line.number, line.data, line.size) for line in lines] == [
        (1, b"first", 300_005),
        (2, b"x" * 20, 300_030),
        (3, b"\0\0b", 3),
        (4, b"", 300_000),
    ]
    assert [line.end for line in lines] == [300_006, 600_037, 600_041, 900_041]


@pytest.mark.parametrize("zipped", [False, True])
def test_a_log_shorter_than_its_recorded_position_is_refused(tmp_path: Path, zipped: bool) -> None:
    with pytest.raises(OperatorError, match="shorter than what was already replayed"):
        data(Source(write(tmp_path, LOG, zipped)), offset=len(LOG) + 1)


def test_an_idle_pipe_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.write(writer, LOG + b"half a li")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(os.fdopen(reader, "rb")))
    lines = Source("-").lines(0, 0, 1000)
    seen = [next(lines) for _ in range(41)]
    assert seen[40] is None
    os.write(writer, b"ne\n")
    os.close(writer)
    assert [line.data for line in lines if line] == [b"half a line"]


@pytest.mark.parametrize(("path", "reason"), [("/no/such/log", "No such file"), ("/", "directory")])
def test_what_cannot_be_read(path: str, reason: str) -> None:
    with pytest.raises(OperatorError, match=reason):
        Source(path)


# --- events ---------------------------------------------------------------------------------------


def encode(line: bytes, shift: int = 0, number: int = 7, size: int | None = None) -> Message:
    return Encoder("source", shift, LIMITS, parse_line)(Line(number, 0, line, size or len(line)))


def test_an_event_says_what_the_line_says() -> None:
    message = encode(
        b'83.149.9.216 - - [17/May/2015:12:05:03 +0200] "GET /a?b=1 HTTP/1.1" 200 203023 '
        b'"http://b/c" "Opera/9"'
    )
    event = json.loads(message.value)
    assert message.key.decode() == event["visitor_id"]
    assert len(event.pop("event_id")) == len(event.pop("visitor_id")) == 32
    assert event == {
        "event_time": "2015-05-17T10:05:03.000Z",
        "session_hint": None,
        "method": "GET",
        "url": "/a?b=1",
        "referrer": "http://b/c",
        "status": 200,
        "bytes": 203023,
        "user_agent": "Opera/9",
        "kind": "page_view",
        "campaign": None,
    }


def test_event_ids_depend_on_source_and_position_only() -> None:
    def event_id(message: Message) -> str:
        return json.loads(message.value)["event_id"]

    assert event_id(encode(log_line(1))) == event_id(encode(log_line(2)))
    assert event_id(encode(log_line(1))) != event_id(encode(log_line(1), number=8))


def test_what_is_absent_in_the_log_is_null_in_the_event() -> None:
    event = json.loads(encode(log_line(0).replace(b"200 1 ", b"304 - ")).value)
    assert (event["referrer"], event["user_agent"], event["bytes"]) == (None, None, 0)


@given(hours=st.integers(-24 * 365, 24 * 365))
def test_a_shift_moves_every_event_by_whole_hours(hours: int) -> None:
    time = json.loads(encode(log_line(0), shift=hours).value)["event_time"]
    moved = datetime.fromisoformat(time) - datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC)
    assert moved.total_seconds() == hours * 3600


@pytest.mark.parametrize(
    "line", [b"", b"garbage", log_line(0)[:-5], log_line(0).replace(b"/0", b"/\xff\xfe")]
)
def test_a_malformed_line_goes_as_it_is(line: bytes) -> None:
    message = encode(line)
    assert (message.value, message.headers, message.malformed) == (line, [], True)
    assert (
        message.key == json.dumps(json.loads(encode(log_line(0)).value)["event_id"])[1:-1].encode()
    )


def test_a_cut_line_tells_its_original_size() -> None:
    assert encode(b"x" * 10, size=10**9).headers == [(ORIGINAL_SIZE, b"1000000000")]


def test_half_a_character_in_json_goes_as_it_is() -> None:
    line = (
        b'{"ts":1431857103,"request":{"client_ip":"192.0.2.1","method":"GET",'
        b'"uri":"/URI"},"status":200,"size":1}'
    )
    assert json.loads(encode(line).value)["url"] == "/URI"
    for half in (
        line.replace(b"URI", rb"\ud800"),
        line.replace(b"192.0.2.1", rb"\udc00"),
        line.replace(b"URI", rb"\u0000"),
    ):
        message = encode(half)
        assert (message.value, message.malformed) == (half, True)


@pytest.mark.parametrize("shift", [24 * 365 * 8000, -24 * 365 * 3000])
def test_a_time_shifted_out_of_the_calendar_goes_as_it_is(shift: int) -> None:
    assert encode(log_line(0), shift).malformed


@pytest.mark.parametrize("year", ["1999", "2999"])
def test_a_time_that_the_jobs_refuse_sets_no_pace(year: str) -> None:
    message = encode(log_line(0, f"17/May/{year}:10:05:03 +0000"))
    assert message.time is None
    assert not message.malformed


# --- pace -----------------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_events_are_spread_by_their_time() -> None:
    clock = Clock()
    pace = Pace(60.0, DAY, clock)
    assert pace.wait(1000) == 0
    assert pace.wait(1060) == pytest.approx(1)
    assert pace.wait(1030) == pytest.approx(1)  # out of order: no later than its elders
    clock.now += 0.25
    assert pace.wait(1120) == pytest.approx(1.75)


def test_a_replay_that_fell_behind_does_not_rush() -> None:
    clock = Clock()
    pace = Pace(1.0, DAY, clock)
    pace.wait(1000)
    clock.now += 30
    assert pace.wait(1010) == 0
    assert pace.behind == pytest.approx(20)
    assert pace.wait(1011) == pytest.approx(1)


def test_at_most_a_tenth_of_the_watermark_per_second_but_no_more_than_ten_seconds() -> None:
    clock = Clock()
    pace = Pace(None, DAY, clock)
    pace.wait(0)
    assert pace.wait(DAY // 10) == pytest.approx(1)
    clock.now += 1
    assert pace.wait(400 * DAY) == pytest.approx(10)


def test_a_speed_over_the_limit_is_refused() -> None:
    Pace(8640.0, DAY)
    with pytest.raises(OperatorError, match="faster than a watermark of 24 h allows"):
        Pace(8641.0, DAY)


def test_speeds() -> None:
    assert [parse_speed(text) for text in ("1x", "60x", "0.5x", "max")] == [1, 60, 0.5, None]
    for text in ("fast", "0x", "-1x", "nan", "inf", ""):
        with pytest.raises(OperatorError, match="expected 1x, 60x"):
            parse_speed(text)


# --- before the first line ------------------------------------------------------------------------


def look(path: str, asked: str = "") -> tuple[list[bytes], list[bytes]]:
    first, lines = start.look_ahead(Source(path).lines(0, 0, 1000), asked)
    return first, [line.data for line in lines if line]


def test_looking_ahead_loses_no_line(tmp_path: Path) -> None:
    content = b"garbage\n" * 3 + LOG * 30
    first, lines = look(write(tmp_path, content))
    assert first == content.splitlines()[:1000]
    assert lines == content.splitlines()
    read = Reader(format_of("combined"))
    moment = datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC).timestamp()
    assert start.first_time(first, read) == moment
    assert start.first_time(first[:3], read) is None


def growing(*content: bytes | None) -> Iterator[Line | None]:
    """Lines as they come; None where nothing came for a while."""
    for number, line in enumerate(content):
        yield None if line is None else Line(number + 1, 0, line, len(line))


def test_a_log_that_grows_is_looked_at_until_there_is_a_request_and_a_pause() -> None:
    content = [None, b"garbage", None, log_line(0), log_line(1), None, log_line(2)]
    first, lines = start.look_ahead(growing(*content), "")
    assert first == [b"garbage", log_line(0), log_line(1)]
    assert [line.data for line in lines if line] == [line for line in content if line]


def test_a_log_that_grows_without_a_pause_is_looked_at_for_a_while() -> None:
    clock = Clock()
    passed = start.LOOK_AHEAD_SECONDS / 4

    def lines() -> Iterator[Line | None]:
        for line in growing(*(log_line(number) for number in range(20))):
            clock.now += passed
            yield line

    first, _ = start.look_ahead(lines(), "", clock)
    assert len(first) == 5


def test_a_log_that_grows_in_a_format_of_its_own_is_looked_at_no_longer() -> None:
    own = "%h|%{sec}t|%r|%>s"
    content = [b"192.0.2.1|1431857103|GET / HTTP/1.1|200", None, b"more"]
    assert start.look_ahead(growing(*content), own)[0] == content[:1]


@pytest.mark.parametrize(("content", "reason"), [(b"", "empty"), (b"a\n" * 5000, "no web log")])
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    first, _ = look(write(tmp_path, content))
    with pytest.raises(OperatorError, match=reason):
        start.take_format("x.log", "", first)


def test_a_log_that_shows_next_to_no_request_is_refused_unless_its_format_is_given() -> None:
    few = [log_line(0)] * 9 + [b"garbage"] * 91
    with pytest.raises(OperatorError, match="9 of its first 100 lines fit"):
        start.take_format("x.log", "", few)
    assert start.take_format("x.log", "", [log_line(1), *few[:-1]]).fitting == 10
    assert start.take_format("x.log", "combined", few).fitting == 9


def test_a_refusal_shows_the_first_line_that_does_not_fit_and_what_to_do() -> None:
    lines = [log_line(0), b"[/b] \x1b[31m\xff 1.2.3.4" + b"x" * 500, b"other"] + [b"garbage"] * 20
    with pytest.raises(OperatorError) as refusal:
        start.take_format("x.log", "", lines)
    assert "1 of its first 23 lines fit" in refusal.value.message
    assert r"[/b] \x1b[31m\xff 1.2.3.4xxx" in refusal.value.message
    assert len(refusal.value.message) < 400
    assert refusal.value.hint
    for said in ("nginx main", "combined", "common", "JSON", "--format"):
        assert said in refusal.value.hint


def test_utf_16_is_named() -> None:
    lines = log_line(0).decode().encode("utf-16").split(b"\n")
    with pytest.raises(OperatorError) as refusal:
        start.take_format("x.log", "", lines)
    assert "iconv" in (refusal.value.hint or "")


def test_a_given_format_that_no_line_is_in_is_refused_with_the_one_that_they_are_in() -> None:
    with pytest.raises(OperatorError, match="isn't in the format common") as refusal:
        start.take_format("x.log", "common", [log_line(0)] * 3)
    assert "3 lines fit combined" in (refusal.value.hint or "")
    with pytest.raises(OperatorError, match="0 of its first 1 lines fit"):
        start.take_format("x.log", "common", [b"garbage"])


def test_one_line_says_which_format_was_taken_and_how_well_it_fits() -> None:
    main, host = log_line(0) + b' "-"', b"example.com:80 " + log_line(0)
    described = [
        start.describe(start.take_format("x.log", "", lines))
        for lines in ([main] * 3, [main] * 3 + [host] * 2 + [b"garbage"], [main, b"garbage"])
    ]
    assert described == [
        "format: nginx main (3 of the first 3 lines fit)",
        "format: nginx main (3 of the first 6 lines fit, 2 virtual host and combined, 1 none)",
        "format: nginx main (1 of the first 2 lines fit)",
    ]


def test_a_run_keeps_its_format() -> None:
    begun = Progress("x.log", "", format="nginx main")
    start.require_same_format("", begun)
    start.require_same_format("nginx main", begun)
    start.require_same_format("common", Progress("x.log", ""))  # begun before formats were kept
    with pytest.raises(OperatorError, match="nginx main and can't go on with common"):
        start.require_same_format("common", begun)
    assert Progress.from_json(begun.to_json()) == begun
    assert Progress.from_json(b'{"source": "x.log", "run": "", "lines": 7}').format == ""


class NothingProcessed:
    """The insight API of a cluster whose jobs have seen no event."""

    def progress(self, job: str) -> dict[str, Any]:
        return {}


def begin(
    path: str,
    recorded: Progress | None,
    asked: str = "",
    late: bool = False,
    insights: NothingProcessed | None = None,
) -> tuple[Progress, Lines, Reader]:
    api: Any = insights or NothingProcessed()
    pipeline = Pipeline({}, api, TOPICS, DAY, LIMITS)
    options = ReplayOptions(path, format=asked, late=late)
    return run._begin(options, Source(path), recorded, pipeline, Console())


def test_a_replay_goes_on_in_the_format_it_began_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its next lines alone, its visitors would be others."""
    line = b"198.51.100.9 " + log_line(0) + b"\n"
    path = write(tmp_path, line * 20)
    first, _, read = begin(path, None, "virtual host and combined")
    assert read(line.strip()).address == "10.0.0.0"
    recorded = replace(first, lines=10, offset=10 * len(line))
    again, lines, read = begin(path, Progress.from_json(recorded.to_json()))
    assert again == recorded
    assert {read(line.data).address for line in lines if line} == {"10.0.0.0"}
    assert begin(path, None)[2](line.strip()).address == "198.51.100.9"
    assert [said for said in capsys.readouterr().out.splitlines() if said] == [
        "format: virtual host and combined (20 of the first 20 lines fit)",
        "format: virtual host and combined, as before",
        "format: X-Forwarded-For and combined (20 of the first 20 lines fit)",
    ]


def test_a_replay_that_was_begun_before_formats_were_kept_goes_on_in_combined(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, LOG)
    progress, _, read = begin(path, Progress("x.log", "", lines=1, offset=LOG.index(b"\n") + 1))
    assert (progress.format, read.format.name) == ("combined", "combined")


def test_a_replay_that_is_done_is_done_unless_its_log_has_grown(tmp_path: Path) -> None:
    path = write(tmp_path, LOG)
    done = Progress("x.log", "", lines=40, offset=len(LOG), done=True, format="combined")
    assert begin(path, done)[0].done
    write(tmp_path, LOG + log_line(40) + b"\n")
    assert not begin(path, done)[0].done


def test_a_format_is_judged_before_anything_is_sent() -> None:
    with pytest.raises(OperatorError, match="has no field for a time"):
        ReplayOptions("x.log", format='%h "%r" %>s')


def test_shifted_to_now_the_log_ends_within_this_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_795_000_000.0
    monkeypatch.setattr(start, "time", SimpleNamespace(time=lambda: now))
    path = write(tmp_path, LOG + log_line(0, "20/May/2015:10:05:03 +0000") + b"\n" + LOG)
    hours = start.shift_to_now(path, 1000, parse_line)
    ends = datetime(2015, 5, 20, 10, 5, 3, tzinfo=UTC).timestamp() + hours * 3600
    assert 0 <= now - ends < 3600


def test_shifts() -> None:
    assert [start.parse_shift(text) for text in ("28d", "6h", "-2h")] == [672, 6, -2]
    for text in ("28", "1.5d", "30m", ""):
        with pytest.raises(OperatorError, match="expected whole days or hours"):
            start.parse_shift(text)


def test_a_run_keeps_its_shift() -> None:
    begun = Progress("x.log", "", shift=672)
    start.require_same_shift(None, begun)
    start.require_same_shift(672, begun)
    with pytest.raises(OperatorError, match="shift of 672 h and can't go on with 0 h"):
        start.require_same_shift(0, begun)


def test_what_would_be_dropped_as_late_is_refused_with_the_least_shift_that_is_not() -> None:
    first = int(datetime(2015, 5, 17, 10, tzinfo=UTC).timestamp())
    watermark = datetime(2015, 5, 19, 12, tzinfo=UTC)
    start.require_in_time(first, 0, None)
    start.require_in_time(first, 3 * 24, watermark)
    with pytest.raises(OperatorError, match="everything before 2015-05-19 12:00 UTC") as refusal:
        start.require_in_time(first, 0, watermark)
    assert "--shift 3d" in (refusal.value.hint or "")


class AllIsDone(NothingProcessed):
    """The insight API of a cluster whose jobs are done with the time of every log."""

    def progress(self, job: str) -> dict[str, Any]:
        return {"watermark": datetime(2099, 1, 1, tzinfo=UTC)}


def test_a_log_that_is_late_is_sent_if_that_is_meant(tmp_path: Path) -> None:
    path = write(tmp_path, LOG)
    with pytest.raises(start.TooLate) as refusal:
        begin(path, None, insights=AllIsDone())
    assert "--late sends it to the archive" in (refusal.value.hint or "")
    assert not begin(path, None, late=True, insights=AllIsDone())[0].done


# --- make demo ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ['%h "%{Referer}i" it\'s, %>s', "$remote_addr [$time_local] $(x) \\\\"]
)
def test_make_hands_a_format_on_as_it_is(text: str) -> None:
    command = ["make", "-n", "demo", "INPUT=access.log", f"FORMAT={text}"]
    printed = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout
    line = next(line for line in printed.splitlines() if " demo " in line)
    assert shlex.split(line)[-4:] == ["--input", "access.log", "--format", text]
