"""How jobs begin, go on, are refused, start again and are drained."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.inputs.continuity import CheckpointMismatch, Known
from millrace_jobs.leader import supervisor
from millrace_jobs.quarantine.search import NotIsolatable, Quarantined
from millrace_jobs.query.context import JobContext
from millrace_jobs.query.heartbeat import JobRow
from millrace_jobs.query.write_version import write_version
from millrace_jobs.standby.ready import ReadyJob
from pyspark.sql import DataFrame, SparkSession

from tests.jobs.fakes import FakeJob, FakeTables
from tests.jobs.samples import settings_of
from tests.waiting import PATIENCE_SECONDS, pause


def test_draining_lets_the_batch_end_and_begins_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    began, finished = threading.Event(), []

    def slow(_: DataFrame, batch: int) -> None:
        began.set()
        draining.wait(PATIENCE_SECONDS)
        pause(1, "who doesn't wait for the batch is done before it is")
        finished.append(batch)

    draining = threading.Event()
    lease: Any = SimpleNamespace(confirm=lambda: None)
    query = (
        spark.readStream.format("rate")
        .load()
        .writeStream.foreachBatch(supervisor.while_leading(slow, lease, draining, []))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    assert began.wait(PATIENCE_SECONDS)
    ready: Any = SimpleNamespace(job=FakeJob())
    one: Any = supervisor.RunningJob(ready, query, None, draining)  # type: ignore[arg-type]
    supervisor.drain([one])
    assert not query.isActive
    assert finished == [0]
    assert "0" in {path.name for path in (tmp_path / "offsets").iterdir()}


class Results:
    """A query that each look finds one report further; None is no report yet."""

    def __init__(self, *reports: tuple[int, int] | None) -> None:
        self.looks = 0
        self.isActive = True
        self._reports = reports

    @property
    def lastProgress(self) -> Any:
        report = self._reports[self.looks]
        self.looks += 1
        return report and SimpleNamespace(batchId=report[0], numInputRows=report[1])


@pytest.mark.parametrize(
    ("reports", "looks"),
    [
        ([None, (7, 100), (7, 100), (8, 900), (9, 200), (10, 200)], 5),
        ([None, (7, 100), (8, 0), (9, 200)], 3),  # there is no more
        ([(7, 0), (8, 100)], 1),
    ],
)
def test_other_jobs_begin_when_results_have_caught_up(
    monkeypatch: pytest.MonkeyPatch, reports: list[tuple[int, int] | None], looks: int
) -> None:
    monkeypatch.setattr(supervisor, "DRAIN_POLL_SECONDS", 0)
    query: Any = Results(*reports)
    supervisor.await_results(query)
    assert query.looks == looks


def test_other_jobs_wait_for_results_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0, 19, 21])
    slept: list[float] = []
    monkeypatch.setattr(
        supervisor, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=slept.append)
    )
    query: Any = Results(None, None, None)
    supervisor.await_results(query)
    assert len(slept) == 1


def prepared(name: str) -> Any:
    return ReadyJob(SimpleNamespace(job=name), FakeJob(), None)  # type: ignore[arg-type]


def running(name: str, *errors: Exception | None, batches: int = 0, **more: Any) -> Any:
    """A job whose query says one of the ``errors`` after the other, and ended some ``batches``."""
    left = iter(errors)
    query = SimpleNamespace(
        exception=lambda: next(left, None),
        lastProgress=object() if batches else None,
        isActive=True,
        status={"isTriggerActive": False},
    )
    query.stop = lambda: setattr(query, "isActive", False)
    follow: Any = SimpleNamespace(follow=lambda: None, has_begun=batches > 0)
    return supervisor.RunningJob(prepared(name), query, follow, threading.Event(), **more)


class Isolating(FakeJob):
    isolating_for = "batch 7: ValueError"  # type: ignore[assignment]


def test_a_job_that_looks_for_records_says_what_it_failed_by() -> None:
    sound = running("sessions", trouble="an older one")
    job: Any = Isolating()
    searching = replace(sound, ready=replace(sound.ready, job=job))
    assert supervisor.trouble_of(searching) == "batch 7: ValueError"
    assert supervisor.trouble_of(sound) == "an older one"
    assert supervisor.trouble_of(running("traffic")) == ""


Orders = Callable[[str], bool | None]


def supervised(
    monkeypatch: pytest.MonkeyPatch,
    jobs: list[Any],
    *successors: Any,
    orders: Iterable[Orders] = (lambda job: False,) * 5,
    told: list[dict[str, str]] | None = None,
    rehearse: Callable[[list[ReadyJob]], None] = lambda jobs: None,
) -> list[str]:
    """The jobs that were started until the driver was told to stop, after a look for each order:
    which jobs are disabled."""
    started: list[str] = []
    left = iter(successors)
    looks = iter(orders)
    driver: Any = SimpleNamespace(
        lease=SimpleNamespace(is_lost=False),
        announce_jobs=lambda states, _: told is not None and told.append(states),
        question=lambda *_: None,
    )

    def is_stop_desired(_: str) -> bool:
        driver.is_disabled = next(looks, None)
        return driver.is_disabled is None

    def start(ready: Any, _: Any) -> Any:
        started.append(ready.name)
        successor = next(left)
        if isinstance(successor, Exception):
            raise successor
        return successor

    monkeypatch.setattr(supervisor, "start", start)
    monkeypatch.setattr(supervisor, "await_results", lambda query: started.append("first batch"))
    monkeypatch.setattr(supervisor, "POLL_SECONDS", 0)
    driver.is_stop_desired = is_stop_desired
    questions = SimpleNamespace(look=lambda: None)
    supervisor.supervise(jobs, driver, "v1", questions, SimpleNamespace(look=rehearse))
    return started


def only(*disabled: str) -> Orders:
    return lambda job: job in disabled


def silent(_: str) -> None:
    """ZooKeeper doesn't say."""


