"""Jobs in real time: what is refused, what is sent, how they end, and that nothing is lost."""

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from millrace_jobs import check, config, contract, jobs
from millrace_jobs.config import Config
from millrace_jobs.declared import loader
from millrace_jobs.declared.real_time import RealTime, Selection
from millrace_jobs.inputs import sources
from millrace_jobs.kinds import kind_of
from millrace_jobs.leader import supervisor
from millrace_jobs.leader.failures import Attempts
from millrace_jobs.leader.running import RunningJob
from millrace_jobs.quarantine.search import NotIsolatable
from millrace_jobs.query import heartbeat
from millrace_jobs.query.context import JobContext
from millrace_jobs.sinks import positions
from millrace_jobs.standby import ready
from pyspark.errors import ArithmeticException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from millrace.inventory import deployment
from millrace.plan import load_plan
from tests.alerts import JOB, write_down
from tests.jobs.fakes import FakeJob
from tests.jobs.samples import event, settings_of

QUERY = """-- Requests that failed.
SELECT partition, offset,
       url, campaign
FROM events
WHERE status >= 500
"""
FUNCTION = '''"""Requests that failed."""

from pyspark.sql import functions as F


def theirs(events, settings):
    return events.where("status >= 500").select("partition", "offset", "url", "campaign")
'''


@pytest.fixture
def real_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The configuration of the application of the page's job, and of a job `theirs` like it."""
    monkeypatch.setenv("MILLRACE_TRIAL", str(write_down(tmp_path)))
    monkeypatch.setattr(jobs, "__path__", [*jobs.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{jobs.__name__}.theirs", raising=False)

    def sql(job: str) -> str | None:
        """Of a package in a zip, as hosts have it, Python finds files of all folders."""
        file = tmp_path / f"{job}.sql"
        return file.read_text() if file.exists() else None

    monkeypatch.setattr(loader, "sql", sql)
    content = deployment(load_plan("local"), JOB) | {"version": "", "jobs": [JOB, "theirs"]}
    content["settings"] |= {"theirs": content["settings"][JOB]}
    return config.parse(json.loads(json.dumps(content)))


@pytest.fixture
def checked(spark: SparkSession, tmp_path: Path, real_time: Config) -> Callable[[str], Any]:
    """What is said of a job `theirs`."""

    def of(text: str) -> list[str]:
        is_query = text.lstrip().startswith(("--", "SELECT"))
        (tmp_path / f"theirs.{'sql' if is_query else 'py'}").write_text(text)
        return check.check(spark, "theirs", real_time)

    return of


@pytest.mark.parametrize(
    "text", [QUERY, FUNCTION, QUERY.replace("events\n", "(SELECT * FROM events) AS all_of_them\n")]
)
def test_a_job_that_can_be_run(checked: Callable[[str], Any], text: str) -> None:
    assert checked(text)["state"] == "none"


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("SELECT", "SELECT DISTINCT", "Distinct isn't of each event alone; filter and select"),
        ("url, campaign", "count(*) OVER (PARTITION BY url)", "Window isn't of each event alone"),
        ("url, campaign", "explode(array(1, 2))", "Generate isn't of each event alone"),
        (">= 500\n", ">= 500 GROUP BY ALL", "Aggregate isn't"),
        ("FROM events", "FROM events JOIN (SELECT url AS u FROM events) ON u = url", "Join isn't"),
        (
            ">= 500",
            ">= (SELECT max(status) FROM events)",
            "Streaming query is not allowed in subquery",
        ),
        (
            "FROM events",
            "FROM VALUES (0, 1, '/', '', 500) AS e(partition, offset, url, campaign, status)",
            "isn't of each event alone",
        ),
        ("campaign", "current_timestamp() AS now", "current_timestamp() gives something else"),
        ("campaign", "campaign AS job", "columns job are the framework's"),
        ("partition, offset", "partition, 7 AS offset", "lack the events' offset, by which"),
        ("partition, offset,", "", "lack the events' partition and offset, by which readers know"),
        ("campaign", "campaing", "campaing` cannot be resolved"),
    ],
)
def test_a_query_that_cant_be_run(
    checked: Callable[[str], Any], right: str, wrong: str, reason: str
) -> None:
    line = checked(QUERY.replace(right, wrong, 1))
    assert line.startswith("theirs.sql:")
    assert reason in line


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ('"url"', 'F.udf(lambda url: url)("url").alias("url")', "no function in Python"),
        ("events.where", 'events.dropDuplicates(["event_id"]).where', "Deduplicate isn't"),
        ("events.where", "events.union(events).where", "Union isn't"),
    ],
)
def test_a_function_that_cant_be_run(
    checked: Callable[[str], Any], right: str, wrong: str, reason: str
) -> None:
    line = checked(FUNCTION.replace(right, wrong, 1))
    assert line.startswith("theirs.py: ")
    assert reason in line


