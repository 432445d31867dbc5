"""How jobs begin, go on, fail alone, are handed over, end and are drained."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.inputs.continuity import CheckpointMismatch, Known
from millrace_jobs.inputs.skipped import SkippedRange
from millrace_jobs.leader import running as running_job
from millrace_jobs.leader import supervisor
from millrace_jobs.leader.failures import Attempts, BatchTooLong, Failure, HandedOver
from millrace_jobs.leader.job_states import report_of
from millrace_jobs.leader.running import RunningJob, StoppedJob
from millrace_jobs.leader.skipping import FoundByAnother, OffsetsExpired
from millrace_jobs.leadership.lease import LeaseLost
from millrace_jobs.quarantine.search import NotIsolatable, Quarantined
from millrace_jobs.quarantine.store import JOB_GROUP
from millrace_jobs.query.executor_deaths import KillsExecutors
from millrace_jobs.query.heartbeat import JobRow
from millrace_jobs.query.write_version import write_version
from millrace_jobs.standby.executors import SparkStopped
from millrace_jobs.standby.ready import ReadyJob, UnreadyJob
from pyspark.sql import DataFrame, SparkSession

from tests.jobs.fakes import FakeJob, FakeTables, context_of
from tests.jobs.samples import settings_of
from tests.jobs.world import InLine
from tests.waiting import PATIENCE_SECONDS, pause, wait_until


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
        .writeStream.foreachBatch(running_job.while_leading(slow, lease, draining, []))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    assert began.wait(PATIENCE_SECONDS)
    one = supervisor.Supervised(prepared("traffic"))
    one.job = RunningJob(prepared("traffic"), query, None, draining)  # type: ignore[arg-type]
    supervisor.drain([one])
    assert not query.isActive
    assert finished == [0]
    assert "0" in {path.name for path in (tmp_path / "offsets").iterdir()}


@pytest.mark.parametrize("beside", [False, True])
def test_a_batch_that_hangs_in_its_spark_job_is_cancelled(
    spark: SparkSession, tmp_path: Path, beside: bool
) -> None:
    """Also in a job on another thread, as the search for records has them."""
    began = threading.Event()
    hang = "reflect('java.lang.Thread', 'sleep', 86400000L)"

    def probe(frame: DataFrame, group: str | None) -> None:
        if group:
            spark.sparkContext.setJobGroup(group, "a probe", interruptOnCancel=True)
        began.set()
        frame.selectExpr(hang).collect()

    def write(frame: DataFrame, _: int) -> None:
        group = spark.sparkContext.getLocalProperty(JOB_GROUP)
        assert group
        if not beside:
            probe(frame, None)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(probe, frame.sparkSession.range(1), group).result()

    lease: Any = SimpleNamespace(confirm=lambda: None)
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 1)
        .load()
        .writeStream.foreachBatch(running_job.while_leading(write, lease, threading.Event(), []))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    assert began.wait(PATIENCE_SECONDS)
    ready = ReadyJob(context_of(spark=spark), FakeJob(), None)  # type: ignore[arg-type]
    progress: Any = SimpleNamespace(silent_seconds=0.0)
    job = RunningJob(ready, query, progress, threading.Event())
    cancelled = running_job.cancel(job, BatchTooLong("it hangs"))
    wait_until(lambda: cancelled.is_over, PATIENCE_SECONDS, "the query's end", every=0.1)


# -- Stand-ins


def prepared(name: str, job: Any = None) -> ReadyJob:
    return ReadyJob(context_of(name), job or FakeJob(), None)  # type: ignore[arg-type]


def running(name: str, *errors: Exception | None, batches: int = 0, **more: Any) -> Any:
    """A job whose query says one of the ``errors`` after the other, and ended some ``batches``."""
    left = iter(errors)
    query = SimpleNamespace(
        exception=lambda: next(left, None),
        lastProgress=SimpleNamespace(batchId=batches, numInputRows=0) if batches else None,
        isActive=not errors,
        status={"isTriggerActive": False},
        runId="run",
    )
    query.stop = lambda: setattr(query, "isActive", False)
    facts: dict[str, Any] = {"has_begun": batches > 0, "has_told": True, "silent_seconds": 0.0}
    facts |= {"follow": lambda: None, "pacing": None}
    return RunningJob(
        more.pop("ready", None) or prepared(name),
        query,  # type: ignore[arg-type]
        SimpleNamespace(**facts),  # type: ignore[arg-type]
        threading.Event(),
        **more,
    )


class Driver:
    """What the supervisor asks of ZooKeeper, and what it leaves there."""

    def __init__(self, *, standby: bool = False, handed_over: Iterable[str] = ()) -> None:
        self.lease: Any = SimpleNamespace(is_lost=False)
        self.standby = standby
        self.noted = dict.fromkeys(handed_over, "before")
        self.contracts: dict[str, Any] = {}
        self.questions: dict[str, Any] = {}
        self.answers: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []
        self.is_disabled: Callable[[str], bool | None] = lambda job: False

    def has_standby(self) -> bool:
        return self.standby

    def was_handed_over(self, job: str) -> bool:
        return job in self.noted

    def note_hand_over(self, job: str, reason: str) -> None:
        self.noted[job] = reason

    def forget_hand_over(self, job: str) -> None:
        self.noted.pop(job, None)

    def put_contract(self, job: str, contract: Any) -> None:
        self.contracts[job] = contract

    def question(self, job: str, _: str) -> Any:
        return self.questions.get(job)

    def answer(self, job: str, _: str, answer: dict[str, Any]) -> None:
        self.answers.append(answer)
        self.questions.pop(job, None)

    def announce_jobs(self, reports: dict[str, Any], _: Any) -> None:
        self.told.append(reports)

    @property
    def states(self) -> list[dict[str, str]]:
        return [{job: told.state for job, told in reports.items()} for reports in self.told]


def failing(name: str) -> StoppedJob:
    """A job that has failed, and is tried again in an hour."""
    failure = Failure("why", "job-failed", 1.0)
    return StoppedJob(prepared(name), Attempts(3, 1e9, failure))


Orders = Callable[[str], bool | None]


def only(*disabled: str) -> Orders:
    return lambda job: job in disabled


def silent(_: str) -> None:
    """ZooKeeper doesn't say."""