def test_jobs_start_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [prepared("traffic"), prepared("archive")]
    started = supervised(monkeypatch, jobs, running("traffic"), running("archive"))
    assert started == ["traffic", "first batch", "archive"]


def test_who_is_new_rehearses_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[list[str]] = []
    jobs = [running("traffic", batches=1), running("archive", batches=1)]
    supervised(
        monkeypatch,
        jobs,
        orders=[only(), only("archive")],
        rehearse=lambda ready: looks.append([job.name for job in ready]),
    )
    assert looks == [["traffic", "archive"], ["traffic"]]


@pytest.mark.parametrize("name", ["traffic", "archive"])
def test_a_disabled_job_ends_and_an_enabled_one_goes_on(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    told: list[dict[str, str]] = []
    jobs = [running("traffic", batches=1), running("archive", batches=1)]
    others = [job for job in jobs if job.name != name]
    [query] = [job.query for job in jobs if job.name == name]
    orders = [only(), only(name), only(name), only(), only()]
    started = supervised(monkeypatch, jobs, running(name, batches=1), orders=orders, told=told)
    assert [word for word in started if word != "first batch"] == [name]
    assert not query.isActive
    assert all(job in jobs and job.query.isActive for job in others)
    assert [states[name] for states in told] == [
        "running",
        "disabled",
        "disabled",
        "running",
        "running",
    ]
    assert {states[other.name] for states in told for other in others} == {"running"}


def test_a_batch_of_a_disabled_job_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, str]] = []
    job = running("traffic", batches=1)
    job.query.status = {"isTriggerActive": True}

    def ended(_: str) -> bool:
        job.query.isActive = False  # instead of beginning another batch
        return False  # and is enabled again meanwhile

    orders = [only("traffic"), only(), ended, only()]
    started = supervised(
        monkeypatch, [job], running("traffic", batches=1), orders=orders, told=told
    )
    assert started == ["traffic", "first batch"]
    assert [states["traffic"] for states in told] == ["draining", "draining", "disabled", "running"]


def test_what_ends_a_disabled_job_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    drained = running("traffic", *[supervisor.Drained()] * 5)
    drained.query.isActive = False
    assert supervised(monkeypatch, [drained], orders=[only("traffic")] * 3) == []


def test_a_driver_that_takes_over_starts_no_disabled_job(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [prepared("traffic"), prepared("archive")]
    started = supervised(monkeypatch, jobs, running("archive"), orders=[only("traffic")] * 3)
    assert started == ["archive"]


def test_with_all_jobs_disabled_it_still_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, str]] = []
    assert supervised(monkeypatch, [prepared("a")], orders=[only("a")] * 3, told=told) == []
    assert told == [{"a": "disabled"}] * 3