def test_a_stream_whose_copies_are_left_out_is_refused(
    spark: SparkSession, real_time: Config
) -> None:
    by_id = vars(real_time.streams["events"]) | {"deduplicate_by": "event_id"}
    real_time.streams["events"] = type(real_time.streams["events"])(**by_id)
    line = check.check(spark, JOB, real_time)
    assert line.startswith("alerts.sql: events has one copy of an event, by event_id")


# -- What is sent


def context(spark: SparkSession, settled: Config) -> JobContext:
    return JobContext(JOB, settled, spark, None, None, None)  # type: ignore[arg-type]


def test_each_event_that_is_selected_is_one_record_named_by_its_place(
    spark: SparkSession, real_time: Config, records: Callable[[list[bytes | None]], DataFrame]
) -> None:
    found = records([event(), event(status=503, url="/a"), b"no event", event(status=599), None])
    sent = Selection(context(spark, real_time)).transform(found).collect()
    assert [row.key for row in sent] == ["alerts|events|0|1", "alerts|events|0|3"]
    assert json.loads(sent[0].value) == {
        "key": "alerts|events|0|1",
        "job": "alerts",
        "partition": 0,
        "offset": 1,
        "event_id": "0f9e",
        "event_time": "2015-05-17T10:05:03.000Z",
        "visitor_id": "a1",
        "url": "/a",
        "status": 503,
    }


def test_what_is_absent_is_null_as_in_other_records(
    spark: SparkSession,
    tmp_path: Path,
    real_time: Config,
    records: Callable[[list[bytes | None]], DataFrame],
) -> None:
    (tmp_path / "theirs.py").write_text(FUNCTION)
    own = JobContext("theirs", real_time, spark, None, None, None)  # type: ignore[arg-type]
    [row] = Selection(own).transform(records([event(status=500)])).collect()
    assert json.loads(row.value)["campaign"] is None


def test_its_checkpoint_is_of_no_job_in_batches(real_time: Config) -> None:
    streams = [real_time.streams["events"]]
    kept = contract.contract(JOB, real_time.settings[JOB], streams)
    assert kept == {"checkpoint": JOB, "topic": "events", "trigger": "real-time"}
    assert kind_of(JOB, real_time.settings[JOB].trigger).load() is RealTime


# -- How it lives


class Query:
    """As Spark shows one in real time: its trigger is active for as long as it runs."""

    def __init__(self, error: Exception | None = None) -> None:
        self.isActive = not error
        self.status = {"isTriggerActive": not error}
        self.lastProgress = None
        self.exception = lambda: error

    def stop(self) -> None:
        self.isActive = False


def running(query: Query, **more: Any) -> RunningJob:
    context: Any = SimpleNamespace(job=JOB, settings=settings_of("traffic"))
    job = RealTime(context, positions=SimpleNamespace())  # type: ignore[arg-type]
    one = ready.ReadyJob(context, job, None)  # type: ignore[arg-type]
    follow = SimpleNamespace(follow=lambda: None, silent_seconds=1e9, has_told=False)
    return RunningJob(one, query, follow, threading.Event(), **more)  # type: ignore[arg-type]


def fails_by(cause: Exception | None) -> Query:
    error: Any = RuntimeError("as Spark says it")
    error._cause = cause  # where PySpark keeps it
    return Query(error)


ENABLED: Any = SimpleNamespace(is_disabled=lambda _: False, question=lambda *_: None)
POISON = ArithmeticException("[DIVIDE_BY_ZERO] Division by zero.\nand more")


