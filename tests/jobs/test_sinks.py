"""What sinks send: versions in order, whole values, and nothing twice."""

import hashlib
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cassandra import ConsistencyLevel
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.inputs.continuity import CheckpointMismatch
from millrace_jobs.leadership.lease import LeaseLost
from millrace_jobs.query.write_version import write_version
from millrace_jobs.sinks import archive, cassandra, results
from millrace_jobs.sinks.cassandra import PORTION_BYTES, Tables, WriteFailed, portions
from millrace_jobs.sinks.concurrently import concurrently
from millrace_jobs.sinks.dead_letters import HEADERS_BYTES, DeadLetters, letters, summary
from millrace_jobs.sinks.results import Results
from millrace_jobs.transforms import parse
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.jobs.samples import NAMES, STREAM, at, event, settings_of
from tests.waiting import PATIENCE_SECONDS, soon, wait_until

Records = Callable[[list[bytes | None]], DataFrame]


def test_two_writes_wait_for_each_other() -> None:
    """Each ends only after the other has begun, and the block is left once both have."""
    first, second, ended = threading.Event(), threading.Event(), []

    def write() -> None:
        first.set()
        ended.append(second.wait(PATIENCE_SECONDS))

    with concurrently(write):
        second.set()
        assert first.wait(PATIENCE_SECONDS)
    assert ended == [True]


@pytest.mark.parametrize("who", ["write", "block"])
def test_a_batch_fails_with_either_of_its_writes(who: str) -> None:
    done = []

    def attempt(name: str) -> None:
        if name == who:
            raise WriteFailed(name)
        done.append(name)

    with pytest.raises(WriteFailed, match=who), concurrently(lambda: attempt("write")):
        attempt("block")
    assert len(done) == 1


def test_a_later_epoch_wins_over_any_batch_of_an_earlier_one() -> None:
    versions = [
        write_version(1, 0),
        write_version(1, 1),
        write_version(1, 2**31),
        write_version(2, 0),
        write_version(2**31 - 1, 0),
    ]
    assert versions == sorted(versions)
    assert versions[-1] < 2**63


@pytest.mark.parametrize("batch", [-1, 2**32])
def test_a_batch_that_would_change_the_epoch_is_refused(batch: int) -> None:
    with pytest.raises(ValueError, match="doesn't fit"):
        write_version(1, batch)