def test_while_zookeeper_is_silent_nothing_starts_or_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    job = running("archive")
    jobs = [prepared("traffic"), job]
    assert supervised(monkeypatch, jobs, orders=[silent] * 3) == []
    assert job.query.isActive


def test_without_the_first_job_the_others_fail_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [prepared("traffic"), running("archive", RuntimeError())]
    orders = [only("traffic")] * 3
    assert supervised(monkeypatch, jobs, running("archive"), orders=orders) == ["archive"]


def test_a_failed_archive_is_started_again_and_results_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [running("traffic"), running("archive", RuntimeError("offsets/5\nits plan"))]
    traffic = jobs[0]
    assert supervised(monkeypatch, jobs, running("archive")) == ["archive"]
    assert jobs[0] is traffic
    assert jobs[1].is_second_try


def test_an_archive_that_ended_a_batch_since_may_fail_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once = running("archive", None, RuntimeError(), batches=1)
    jobs = [running("traffic"), running("archive", RuntimeError())]
    assert supervised(monkeypatch, jobs, once, running("archive")) == ["archive", "archive"]


def test_an_archive_that_fails_again_at_once_ends_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [running("traffic"), running("archive", RuntimeError("once"))]
    with pytest.raises(RuntimeError, match="twice"):
        supervised(monkeypatch, jobs, running("archive", RuntimeError("twice")))


def test_a_failed_traffic_job_is_left_to_the_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="traffic"):
        supervised(monkeypatch, [running("traffic", RuntimeError("traffic")), running("archive")])


@pytest.mark.parametrize("written", [90, 0])
def test_a_run_takes_an_epoch_above_what_was_written_and_claims_it_first(
    monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    tables = FakeTables(SimpleNamespace(epoch=written, checkpoint=None) if written else None)
    context = JobContext("traffic", *[None] * 2, tables, None, None)  # type: ignore[arg-type]
    asked: list[int] = []

    class Started(Exception):
        """Far enough."""

    def lead() -> None:
        raise Started

    def take_epoch(_: str, above: int) -> int:
        asked.append(above)
        return above + 1

    monkeypatch.setattr(supervisor, "contract", lambda *_: {})
    monkeypatch.setattr(JobContext, "settings", settings_of("traffic"))
    monkeypatch.setattr(JobContext, "streams", [SimpleNamespace(topic="events")])
    driver: Any = SimpleNamespace(
        take_epoch=take_epoch, put_contract=lambda *_: None, kept_checkpoint=lambda _: "traffic"
    )
    with pytest.raises(Started):
        supervisor.start(ReadyJob(context, FakeJob(on_lead=lead), None), driver)  # type: ignore[arg-type]
    assert asked == [written]
    assert tables.rows == [{"job": "traffic", "epoch": written + 1}]
    assert tables.timestamps == [write_version(written + 1, 0)]


ROW = SimpleNamespace(
    epoch=90, checkpoint="query", batch=7, watermark=None, max_event_time=datetime(2026, 1, 1)
)


def test_a_job_s_row_is_read_once_before_its_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def select_one(query: str, _: Any) -> Any:
        asked.append(query)
        return ROW

    context: Any = SimpleNamespace(job="traffic", streams=[], lease=None)
    context.tables = SimpleNamespace(
        select_one=select_one, select=lambda *_: [], upsert=lambda *_: None
    )
    context.version = lambda batch: batch
    context.settings = settings_of("traffic")
    context.checkpoint = SimpleNamespace(
        location="",
        query_id=lambda: "query",
        newest=lambda: 8,
        last_committed=lambda: 8,
    )
    context.spark = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    writer = SimpleNamespace()
    writer.queryName = writer.outputMode = lambda _: writer
    writer.option = lambda *_: writer
    query: Any = SimpleNamespace(id="query", _jsq=None)
    monkeypatch.setattr(supervisor, "contract", lambda *_: {})
    taken: list[int] = []
    driver: Any = SimpleNamespace(
        take_epoch=lambda _, above: taken.append(above) or above + 1,  # type: ignore[func-returns-value]
        put_contract=lambda *_: None,
        kept_checkpoint=lambda _: "traffic",
    )
    frame: Any = SimpleNamespace(writeStream=writer)
    before: list[int] = []

    def start(*_: Any) -> Any:
        before.append(len(asked))
        return query

    job = FakeJob(start=start)
    started = supervisor.start(ReadyJob(context, job, frame), driver)
    assert before == [1]
    assert taken == [90]
    assert started.progress._batch == 7  # of the same query: it goes on from there
    assert started.progress._max_event_time == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("kept", ["traffic", None])
def test_a_checkpoint_that_vanished_is_refused_before_anything_is_fenced(
    monkeypatch: pytest.MonkeyPatch, kept: str | None
) -> None:
    tables = FakeTables(ROW)
    gone = SimpleNamespace(query_id=lambda: None, newest=lambda: -1, location="hdfs://x")
    context = JobContext("traffic", *[None] * 2, tables, gone, None)  # type: ignore[arg-type]
    monkeypatch.setattr(JobContext, "settings", settings_of("traffic"))
    driver: Any = SimpleNamespace(kept_checkpoint=lambda _: kept)
    with pytest.raises(CheckpointMismatch, match="is gone"):
        supervisor.start(ReadyJob(context, None, None), driver)  # type: ignore[arg-type]
    assert tables.rows == []


def test_another_folder_is_a_new_start(monkeypatch: pytest.MonkeyPatch) -> None:
    context = JobContext("traffic", *[None] * 5)  # type: ignore[arg-type]
    monkeypatch.setattr(JobContext, "settings", settings_of("traffic", checkpoint="traffic-2"))
    supervisor.check_continuity(context, Known("query", 7), "traffic")


def test_a_declared_job_that_fails_again_pauses_and_ends_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: clock[0])
    failed = declared_job(SimpleNamespace(lastProgress=None))
    started = replace(failed)
    monkeypatch.setattr(supervisor, "start", lambda *_: started)
    error = ValueError("poison")

    again = supervisor.start_again(failed, error, None)  # type: ignore[arg-type]
    assert again.is_second_try
    paused = supervisor.start_again(again, error, None)  # type: ignore[arg-type]
    assert paused.paused_until > clock[0]
    assert supervisor.start_again(paused, error, None) is paused  # type: ignore[arg-type]
    clock[0] = paused.paused_until
    resumed = supervisor.start_again(paused, error, None)  # type: ignore[arg-type]
    assert resumed.is_second_try
    assert not resumed.paused_until