class Clock:
    """The monotonic one, which is the test's to move; each poll moves it by a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        stand_in = SimpleNamespace(monotonic=lambda: self.now, time=lambda: 5e8, sleep=self.sleep)
        monkeypatch.setattr(supervisor, "time", stand_in)
        monkeypatch.setattr(running_job, "time", stand_in)

    def sleep(self, _: float) -> None:
        self.now += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def starting(monkeypatch: pytest.MonkeyPatch, *successors: Any) -> list[str]:
    """Each start gives one of the ``successors``, or raises it; the names of those started."""
    started: list[str] = []
    left = iter(successors)

    def start(ready: Any, _: Any, attempts: Attempts) -> Any:
        started.append(ready.name)
        successor = next(left)
        if isinstance(successor, Exception):
            raise successor
        return replace(successor, attempts=attempts)

    monkeypatch.setattr(supervisor, "start", start)
    return started


def supervised(
    monkeypatch: pytest.MonkeyPatch,
    jobs: list[Any],
    driver: Driver,
    orders: Iterable[Orders] = (only(),) * 5,
    rehearse: Callable[[list[ReadyJob]], None] = lambda jobs: None,
    verify: Callable[[], None] = lambda: None,
) -> list[supervisor.Supervised]:
    """The jobs after a look for each order, which is about those that are disabled."""
    looks = iter(orders)

    def is_stop_desired(_: str) -> bool:
        order = next(looks, None)
        if order:
            driver.is_disabled = order
        return order is None

    driver.is_stop_desired = is_stop_desired  # type: ignore[attr-defined]
    monkeypatch.setattr(supervisor, "Worker", InLine)
    found = []
    for job in jobs:
        one = supervisor.Supervised(job if isinstance(job, ReadyJob | UnreadyJob) else job.ready)
        if isinstance(job, RunningJob | StoppedJob):
            one.job = job
        found.append(one)
    supervisor.supervise(
        found,
        driver,  # type: ignore[arg-type]
        "v1",
        SimpleNamespace(verify=verify),  # type: ignore[arg-type]
        SimpleNamespace(tell=lambda _: None),  # type: ignore[arg-type]
        SimpleNamespace(look=lambda _: None),  # type: ignore[arg-type]
        SimpleNamespace(look=rehearse),  # type: ignore[arg-type]
    )
    return found


def looked(job: Any, driver: Driver, times: int = 1) -> Any:
    for _ in range(times):
        job = supervisor.reconcile(job, driver)  # type: ignore[arg-type]
    return job


# -- Results come first


class Results:
    """A query that each look finds one report further; None is no report yet."""

    isActive = True

    def __init__(self, *reports: tuple[int, int] | None) -> None:
        self.looks = 0
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
    reports: list[tuple[int, int] | None], looks: int, clock: Clock
) -> None:
    first = replace(running("traffic"), query=Results(*reports))
    results = supervisor.ResultsFirst()
    while not results.are_there(first):
        pass
    assert first.query.looks == looks
    assert results.are_there(StoppedJob(prepared("traffic")))  # whatever it does from now on


def test_other_jobs_wait_for_results_only_so_long(clock: Clock) -> None:
    first = replace(running("traffic"), query=Results(None, None, None))
    results = supervisor.ResultsFirst()
    assert not results.are_there(first)
    clock.now += supervisor.FIRST_BATCHES_SECONDS - 1
    assert not results.are_there(first)
    clock.now += 1
    assert results.are_there(first)


@pytest.mark.parametrize(
    "first",
    [
        StoppedJob(prepared("traffic"), is_disabled=True),
        StoppedJob(prepared("traffic"), Attempts(in_vain=1)),
        running("traffic", RuntimeError()),
        running("traffic", ready=prepared("traffic", FakeJob(is_endless=True))),
    ],
)
def test_a_first_job_that_brings_no_results_holds_back_nobody(first: Any, clock: Clock) -> None:
    assert supervisor.ResultsFirst().are_there(first)


def test_a_first_job_that_doesn_t_start_holds_back_nobody_for_long(clock: Clock) -> None:
    results = supervisor.ResultsFirst()
    hangs = StoppedJob(prepared("traffic"))
    assert not results.are_there(hangs)
    clock.now += supervisor.FIRST_BATCHES_SECONDS
    assert results.are_there(hangs)


# -- Orders


def test_jobs_start_one_after_the_other(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    first = running("traffic")
    started = starting(monkeypatch, first, running("archive"))
    seen: list[list[str]] = []

    def look(_: Any) -> None:
        seen.append([*started])
        if len(seen) == 2:
            first.query.lastProgress = SimpleNamespace(batchId=0, numInputRows=0)

    jobs = [prepared("traffic"), prepared("archive")]
    supervised(monkeypatch, jobs, Driver(), orders=[only()] * 3, rehearse=look)
    assert seen == [["traffic"], ["traffic"], ["traffic", "archive"]]


@pytest.mark.parametrize("job", [running("traffic", batches=1), failing("traffic")])
def test_what_an_operator_asks_to_skip_is_done_between_two_queries(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, job: Any
) -> None:
    driver = Driver()
    driver.questions["traffic"] = {"id": "1"}
    asked: list[str] = []

    def carry_out(ready: ReadyJob, question: Any, _: Any) -> None:
        asked.append(question["id"])
        assert isinstance(job, StoppedJob) or not job.query.isActive
        driver.questions.clear()

    monkeypatch.setattr(supervisor.skip_requests, "carry_out", carry_out)
    started = starting(monkeypatch, running("traffic", batches=1))
    supervised(monkeypatch, [job], driver, orders=[only()] * 3)
    assert asked == ["1"]
    assert started == ["traffic"]  # without the pause of one that has failed


def test_a_batch_that_its_executors_die_by_is_read_otherwise_and_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    careful = prepared("archive")
    monkeypatch.setattr(supervisor.skipping, "anew", lambda *_: careful)
    job = running("archive", RuntimeError("ExecutorLostFailure"), attempts=Attempts(in_vain=1))
    again = supervisor.reconcile(job, Driver())  # type: ignore[arg-type]
    assert again == StoppedJob(careful, Attempts(in_vain=1))


def test_a_batch_that_kills_executors_is_cancelled_before_spark_gives_it_up(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    careful, killing = prepared("archive"), KillsExecutors("a task has ended 2 executors")
    monkeypatch.setattr(supervisor.skipping, "anew", lambda _, error: error is killing and careful)
    monkeypatch.setattr(running_job, "killing", lambda *_: killing)
    job = running("archive", batches=1)
    job.progress.silent_seconds = running_job.SUSPECT_SECONDS + 1
    cancelled = looked(job, Driver())
    wait_until(lambda: cancelled.is_over, PATIENCE_SECONDS, "the query's end", every=0.01)
    assert looked(cancelled, Driver()) == StoppedJob(careful, Attempts())


def test_what_one_job_has_found_others_go_around(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    one, other = running("traffic", batches=1), running("archive", batches=1)
    one.ready.context.too_large = frozenset([SkippedRange("events", 0, 20, 21)])
    others = supervisor.Others.of([one])
    asked: list[Any] = []

    def told(ready: ReadyJob, found: Any) -> Exception:
        asked.append((ready.name, found))
        return FoundByAnother(found)

    around = prepared("archive")
    monkeypatch.setattr(supervisor.skipping, "told", told)
    monkeypatch.setattr(
        supervisor.skipping, "anew", lambda _, why: isinstance(why, FoundByAnother) and around
    )
    cancelled = supervisor.reconcile(other, Driver(), others=others)  # type: ignore[arg-type]
    assert asked == [("archive", others.found)]
    wait_until(lambda: cancelled.is_over, PATIENCE_SECONDS, "the query's end", every=0.01)
    assert looked(cancelled, Driver()) == StoppedJob(around, Attempts())


@pytest.mark.parametrize("others_kill", [True, False])
def test_whose_executors_die_by_another_job_is_not_to_blame(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, others_kill: bool
) -> None:
    monkeypatch.setattr(supervisor.skipping, "anew", lambda *_: None)  # nothing of it is too large
    died = RuntimeError("ExecutorLostFailure")
    job: Any = running("theirs", died, attempts=Attempts(in_vain=1))
    others = supervisor.Others(kill=others_kill)
    after = supervisor.reconcile(job, Driver(), others=others)  # type: ignore[arg-type]
    assert after.state == ("starting" if others_kill else "failed")


def test_offsets_that_are_gone_fail_the_job_with_a_page_of_their_own(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    def anew(*_: Any) -> None:
        raise OffsetsExpired("gone")

    monkeypatch.setattr(supervisor.skipping, "anew", anew)
    driver = Driver(standby=True)
    failed = supervisor.reconcile(running("archive", RuntimeError()), driver)  # type: ignore[arg-type]
    assert failed.attempts.failure
    assert failed.attempts.failure.runbook == "offsets-expired"
    assert not driver.noted  # another driver would find the same


def test_queries_get_their_turns_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[list[Any]] = []
    traffic, archive, real_time = (running(name, batches=1) for name in ("a", "b", "c"))
    traffic.progress.pacing, archive.progress.pacing = "traffic's", "archive's"
    turns = SimpleNamespace(look=looks.append, behind_since=dict)
    monkeypatch.setattr(supervisor, "Turns", lambda: turns)
    supervised(monkeypatch, [traffic, archive, real_time], Driver(), orders=[only(), only()])
    assert looks == [["traffic's", "archive's"]] * 2


def test_who_is_new_rehearses_what_runs(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    looks: list[list[str]] = []
    jobs = [running("traffic", batches=1), running("archive", batches=1)]
    supervised(
        monkeypatch,
        jobs,
        Driver(),
        orders=[only(), only("archive")],
        rehearse=lambda ready: looks.append([job.name for job in ready]),
    )
    assert looks == [["traffic", "archive"], ["traffic"]]


@pytest.mark.parametrize("name", ["traffic", "archive"])
def test_a_disabled_job_ends_and_an_enabled_one_goes_on(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, name: str
) -> None:
    driver = Driver()
    jobs = [running("traffic", batches=1), running("archive", batches=1)]
    others = [job for job in jobs if job.name != name]
    [query] = [job.query for job in jobs if job.name == name]
    orders = [only(), only(name), only(name), only(), only()]
    started = starting(monkeypatch, running(name, batches=1))
    supervised(monkeypatch, jobs, driver, orders=orders)
    assert started == [name]
    assert not query.isActive
    assert all(job.query.isActive for job in others)
    assert [states[name] for states in driver.states] == [
        "running",
        "disabled",
        "disabled",
        "running",
        "running",
    ]
    assert {states[other.name] for states in driver.states for other in others} == {"running"}


def test_a_batch_of_a_disabled_job_ends_first(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    driver = Driver()
    job = running("traffic", batches=1)
    job.query.status = {"isTriggerActive": True}

    def ended(_: str) -> bool:
        job.query.isActive = False  # instead of beginning another batch
        return False  # and is enabled again meanwhile

    orders = [only("traffic"), only(), ended, only()]
    started = starting(monkeypatch, running("traffic", batches=1))
    supervised(monkeypatch, [job], driver, orders=orders)
    assert started == ["traffic"]
    told = [states["traffic"] for states in driver.states]
    assert told == ["draining", "draining", "disabled", "running"]


def test_a_batch_of_a_disabled_job_that_doesn_t_end_is_cancelled(clock: Clock) -> None:
    driver = Driver()
    driver.is_disabled = only("traffic")
    job = running("traffic", batches=1)
    job.query.status = {"isTriggerActive": True}
    draining = looked(job, driver)
    assert draining.cancelled is None
    clock.now += running_job.DRAIN_SECONDS + 1
    cancelled = looked(draining, driver)
    wait_until(lambda: cancelled.is_over, PATIENCE_SECONDS, "the query's end", every=0.01)
    assert looked(cancelled, driver).state == "disabled"


def test_what_ends_a_disabled_job_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    drained = running("traffic", *[running_job.Drained()] * 5)
    started = starting(monkeypatch)
    driver = Driver()
    supervised(monkeypatch, [drained], driver, orders=[only("traffic")] * 3)
    assert started == []
    assert driver.states == [{"traffic": "disabled"}] * 3


def test_a_driver_that_takes_over_starts_no_disabled_job(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    jobs = [prepared("traffic"), prepared("archive")]
    started = starting(monkeypatch, running("archive"))
    supervised(monkeypatch, jobs, Driver(), orders=[only("traffic")] * 3)
    assert started == ["archive"]


def test_with_all_jobs_disabled_it_still_leads(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    driver = Driver()
    started = starting(monkeypatch)
    supervised(monkeypatch, [prepared("a")], driver, orders=[only("a")] * 3)
    assert started == []
    assert driver.states == [{"a": "disabled"}] * 3


def test_while_zookeeper_is_silent_nothing_starts_or_ends(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    job = running("archive")
    started = starting(monkeypatch)
    supervised(monkeypatch, [prepared("traffic"), job], Driver(), orders=[silent] * 3)
    assert started == []
    assert job.query.isActive


# -- A job fails alone


PROGRAMS = ("traffic", "archive")
JOBS = (*PROGRAMS, "theirs")


class Isolating(FakeJob):
    isolating_for = "batch 7: ValueError"  # type: ignore[assignment]


def test_a_job_that_looks_for_records_says_what_it_failed_by() -> None:
    searching = running("sessions", ready=prepared("sessions", Isolating()))
    assert (searching.state, searching.trouble) == ("isolating", "batch 7: ValueError")
    assert running("traffic").trouble == ""


GONE = CheckpointMismatch("job archive: the checkpoint hdfs://x: it is gone")
FAILED = Attempts(2, 1060.0, Failure("why", "job-failed", 4e8))


@pytest.mark.parametrize("name", JOBS)
def test_a_refused_job_stays_out_until_its_checkpoint_is_back(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, name: str
) -> None:
    driver = Driver(standby=True)
    started = starting(monkeypatch, GONE, GONE, running(name, batches=1))
    refused = looked(StoppedJob(prepared(name)), driver)
    assert (refused.state, refused.trouble) == ("failed", str(GONE))
    assert report_of(refused).runbook == "checkpoint-lost"
    assert looked(refused, driver) == refused  # not at every look
    clock.now = refused.attempts.again_at
    again = looked(refused, driver)
    assert again.trouble == str(GONE)
    clock.now = again.attempts.again_at
    back = looked(again, driver, times=2)
    assert (back.state, back.trouble) == ("running", "")
    assert started == [name] * 3


def test_what_was_published_for_other_offsets_is_refused_in_the_middle_of_a_batch(
    clock: Clock,
) -> None:
    job = running("traffic", ValueError("in Spark's words"), raised=[GONE])
    refused = looked(job, Driver(standby=True))
    assert (refused.state, refused.trouble) == ("failed", str(GONE))


@pytest.mark.parametrize("name", JOBS)
def test_a_job_that_fails_is_started_again_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, name: str
) -> None:
    other = running("other", batches=1)
    started = starting(monkeypatch, running(name, batches=1))
    driver = Driver(standby=True)
    jobs = [other, running(name, RuntimeError("offsets/5\nits plan"))]
    supervised(monkeypatch, jobs, driver)
    assert started == [name]
    assert driver.states[-1] == {"other": "running", name: "running"}
    assert driver.noted == {}


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("in_start", [True, False])
def test_a_job_that_fails_again_at_once_has_failed_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, name: str, in_start: bool
) -> None:
    """No standby is there, or the job has been handed over: no driver ends."""
    error = RuntimeError("once more\nits plan")
    again = error if in_start else running(name, error)
    started = starting(monkeypatch, again)
    driver = Driver(standby=True, handed_over=[name])
    jobs = [running("other", batches=1), running(name, RuntimeError("once"))]
    [_, failed] = supervised(monkeypatch, jobs, driver)
    assert started == [name]
    assert driver.states[-1] == {"other": "running", name: "failed"}
    report = report_of(failed.job)
    assert (report.trouble, report.runbook) == ("once more", "job-failed")
    assert report.failed_since == 5e8


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_s_lasting_error_is_handed_over_once_and_only_to_a_standby(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, name: str
) -> None:
    def failing() -> Any:
        return running(name, RuntimeError("twice"), attempts=Attempts(in_vain=1))

    alone = Driver()
    assert looked(failing(), alone).state == "failed"
    assert alone.noted == {}
    driver = Driver(standby=True)
    with pytest.raises(HandedOver, match=f"job {name}: twice"):
        looked(failing(), driver)
    assert driver.noted == {name: "twice"}
    assert looked(failing(), driver).state == "failed"  # as the next driver finds it


def test_the_hand_over_ends_the_driver(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    failing = running("archive", RuntimeError("twice"), attempts=Attempts(in_vain=1))
    with pytest.raises(HandedOver, match="archive"):
        supervised(monkeypatch, [running("traffic", batches=1), failing], Driver(standby=True))


def test_a_declared_job_s_error_is_handed_to_nobody(clock: Clock) -> None:
    driver = Driver(standby=True)
    failing = running("theirs", RuntimeError("twice"), attempts=Attempts(in_vain=1))
    assert looked(failing, driver).state == "failed"


@pytest.mark.parametrize("error", [NotIsolatable("it is the code"), GONE])
def test_what_another_driver_would_find_is_handed_to_nobody(error: Exception, clock: Clock) -> None:
    failing = running("traffic", ValueError(), raised=[error], attempts=Attempts(in_vain=1))
    assert looked(failing, Driver(standby=True)).state == "failed"


def test_a_hand_over_is_forgotten_once_the_job_has_ended_a_batch(clock: Clock) -> None:
    driver = Driver(handed_over=["traffic"])
    assert driver.was_handed_over(looked(running("traffic"), driver).name)
    proven = looked(running("traffic", batches=1, attempts=FAILED), driver)
    assert not driver.was_handed_over("traffic")
    assert (proven.state, proven.attempts) == ("running", Attempts())


def test_a_hand_over_is_forgotten_when_the_job_is_disabled(clock: Clock) -> None:
    driver = Driver(handed_over=["traffic"])
    driver.is_disabled = only("traffic")
    disabled = looked(StoppedJob(prepared("traffic"), FAILED), driver)
    assert (disabled.state, disabled.trouble) == ("disabled", "")
    assert driver.noted == {}


def test_a_failed_job_is_failed_until_it_has_ended_a_batch(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    started = starting(monkeypatch, running("theirs"))
    waits = StoppedJob(prepared("theirs"), FAILED)
    assert looked(waits, Driver()) == waits
    clock.now = FAILED.again_at
    tried = looked(waits, Driver())
    assert started == ["theirs"]
    assert (tried.state, tried.trouble) == ("failed", "why")
    tried.query.lastProgress = object()
    assert looked(tried, Driver()).trouble == ""


def test_a_job_that_fails_by_its_code_is_tried_again_more_and_more_rarely(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    error = NotIsolatable("more than 50 further records fail: no\nand more")
    starting(monkeypatch, *(running("theirs", error) for _ in range(9)))
    job: Any = running("theirs", error)
    pauses = []
    for _ in range(8):
        job = looked(job, Driver())
        if job.attempts.failure:
            assert job.trouble == "more than 50 further records fail: no"
            pauses.append(job.attempts.again_at - clock.now)
            clock.now = job.attempts.again_at
        job = looked(job, Driver())
    assert pauses == [60, 120, 240, 480, 960, 960, 960]
    ended_one = running("theirs", error, batches=1, attempts=job.attempts)
    assert looked(ended_one, Driver()).attempts == Attempts(in_vain=1)


def test_without_what_it_failed_by_a_job_goes_on_at_once(clock: Clock) -> None:
    error = Quarantined("batch 5 is run again without events-0-7")
    job = looked(running("theirs", error, attempts=Attempts(in_vain=1)), Driver())
    assert (job.state, job.attempts) == ("starting", Attempts(in_vain=1))


def test_a_job_that_couldn_t_be_prepared_is_prepared_by_whoever_leads(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    tries = iter([RuntimeError("no such table"), RuntimeError("no such table"), None])

    def prepare() -> ReadyJob:
        if error := next(tries):
            raise error
        return prepared("theirs")

    unready: Any = UnreadyJob("theirs", RuntimeError("no such table"), prepare)
    starting(monkeypatch, running("theirs"))
    failed = looked(StoppedJob(unready), Driver(), times=2)
    assert (failed.state, failed.trouble) == ("failed", "no such table")
    clock.now = failed.attempts.again_at
    assert isinstance(looked(failed, Driver()), RunningJob)


def test_who_asks_a_job_that_can_t_be_prepared_to_skip_is_told_so(clock: Clock) -> None:
    """And the job isn't prepared more often than without the question."""
    tried: list[str] = []

    def prepare() -> ReadyJob:
        tried.append("theirs")
        raise RuntimeError("no such table")

    unready: Any = UnreadyJob("theirs", RuntimeError("no such table"), prepare)
    driver = Driver()
    failed = looked(StoppedJob(unready), driver, times=2)
    driver.questions["theirs"] = {"id": "7", "lost": True}
    before = len(tried)
    after = looked(failed, driver, times=3)
    assert len(tried) == before + 1
    assert after.attempts == failed.attempts
    (answer,) = driver.answers
    assert answer["id"] == "7"
    assert "can't be prepared" in answer["error"]
    assert "no such table" in answer["error"]