class FakeSession:
    """Cassandra's session: keeps what is written, and fails where a test says so."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, tuple[Any, ...]]] = []
        self.portions: list[list[tuple[Any, ...]]] = []
        self.failures = 0

    def prepare(self, query: str) -> SimpleNamespace:
        return SimpleNamespace(query=query)

    def execute_async(self, batch: tuple[Any, list[tuple[Any, ...]]]) -> Future[None]:
        statement, rows = batch
        future: Future[None] = Future()
        if self.failures:
            self.failures -= 1
            future.set_exception(TimeoutError("no quorum"))
        else:
            self.writes += [(statement.query, row) for row in rows]
            self.portions.append(rows)
            future.set_result(None)
        return future


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    session = FakeSession()
    monkeypatch.setattr(cassandra, "_batch", lambda statement, rows: (statement, rows))
    monkeypatch.setattr(cassandra, "connect", lambda _: SimpleNamespace(connect=lambda: session))
    return session


def test_upserts_carry_the_version_as_write_timestamp(session: FakeSession) -> None:
    Tables(CONFIG).upsert("pages", ("bucket", "url"), [(1, "/a")], write_version(7, 3))
    [(query, row)] = session.writes
    assert query == "INSERT INTO millrace.pages (bucket, url) VALUES (?, ?) USING TIMESTAMP ?"
    assert row == (1, "/a", write_version(7, 3))


def test_only_rows_that_failed_are_written_again(
    session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace_jobs.retries.FIRST_PAUSE_SECONDS", 0.001)
    session.failures = 2
    Tables(CONFIG).upsert("pages", ("url",), [("/a",), ("/b",), ("/c",)], 1)
    assert [row[0] for _, row in session.writes] == ["/c", "/a", "/b"]


def test_a_store_that_stays_away_fails_the_batch(
    session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cassandra, "GIVE_UP_SECONDS", 0.0)
    session.failures = 10**6
    with pytest.raises(WriteFailed, match="1 rows of pages: no quorum"):
        Tables(CONFIG).upsert("pages", ("url",), [("/a",)], 1)


@pytest.mark.parametrize("answers", [True, False])
def test_a_conditional_write_is_run_once_and_then_looked_at(
    session: FakeSession, answers: bool
) -> None:
    """Run twice, the second would find the first one's change. Whether one that got no answer took
    place is told by a look that ends it."""
    run: list[Any] = []

    def execute(statement: Any, values: Any) -> Any:
        run.append((statement, values))
        if statement.query.startswith("UPDATE") and not answers:
            raise TimeoutError("nobody knows")
        return SimpleNamespace(one=lambda: "as it is now")

    session.execute = execute  # type: ignore[attr-defined]
    tables = Tables(CONFIG)
    found = tables.settle(
        "UPDATE {keyspace}.a SET b = ? IF c = ?", [1, 2], "SELECT {keyspace}", [3]
    )
    assert found == "as it is now"
    (change, changed), (look, key) = run
    assert (change.query, changed) == ("UPDATE millrace.a SET b = ? IF c = ?", [1, 2])
    assert not change.is_idempotent  # else the driver would send it to a second node
    assert (look.query, look.consistency_level, key) == (
        "SELECT millrace",
        ConsistencyLevel.SERIAL,
        [3],
    )


def test_rows_of_a_partition_are_one_mutation(session: FakeSession) -> None:
    rows = [("1m", 1, 10), ("1h", 1, 20), ("1m", 2, 30), ("1m", 1, 40)]
    Tables(CONFIG).upsert("traffic", ("w", "b", "s"), rows, 7, partition_columns=2)
    assert session.portions == [
        [("1h", 1, 20, 7)],
        [("1m", 1, 10, 7), ("1m", 1, 40, 7)],
        [("1m", 2, 30, 7)],
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 40_000).map(lambda n: b"x" * n)), max_size=30
    )
)
def test_portions_keep_every_row_and_stay_small(rows: list[tuple[Any, ...]]) -> None:
    found = list(portions(rows, 1))
    assert sorted(row for portion in found for row in portion) == sorted(rows)
    for portion in found:
        assert len({row[0] for row in portion}) == 1
        assert len(portion) == 1 or sum(len(row[1]) for row in portion) <= PORTION_BYTES


class FakeKafka:
    """Producer and consumer group in one; ``committed`` is what readers see."""

    def __init__(self) -> None:
        self.committed: list[tuple[str, Any]] = []
        self.positions: list[TopicPartition] = []
        self.errors: list[KafkaError] = []  # of commits
        self.errors_after_commit: list[KafkaError] = []
        self.unaborted: list[KafkaError] = []
        self.errors_of_joining: list[KafkaError] = []
        self.producers = 0
        self.joined = 0
        self._open: list[tuple[str, Any]] = []

    def producer(self) -> SimpleNamespace:
        self.producers += 1
        joined = self.joined
        return SimpleNamespace(
            init_transactions=lambda *_: self._join(joined),
            begin_transaction=self._open.clear,
            produce=lambda topic, value, key: self._open.append((key, json.loads(value))),
            send_offsets_to_transaction=lambda positions, *_: setattr(self, "_sent", positions),
            commit_transaction=self._commit,
            abort_transaction=self._abort,
        )

    def consumer(self) -> SimpleNamespace:
        return SimpleNamespace(
            committed=lambda partitions, *_: self.positions or partitions,
            consumer_group_metadata=lambda: "group",
        )

    def _join(self, joined_before: int) -> None:
        if self.joined > joined_before:  # librdkafka's: "not valid in state Ready"
            raise KafkaException(KafkaError(KafkaError._STATE))
        if self.errors_of_joining:
            raise KafkaException(self.errors_of_joining.pop(0))
        self.joined += 1
        self._open.clear()

    def _abort(self, *_: Any) -> None:
        if self.unaborted:
            raise KafkaException(self.unaborted.pop(0))
        self._open.clear()

    def _commit(self, *_: Any) -> None:
        if self.errors:
            raise KafkaException(self.errors.pop(0))
        self.committed += self._open
        self.positions = self._sent
        if self.errors_after_commit:
            raise KafkaException(self.errors_after_commit.pop(0))


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    fake = FakeKafka()
    monkeypatch.setattr(results, "Producer", lambda _: fake.producer())
    monkeypatch.setattr(results, "Consumer", lambda _: fake.consumer())
    monkeypatch.setattr("millrace_jobs.retries.FIRST_PAUSE_SECONDS", 0.001)
    return fake


CONFIG: Any = SimpleNamespace(names=NAMES)
READ_FURTHER = {"events": {"0": 41, "1": 50}}
READ = {"events": {"0": 40, "1": 50}}
SETTINGS = settings_of("traffic", kafka_reconnect_ms=500)


def led(verify: Callable[[], None] = lambda: None) -> Results:
    """Of a driver that has begun to lead."""
    fresh = Results("brokers", NAMES.kafka, "traffic", SETTINGS, verify)
    fresh.take_over()
    return fresh


def test_clients_of_a_dead_coordinator_soon_ask_for_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(results, "Producer", made.append)
    monkeypatch.setattr(results, "Consumer", made.append)
    one = Results("brokers", NAMES.kafka, "traffic", SETTINGS, lambda: None)
    assert made == []  # until they are used
    assert (one._producer, one._group) == (None, None)
    assert [settings["reconnect.backoff.max.ms"] for settings in made] == [500, 500]


def test_nothing_is_published_before_the_predecessor_is_fenced(kafka: FakeKafka) -> None:
    with pytest.raises(RuntimeError, match="before they were taken over"):
        Results("brokers", NAMES.kafka, "traffic", SETTINGS, lambda: None).publish(
            "query", 4, READ, [{"key": "a"}]
        )
    assert kafka.committed == []


def test_a_batch_that_ran_again_after_a_crash_is_not_sent_twice(kafka: FakeKafka) -> None:
    led().publish("query", 4, READ, [{"key": "a"}])
    successor = led()
    successor.publish("query", 4, READ, [{"key": "a"}])
    successor.publish("query", 5, READ, [{"key": "b"}])
    assert [key for key, _ in kafka.committed] == ["a", "b"]


def test_a_batch_of_an_older_copy_is_refused_however_often_it_is_asked(kafka: FakeKafka) -> None:
    led().publish("query", 4, READ, [{"key": "a"}])
    successor = led()
    for _ in range(2):
        with pytest.raises(CheckpointMismatch, match="other offsets"):
            successor.check("query", 4, READ_FURTHER)
    assert successor.check("query", 4, READ) == 4
    assert [key for key, _ in kafka.committed] == ["a"]


def test_a_new_checkpoint_counts_its_batches_from_zero(kafka: FakeKafka) -> None:
    led().publish("old", 400, READ, [{"key": "a"}])
    led().publish("new", 0, READ, [{"key": "a"}])
    assert len(kafka.committed) == 2


def test_what_is_of_no_batch_is_sent_beside_them_and_moves_no_position(kafka: FakeKafka) -> None:
    publisher = led()
    publisher.publish("query", 4, READ, [{"key": "a"}])
    publisher.publish_beside([{"key": "b"}])
    publisher.publish("query", 4, READ, [{"key": "a"}])
    publisher.publish("query", 5, READ, [{"key": "c"}])
    assert [key for key, _ in kafka.committed] == ["a", "b", "c"]


class Told:
    """A lock that knows how often it was asked for."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.asked = 0

    def __enter__(self) -> None:
        self.asked += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_transaction_waits_until_another_one_is_over(kafka: FakeKafka) -> None:
    publisher = led()
    publisher.check("query", 4, READ)
    publisher._producing = Told(publisher._producing)  # type: ignore[assignment]
    with publisher._producing:
        beside = threading.Thread(target=publisher.publish_beside, args=([{"key": "b"}],))
        beside.start()
        soon(lambda: publisher._producing.asked == 2, "it waits for its turn")
        assert kafka.committed == []
        publisher.publish("query", 4, READ, [{"key": "a"}])
    beside.join(PATIENCE_SECONDS)
    assert [key for key, _ in kafka.committed] == ["a", "b"]