GONE = CheckpointMismatch("job archive: the checkpoint hdfs://x: it is gone")


def refusing(monkeypatch: pytest.MonkeyPatch, *refusals: Exception | None) -> list[float]:
    """Starts of jobs are refused by turns; the clock, which is the test's to move."""
    clock = [1000.0]
    left = iter(refusals)

    def start(ready: Any, _: Any) -> Any:
        if error := next(left):
            raise error
        return running(ready.name, batches=1)

    monkeypatch.setattr(supervisor.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(supervisor, "start", start)
    monkeypatch.setattr(supervisor, "await_results", lambda _: None)
    return clock


@pytest.mark.parametrize("is_first", [True, False])
def test_a_refused_job_stays_out_until_its_checkpoint_is_back(
    monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    clock = refusing(monkeypatch, GONE, GONE, None)
    driver: Any = SimpleNamespace(question=lambda *_: None, is_disabled=lambda _: False)

    def look(job: Any) -> Any:
        return supervisor.reconcile(job, driver, is_first=is_first)

    refused = look(prepared("archive"))
    assert (refused.state, refused.trouble) == ("failed", str(GONE))
    assert look(refused) is refused  # not at every look
    clock[0] = refused.refused_until
    again = look(refused)
    assert again.trouble == str(GONE)
    clock[0] = again.refused_until
    back = look(again)
    assert (back.state, back.trouble) == ("running", "")


def test_what_was_published_for_other_offsets_is_refused_in_the_middle_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusing(monkeypatch)
    driver: Any = SimpleNamespace(question=lambda *_: None, is_disabled=lambda _: False)
    job = running("traffic", ValueError("in Spark's words"), raised=[GONE])
    refused = supervisor.reconcile(job, driver, is_first=True)
    assert isinstance(refused, ReadyJob)
    assert refused.state == "failed"


def test_a_refused_job_that_is_disabled_has_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, GONE)
    driver: Any = SimpleNamespace(question=lambda *_: None, is_disabled=lambda _: False)
    refused = supervisor.reconcile(prepared("archive"), driver, is_first=False)
    driver.is_disabled = lambda _: True
    assert supervisor.reconcile(refused, driver, is_first=False).state == "disabled"


def test_a_refused_job_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [prepared("traffic"), prepared("archive")]
    told: list[dict[str, str]] = []
    other = running("archive", batches=1)

    monkeypatch.setattr(supervisor, "refuse", lambda job, _: replace(job, trouble="gone"))
    started = supervised(monkeypatch, jobs, GONE, other, *[GONE] * 4, told=told)
    assert "archive" in started
    assert told[-1] == {"traffic": "failed", "archive": "running"}


def declared_job(query: Any, **more: Any) -> supervisor.RunningJob:
    ready = ReadyJob(
        SimpleNamespace(job="theirs"),  # type: ignore[arg-type]
        FakeJob(may_pause=True),
        None,  # type: ignore[arg-type]
    )
    return supervisor.RunningJob(ready, query, None, threading.Event(), **more)  # type: ignore[arg-type]


def test_without_what_it_failed_by_a_job_goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "start", lambda *_: started)
    started = declared_job(SimpleNamespace(lastProgress=None))
    again = supervisor.start_again(
        replace(started, is_second_try=True),
        Quarantined("batch 5 is run again without events-0-7"),
        None,  # type: ignore[arg-type]
    )
    assert not again.paused_until