def test_a_heartbeat_that_fails_ends_no_query(clock: Clock) -> None:
    job = running("traffic", batches=1)

    def fail() -> None:
        raise RuntimeError("no quorum")

    job.progress.follow = fail
    assert looked(job, Driver()).query.isActive


def test_a_job_that_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """On real threads: a start that doesn't end."""
    over, started = threading.Event(), threading.Event()

    def start(ready: Any, *_: Any) -> Any:
        if ready.name == "hangs":
            over.wait(PATIENCE_SECONDS)
        started.set()
        return running(ready.name, batches=1)

    monkeypatch.setattr(supervisor, "start", start)
    driver = Driver()
    hangs, other = (supervisor.Supervised(prepared(name)) for name in ("hangs", "other"))

    def step(job: Any) -> Any:
        return supervisor.reconcile(job, driver)  # type: ignore[arg-type]

    for one in (hangs, other):
        one.look(step)
    assert started.wait(PATIENCE_SECONDS)
    other.wait(PATIENCE_SECONDS)
    hangs.look(step)  # it isn't asked twice
    assert hangs.report().state == "starting"
    monkeypatch.setattr(supervisor, "STUCK_SECONDS", 0.0)
    stuck = hangs.report()
    assert (stuck.state, stuck.runbook) == ("failed", "job-failed")
    assert other.report().state == "running"
    assert (hangs.job.state, other.job.state) == ("starting", "running")
    over.set()
    hangs.wait(PATIENCE_SECONDS)
    assert hangs.job.state == "running"