def test_what_is_of_no_batch_needs_a_driver_that_leads(kafka: FakeKafka) -> None:
    with pytest.raises(RuntimeError, match="before they were taken over"):
        Results("brokers", NAMES.kafka, "traffic", SETTINGS, lambda: None).publish_beside([])


def test_offsets_show_how_far_the_job_has_read(kafka: FakeKafka) -> None:
    led().publish("query", 4, READ, [])
    assert {(p.topic, p.partition, p.offset) for p in kafka.positions} == {
        ("events", 0, 40),
        ("events", 1, 50),
    }


def test_an_aborted_transaction_is_tried_again_as_a_whole(kafka: FakeKafka) -> None:
    kafka.errors = [KafkaError(KafkaError._TIMED_OUT, "broker away", txn_requires_abort=True)]
    led().publish("query", 4, READ, [{"key": "a"}, {"key": "b"}])
    assert [key for key, _ in kafka.committed] == ["a", "b"]


def test_a_commit_whose_outcome_is_unknown_is_asked_for_again(kafka: FakeKafka) -> None:
    kafka.errors = [KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True)]
    led().publish("query", 4, READ, [{"key": "a"}])
    assert [key for key, _ in kafka.committed] == ["a"]


OUT_OF_ORDER = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "desync", fatal=True)
ABORTABLE = KafkaError(KafkaError._TIMED_OUT, "broker away", txn_requires_abort=True)