def test_a_job_that_fails_by_its_code_is_tried_again_more_and_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(
        supervisor, "start", lambda *_: declared_job(SimpleNamespace(lastProgress=None))
    )
    job = declared_job(SimpleNamespace(lastProgress=None), is_second_try=True)
    error = NotIsolatable("more than 50 further records fail: no\nand more")
    pauses = []
    for _ in range(7):
        job = supervisor.start_again(job, error, None)  # type: ignore[arg-type]
        assert job.trouble == "more than 50 further records fail: no"
        pauses.append(job.paused_until - clock[0])
        clock[0] = job.paused_until
        job = supervisor.start_again(job, error, None)  # type: ignore[arg-type]
        assert not job.trouble
    assert pauses == [60, 120, 240, 480, 960, 960, 960]
    ended_one = replace(job, query=SimpleNamespace(lastProgress=object()))  # type: ignore[arg-type]
    job = supervisor.start_again(ended_one, error, None)  # type: ignore[arg-type]
    assert supervisor.start_again(job, error, None).paused_until == clock[0] + 60  # type: ignore[arg-type]


def test_a_first_job_that_fails_by_its_data_ends_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    query = SimpleNamespace(exception=lambda: RuntimeError("as Spark says it"), lastProgress=None)
    failed = declared_job(query, raised=[NotIsolatable("it is the code")], is_second_try=True)
    told: list[dict[str, str]] = []
    jobs: list[Any] = [failed, running("archive")]
    assert supervised(monkeypatch, jobs, told=told) == []
    assert [states["theirs"] for states in told] == ["failed"] * 5
    other = declared_job(query)
    with pytest.raises(RuntimeError, match="as Spark says it"):
        supervised(monkeypatch, [other])


@pytest.mark.parametrize("changed", [True, False])
def test_a_query_is_started_without_what_is_put_aside_by_now(
    monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    class Started(Exception):
        """Far enough."""

    steps: list[str] = []
    context: Any = SimpleNamespace(job="theirs", tables=FakeTables(), settings=None, streams=[])
    context.checkpoint = SimpleNamespace(location="", last_committed=lambda: -1)
    context.spark = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    context.lease = None

    class Frame:
        def __init__(self, name: str) -> None:
            self.name = name

        @property
        def writeStream(self) -> Any:
            steps.append(self.name)
            raise Started

    job = FakeJob(
        on_lead=lambda: steps.append("lead"),
        refresh=lambda: changed,
        frame=lambda: Frame("built anew"),
    )
    monkeypatch.setattr(supervisor, "check_continuity", lambda *_: None)
    monkeypatch.setattr(JobRow, "read", lambda *_: JobRow())
    monkeypatch.setattr(supervisor, "claim", lambda _: None)
    monkeypatch.setattr(supervisor, "contract", lambda *_: {})
    driver: Any = SimpleNamespace(
        take_epoch=lambda *_, **__: 1, put_contract=lambda *_: None, kept_checkpoint=lambda _: None
    )
    with pytest.raises(Started):
        supervisor.start(ReadyJob(context, job, Frame("prepared")), driver)  # type: ignore[arg-type]
    assert steps == ["lead", "built anew" if changed else "prepared"]