@pytest.mark.parametrize("error", [LeaseLost(), SparkStopped("Spark has stopped")])
def test_only_the_lease_and_spark_end_a_driver(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, error: Exception
) -> None:
    def verify() -> None:
        raise error

    with pytest.raises(type(error)):
        supervised(monkeypatch, [running("traffic")], Driver(), verify=verify)


def test_what_goes_on_beside_jobs_ends_no_driver(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    def fail(_: Any) -> None:
        raise ValueError("no JSON")

    driver = Driver()
    supervised(monkeypatch, [running("traffic", batches=1)], driver, rehearse=fail)
    assert len(driver.told) == 5


# -- A batch has a longest time


def too_long(name: str = "traffic", **more: Any) -> Any:
    job = running(name, **more)
    job.progress.silent_seconds = job.longest_seconds + 1
    return job


def test_a_batch_that_takes_too_long_is_cancelled_and_tried_again_with_more_time(
    clock: Clock,
) -> None:
    driver = Driver(standby=True)
    job = too_long()
    cancelled = looked(job, driver)
    wait_until(lambda: cancelled.is_over, PATIENCE_SECONDS, "the query's end", every=0.01)
    again = looked(cancelled, driver)
    assert (again.state, again.attempts) == ("starting", Attempts(in_vain=1))
    longest = job.ready.context.settings.longest_batch_seconds
    assert (
        job.longest_seconds
        < 2 * longest
        < running("traffic", attempts=again.attempts).longest_seconds
    )


def test_a_batch_that_takes_too_long_again_is_handed_to_nobody(clock: Clock) -> None:
    """It is its data, or these cores: the standby's are the same."""
    driver = Driver(standby=True)
    job = too_long(attempts=Attempts(in_vain=1))
    cancelled = looked(job, driver)
    wait_until(lambda: cancelled.is_over, PATIENCE_SECONDS, "the query's end", every=0.01)
    failed = looked(cancelled, driver)
    assert failed.state == "failed"
    assert "was cancelled" in failed.trouble


def test_a_batch_that_can_t_be_cancelled_is_left_to_the_standby(clock: Clock) -> None:
    def stuck(name: str) -> Any:
        job = too_long(name)
        at, why = clock.now - running_job.CANCEL_SECONDS - 1, BatchTooLong("it hangs")
        job.query.isActive = False  # as Spark says it of one that was told to stop
        return replace(job, cancelled=running_job.Cancelled(why, at, threading.Event()))

    with pytest.raises(HandedOver, match="it hangs: that was in vain"):
        looked(stuck("traffic"), Driver(standby=True))
    failed = looked(stuck("theirs"), Driver(standby=True), times=2)
    assert isinstance(failed, RunningJob)  # its query is there: no other may begin
    assert failed.state == "failed"
    failed.cancelled.has_stopped.set()
    assert isinstance(looked(failed, Driver()), StoppedJob)


def test_an_endless_batch_may_take_as_long_as_it_likes(clock: Clock) -> None:
    job = too_long(ready=prepared("theirs", FakeJob(is_endless=True)))
    assert looked(job, Driver()).cancelled is None


def test_the_search_for_records_gets_more_time(clock: Clock) -> None:
    searching = running("theirs", ready=prepared("theirs", Isolating()))
    assert searching.longest_seconds > running("theirs").longest_seconds


# -- How one starts


@pytest.mark.parametrize("written", [90, 0])
def test_a_run_takes_an_epoch_above_what_was_written_and_claims_it_first(
    monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    tables = FakeTables(SimpleNamespace(epoch=written, checkpoint=None) if written else None)
    context = context_of(tables=tables)
    asked: list[int] = []

    class Started(Exception):
        """Far enough."""

    def lead() -> None:
        raise Started

    def take_epoch(_: str, above: int) -> int:
        asked.append(above)
        return above + 1

    monkeypatch.setattr(running_job, "contract", lambda *_: {})
    driver: Any = SimpleNamespace(
        take_epoch=take_epoch, put_contract=lambda *_: None, kept_checkpoint=lambda _: "traffic"
    )
    with pytest.raises(Started):
        running_job.start(ReadyJob(context, FakeJob(on_lead=lead), None), driver)  # type: ignore[arg-type]
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

    context = context_of(
        tables=SimpleNamespace(select_one=select_one, select=lambda *_: [], upsert=lambda *_: None),
        checkpoint=SimpleNamespace(
            location="", query_id=lambda: "query", newest=lambda: 8, last_committed=lambda: 8
        ),
    )
    writer = SimpleNamespace()
    writer.queryName = writer.outputMode = lambda _: writer
    writer.option = lambda *_: writer
    query: Any = SimpleNamespace(id="query", _jsq=None)
    monkeypatch.setattr(running_job, "contract", lambda *_: {})
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
    started = running_job.start(ReadyJob(context, job, frame), driver)
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
    context = context_of(tables=tables, checkpoint=gone)
    driver: Any = SimpleNamespace(kept_checkpoint=lambda _: kept)
    with pytest.raises(CheckpointMismatch, match="is gone"):
        running_job.start(ReadyJob(context, None, None), driver)  # type: ignore[arg-type]
    assert tables.rows == []


def test_another_folder_is_a_new_start(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of(settings=settings_of("traffic", checkpoint="traffic-2"))
    running_job.check_continuity(context, Known("query", 7), "traffic")


def test_the_contract_follows_the_first_heartbeat(clock: Clock) -> None:
    driver, agreed = Driver(), {"checkpoint": "traffic-2"}
    job = running("traffic", agreed=agreed)
    job.progress.has_told = False
    job = looked(job, driver)
    assert driver.contracts == {}
    job.progress.has_told = True
    job = looked(job, driver)
    assert driver.contracts == {"traffic": agreed}
    driver.contracts.clear()
    assert looked(job, driver) == job
    assert driver.contracts == {}  # once


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("old query", "traffic"),  # it died before its first heartbeat
        ("new query", "traffic"),  # between its heartbeat and its contract
        ("new query", "traffic-2"),  # after both
    ],
)
def test_after_a_crash_a_new_checkpoint_goes_on_wherever_it_was(
    monkeypatch: pytest.MonkeyPatch, told: str, kept: str
) -> None:
    begun = SimpleNamespace(query_id=lambda: "new query", newest=lambda: 9, location="")
    context = context_of(settings=settings_of("traffic", checkpoint="traffic-2"), checkpoint=begun)
    running_job.check_continuity(context, Known(told, 9), kept)


@pytest.mark.parametrize(
    ("changed", "read", "reads"),
    [(True, False, False), (False, False, False), (False, False, True), (False, True, False)],
    ids=["put aside", "as prepared", "record by record", "no longer so"],
)
def test_a_query_is_started_without_what_is_put_aside_by_now_and_reads_as_it_must(
    monkeypatch: pytest.MonkeyPatch, changed: bool, read: bool, reads: bool
) -> None:
    class Started(Exception):
        """Far enough."""

    steps: list[str] = []
    context = context_of("theirs")
    context.careful_batch, context.reads_one_by_one = 7 if reads else None, read

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
    monkeypatch.setattr(running_job, "check_continuity", lambda *_: None)
    monkeypatch.setattr(JobRow, "read", lambda *_: JobRow())
    monkeypatch.setattr(running_job, "claim", lambda _: None)
    monkeypatch.setattr(running_job, "contract", lambda *_: {})
    driver: Any = SimpleNamespace(
        take_epoch=lambda *_, **__: 1, put_contract=lambda *_: None, kept_checkpoint=lambda _: None
    )
    with pytest.raises(Started):
        running_job.start(ReadyJob(context, job, Frame("prepared")), driver)  # type: ignore[arg-type]
    assert steps == ["lead", "built anew" if changed or read or reads else "prepared"]