def test_spark_tells_which_error_ended_a_query(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    divided = rows.selectExpr("1 DIV value AS by_zero")  # the first value
    query = divided.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(60)
    ended = running(query).error  # type: ignore[arg-type]
    assert isinstance(ended, NotIsolatable)
    assert "[DIVIDE_BY_ZERO]" in str(ended)


def test_it_runs_before_its_first_batch_has_ended() -> None:
    assert running(Query()).state == "running"


def test_to_end_it_waits_for_no_batch() -> None:
    one = supervisor.Supervised(running(Query()).ready)
    one.job = job = running(Query())
    supervisor.drain([one])
    assert not job.query.isActive
    disabled: Any = SimpleNamespace(
        is_disabled=lambda _: True, question=lambda *_: None, forget_hand_over=lambda _: None
    )
    assert supervisor.reconcile(running(Query()), disabled).state == "disabled"


def test_it_is_no_batch_that_takes_too_long() -> None:
    job = running(Query())
    assert supervisor.reconcile(job, ENABLED) is job


@pytest.mark.parametrize("cause", [POISON, None])
def test_what_it_fails_by_ends_no_driver_and_is_told(
    monkeypatch: pytest.MonkeyPatch, cause: Exception | None
) -> None:
    monkeypatch.setattr(supervisor, "start", lambda *_: running(fails_by(cause)))
    again = supervisor.reconcile(running(fails_by(cause)), ENABLED)
    tried = supervisor.reconcile(again, ENABLED)
    assert isinstance(tried.error, NotIsolatable if cause else RuntimeError)  # type: ignore[union-attr]
    failed = supervisor.reconcile(replace(tried, attempts=Attempts(in_vain=1)), ENABLED)
    assert failed.state == "failed"
    why = "no record is put aside: [DIVIDE_BY_ZERO]" if cause else "as Spark says it"
    assert why in failed.trouble


# -- How far it is


class Group:
    """A consumer group's coordinator, and what it is told."""

    def __init__(self, ends: dict[int, int | None]) -> None:
        self.ends = ends  # by partition; None where a record is next
        self.committed: dict[str, dict[int, int]] = {}
        self.asked: list[int] = []

    def commit(self, offsets: list[Any], asynchronous: bool) -> None:
        for one in offsets:
            self.committed.setdefault(one.topic, {})[one.partition] = one.offset

    def assign(self, places: list[Any]) -> None:
        self.asked = [place.partition for place in places]

    def unassign(self) -> None:
        self.asked = []

    def poll(self, _: float) -> Any:
        number = self.asked.pop()
        end = self.ends[number]
        error = None if end is None else KafkaError(KafkaError._PARTITION_EOF)
        return SimpleNamespace(
            partition=lambda: number, offset=lambda: end or 0, error=lambda: error
        )


def report(start: dict[str, int] | None, end: dict[str, int], latest: dict[str, int]) -> Any:
    def told(offsets: dict[str, int] | None) -> str:
        return json.dumps(offsets and {"events": offsets})

    return SimpleNamespace(
        sources=[
            SimpleNamespace(startOffset=told(start), endOffset=told(end), latestOffset=told(latest))
        ]
    )


@pytest.mark.parametrize(
    ("start", "end", "latest", "told"),
    [
        (None, {"0": 3, "1": 0}, {"0": 3, "1": 0}, {0: 3, 1: 0}),
        ({"0": 3, "1": 0}, {"0": 5, "1": 0}, {"0": 9, "1": 0}, {0: 5, 1: 0}),
        ({"0": 5, "1": 7}, {"0": 5, "1": 7}, {"0": 6, "1": 8}, {0: 6, 1: 7}),
    ],
    ids=["the first", "more to read", "the end of a transaction, and a record"],
)
def test_it_tells_how_far_it_has_read(
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
    real_time: Config,
    start: dict[str, int] | None,
    end: dict[str, int],
    latest: dict[str, int],
    told: dict[int, int],
) -> None:
    group = Group({0: 6, 1: None})
    monkeypatch.setattr(positions, "Consumer", lambda _: group)
    RealTime(context(spark, real_time)).after_batch(report(start, end, latest))
    assert group.committed == {"events": told}


def test_whoever_follows_a_query_has_each_batch_told() -> None:
    heard: list[int] = []
    own: Any = SimpleNamespace(job=JOB, settings=settings_of("traffic", trigger_seconds=30))
    job = FakeJob(is_endless=True, after_batch=lambda one: heard.append(one.batchId))
    query: Any = SimpleNamespace(id="query", _jsq=None)
    following = heartbeat.Heartbeat(own, query, job, heartbeat.JobRow(), -1)
    took = {"triggerExecution": 30_100}
    following._take_in(
        SimpleNamespace(batchId=4, eventTime={}, durationMs=took, inputRowsPerSecond=1.0)
    )
    assert heard == [4]


def test_it_reads_without_a_bound_and_rehearses_in_batches(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, real_time: Config
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(Selection, "transform", lambda _, records: records)
    monkeypatch.setattr(sources, "endless", lambda *_: asked.append("endless"))
    monkeypatch.setattr(sources, "stream", lambda *where, behind: asked.append(where[-1]))
    own = context(spark, real_time)
    selection = Selection(own)
    selection.frame()
    selection.frame(2000)
    assert asked == ["endless", 2000]