def test_a_producer_that_is_beyond_repair_is_replaced(kafka: FakeKafka) -> None:
    kafka.errors = [OUT_OF_ORDER]
    led().publish("query", 4, READ, [{"key": "a"}])
    assert [key for key, _ in kafka.committed] == ["a"]
    assert kafka.producers == 2


def test_a_producer_that_cannot_abort_is_replaced(kafka: FakeKafka) -> None:
    kafka.errors = [ABORTABLE]
    kafka.unaborted = [KafkaError(KafkaError._TIMED_OUT, "still away", retriable=True)]
    led().publish("query", 4, READ, [{"key": "a"}])
    assert [key for key, _ in kafka.committed] == ["a"]
    assert kafka.producers == 2


def test_what_a_replaced_producer_did_commit_is_not_sent_again(kafka: FakeKafka) -> None:
    publisher = led()
    kafka.errors_after_commit = [OUT_OF_ORDER]
    publisher.publish("query", 4, READ, [{"key": "a"}])
    publisher.publish("query", 5, READ, [{"key": "b"}])
    assert [key for key, _ in kafka.committed] == ["a", "b"]


def test_a_producer_is_replaced_only_while_its_driver_leads(kafka: FakeKafka) -> None:
    """Its joining would fence the driver that leads now."""
    answers = iter([True, False])

    def verify() -> None:
        if not next(answers):
            raise LeaseLost

    kafka.errors = [OUT_OF_ORDER]
    with pytest.raises(LeaseLost):
        led(verify).publish("query", 4, READ, [{"key": "a"}])
    assert kafka.joined == 1


FENCED = KafkaError(KafkaError._FENCED, "fenced", fatal=True)


@pytest.mark.parametrize("when", ["commits", "aborts"])
@pytest.mark.parametrize("leads", [True, False])
def test_a_fenced_producer_is_replaced_if_its_driver_leads(
    kafka: FakeKafka, when: str, leads: bool
) -> None:
    """By an expired transaction, or by a driver that woke up; else the next leader did it."""
    answers = iter([True, leads])

    def verify() -> None:
        if not next(answers):
            raise LeaseLost

    kafka.errors = [FENCED if when == "commits" else ABORTABLE]
    kafka.unaborted = [FENCED]
    with nullcontext() if leads else pytest.raises(LeaseLost):
        led(verify).publish("query", 4, READ, [{"key": "a"}])
    assert [key for key, _ in kafka.committed] == (["a"] if leads else [])
    assert kafka.joined == (2 if leads else 1)


def test_who_no_longer_leads_fences_nobody(kafka: FakeKafka) -> None:
    def another_leads() -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        led(another_leads).publish("query", 4, READ, [{"key": "a"}])
    assert (kafka.joined, kafka.committed) == (0, [])


def test_a_query_that_begins_anew_joins_with_another_producer(kafka: FakeKafka) -> None:
    sink = led()
    sink.publish("query", 4, READ, [{"key": "a"}])
    sink.take_over()
    sink.publish("query", 4, READ, [{"key": "a"}])  # that batch was why it began anew
    sink.publish("query", 5, READ_FURTHER, [{"key": "b"}])
    assert [key for key, _ in kafka.committed] == ["a", "b"]
    assert (kafka.producers, kafka.joined) == (2, 2)


def test_a_producer_that_is_fenced_while_it_joins_joins_again(kafka: FakeKafka) -> None:
    kafka.errors_of_joining = [FENCED]
    led().publish("query", 4, READ, [{"key": "a"}])
    assert ([key for key, _ in kafka.committed], kafka.producers) == (["a"], 2)


OLD_AFTER = 200_000  # hours: no event of these is old


def test_delta_takes_a_batch_once(spark: SparkSession, records: Records, tmp_path: Path) -> None:
    table = str(tmp_path / "events")
    events = parse.valid(
        records(
            [event(), event(event_time="2015-05-17T23:59:59.999Z"), event(status="bad")]
        ).transform(parse.classify, STREAM),
        STREAM,
    )
    for batch, checkpoint in [(0, "a"), (0, "a"), (1, "a"), (0, "a"), (0, "b")]:
        archive.append(events, "event_time", table, f"archive {checkpoint}", batch, 2, 2, OLD_AFTER)
    stored = spark.read.format("delta").load(table)
    assert stored.count() == 3 * 2  # batches 0 and 1 of one checkpoint, batch 0 of another
    hours = {(str(row.event_date), row.event_hour) for row in stored.collect()}
    assert hours == {("2015-05-17", 10), ("2015-05-17", 23)}


def test_a_batch_that_a_zombie_adds_meanwhile_is_taken_once(
    spark: SparkSession, records: Records, tmp_path: Path
) -> None:
    """A driver that was frozen in its commit, and its successor that runs the batch again."""
    table = str(tmp_path / "events")
    events = parse.valid(records([event(), event()]).transform(parse.classify, STREAM), STREAM)
    archive.append(events, "event_time", table, "archive a", 0, 2, 2, OLD_AFTER)
    begun, release = tmp_path / "begun", tmp_path / "release"

    @F.udf("string")
    def slow(text: str) -> str:
        begun.touch()
        while not release.exists():
            time.sleep(0.05)
        return text

    with ThreadPoolExecutor(1) as pool:
        held = events.coalesce(1).withColumn("url", slow("url"))  # the zombie needs a core, too
        successor = pool.submit(
            archive.append, held, "event_time", table, "archive a", 1, 2, 2, OLD_AFTER
        )
        wait_until(begun.exists, 60, "the successor writes")
        assert archive.append(
            events, "event_time", table, "archive a", 1, 2, 2, OLD_AFTER
        )  # the zombie is first
        release.touch()
        assert not successor.result(60)
    assert spark.read.format("delta").load(table).count() == 2 * 2


def test_an_archive_tells_its_newest_batch(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "archive")
    assert archive.last_batch(spark, table, "archive a") == -1
    fields = "event_time timestamp, partition int, offset bigint, timestamp timestamp"
    moment = at("2026-01-01")
    events = spark.createDataFrame([(moment, 0, 7, moment)], fields)
    for batch in (3, 4):
        archive.append(events, "event_time", table, "archive a", batch, 1, 1, OLD_AFTER)
        assert archive.last_batch(spark, table, "archive a") == batch
    assert archive.last_batch(spark, table, "archive b") == -1


def test_dead_letters_hold_the_bytes_and_tell_the_place(records: Records) -> None:
    garbage = b"\xff" + "ü".encode() * 5000
    malformed = parse.malformed(records([garbage]).transform(parse.classify, STREAM), STREAM)
    letter = letters(malformed).first()
    assert letter is not None
    assert bytes(letter.value) == garbage
    assert letter.key == "events-0-0"
    headers = {header.key: bytes(header.value).decode() for header in letter.headers}
    assert headers == {
        "size": str(len(garbage)),
        "sha256": hashlib.sha256(garbage).hexdigest(),
        "reason": "not UTF-8",
        "topic": "events",
        "partition": "0",
        "offset": "0",
        "timestamp": "2026-01-01T00:00:00.000Z",
    }


def test_a_letter_has_the_head_of_a_large_value_its_size_and_its_hash(records: Records) -> None:
    bomb = b"a" * 30_000_000
    classified = records([bomb]).transform(parse.classify, STREAM)
    letter = letters(parse.malformed(classified, STREAM)).first()
    assert letter is not None
    assert bytes(letter.value) == bomb[: STREAM.record_bytes]
    headers = {header.key: bytes(header.value).decode() for header in letter.headers}
    assert headers["size"] == "30000000"
    assert headers["sha256"] == hashlib.sha256(bomb).hexdigest()
    assert headers["reason"] == f"larger than {STREAM.record_bytes} bytes"


@pytest.mark.parametrize(("size", "kept"), [(100, True), (HEADERS_BYTES + 1, False)])
def test_a_letter_has_the_original_headers_unless_they_are_large(
    records: Records, size: int, kept: bool
) -> None:
    headers = f"array(struct('mine' AS key, cast(repeat('x', {size}) AS binary) AS value))"
    garbage = records([b"garbage"]).withColumn("headers", F.expr(headers))
    classified = garbage.transform(parse.classify, STREAM)
    letter = letters(parse.malformed(classified, STREAM)).first()
    assert letter is not None
    assert ("mine" in {header.key for header in letter.headers}) == kept


def test_samples_are_short_and_readable(records: Records) -> None:
    values = [b"\xff\xfe" + b"x" * 1_000_000, None, "ü".encode() * 300]
    malformed = parse.malformed(records(values).transform(parse.classify, STREAM), STREAM)
    samples = {s.id: s for row in summary(malformed, 10).collect() for s in row.samples}
    assert samples["events-0-0"].preview == "\ufffd\ufffd" + "x" * 198
    assert samples["events-0-0"].size == 1_000_002
    assert (samples["events-0-1"].size, samples["events-0-1"].preview) == (0, None)
    assert samples["events-0-2"].preview == "ü" * 200
    assert samples["events-0-2"].kafka_timestamp == at("2026-01-01")


def test_all_dead_letters_are_counted_and_few_come_to_the_driver(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: dict[str, list[Any]] = {}

    class Kept:
        def upsert(self, table: str, columns: Any, rows: list[Any], timestamp: int) -> None:
            assert timestamp == write_version(7, 3)
            written[table] = [dict(zip(columns, row, strict=True)) for row in rows]

    settings = settings_of("archive", dead_letter_samples=2)
    garbage: list[bytes | None] = [b"garbage"] * 500 + [b"[]"] * 3
    malformed = parse.malformed(
        records(garbage).repartition(3).transform(parse.classify, STREAM), STREAM
    )
    monkeypatch.setattr(type(malformed), "write", FakeWriter())
    sink = DeadLetters("", "dead-letter", Kept(), settings)  # type: ignore[arg-type]
    sink.write(malformed, "query", 3, write_version(7, 3))
    counts = {row["reason"]: row["records"] for row in written["dead_letter_counts"]}
    assert counts == {"not JSON": 500, "not a JSON object": 3}
    [key] = {(r["minute"], r["checkpoint"], r['"batch"']) for r in written["dead_letter_counts"]}
    assert key == (at("2026-01-01"), "query", 3)
    assert written["dead_letter_batches"] == [{"checkpoint": "query", '"batch"': 3, "records": 503}]
    # The first of each by their place, so that a batch that runs again keeps the same.
    assert sorted((row["reason"], row["id"]) for row in written["dead_letters"]) == [
        ("not JSON", "events-0-0"),
        ("not JSON", "events-0-1"),
        ("not a JSON object", "events-0-500"),
        ("not a JSON object", "events-0-501"),
    ]


class FakeWriter:
    """A frame's ``write`` whose records go nowhere: Kafka's part has a test of its own."""

    def format(self, _: str) -> "FakeWriter":
        return self

    def options(self, **_: Any) -> "FakeWriter":
        return self

    def save(self) -> None: ...
