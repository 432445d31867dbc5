"""The driver's life: epochs, orders to stop, draining, progress."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from millrace_jobs import coordination, progress, runner
from millrace_jobs.checkpoint import Batch
from millrace_jobs.continuity import Discontinued
from millrace_jobs.coordination import Coordination
from millrace_jobs.driver import CHOOSY_ATTEMPTS, SharesHost, keep_apart, let_catch_up
from millrace_jobs.identity import Identity, identify
from millrace_jobs.late import JudgedBatch
from millrace_jobs.lease import LeaseLost
from millrace_jobs.progress import Progress
from millrace_jobs.quarantine import NotInRecords, Quarantined
from millrace_jobs.sinks.cassandra import WriteFailed
from millrace_jobs.transforms.traffic import WINDOW_SECONDS
from millrace_jobs.versions import version
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from millrace.plan import load_plan
from tests.jobs.samples import NAMES, millis

NOW = 1_800_000_000
MINUTES = NOW // 60
IDENTITY = Identity("application_1_1", 1, "worker-1", "v1", jvm=7, python=8)


class FakeZooKeeper:
    """As much of a ZooKeeper as coordination uses."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.connected = True
        self.before_set: Callable[[], None] = lambda: None

    def start(self, _: float) -> None: ...

    def Lock(self, path: str, _: str) -> SimpleNamespace:
        self.nodes[f"{path}/lock-1"] = (b"", 0)  # it leads
        return SimpleNamespace(path=path, node="lock-1")

    def transaction(self) -> "FakeTransaction":
        return FakeTransaction(self)

    def retry(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    def create(self, path: str, value: bytes, ephemeral: bool) -> None:
        assert ephemeral
        if path in self.nodes:
            raise NodeExistsError
        self.nodes[path] = (value, 0)

    def get_children(self, path: str) -> list[str]:
        return [node.removeprefix(f"{path}/") for node in self.nodes if node.startswith(f"{path}/")]

    def ensure_path(self, path: str) -> None:
        self.nodes.setdefault(path, (b"", 0))

    def exists(self, path: str) -> SimpleNamespace | None:
        return SimpleNamespace() if path in self.nodes else None

    def get(self, path: str) -> tuple[bytes, SimpleNamespace]:
        if path not in self.nodes:
            raise NoNodeError
        value, number = self.nodes[path]
        return value, SimpleNamespace(version=number)

    def set(self, path: str, value: bytes, version: int = -1) -> None:
        self.before_set()
        _, number = self.nodes.get(path, (b"", 0))
        if version not in (-1, number):
            raise BadVersionError
        self.nodes[path] = (value, number + 1)


class FakeTransaction:
    """A check of the lock's node, then one write."""

    def __init__(self, zookeeper: FakeZooKeeper) -> None:
        self.zookeeper = zookeeper

    def check(self, path: str, _: int) -> None:
        self.lock = path

    def set_data(self, *data: Any) -> None:
        self.data = data

    def commit_async(self) -> SimpleNamespace:
        return SimpleNamespace(get=self._commit)

    def _commit(self, timeout: float) -> list[Any]:
        if self.lock not in self.zookeeper.nodes:
            return [NoNodeError(), RuntimeInconsistency()]
        try:
            return [True, self.zookeeper.set(*self.data)]
        except BadVersionError as error:
            return [RolledBackError(), error]


@pytest.fixture
def zookeeper(monkeypatch: pytest.MonkeyPatch) -> FakeZooKeeper:
    fake = FakeZooKeeper()
    monkeypatch.setattr(coordination, "KazooClient", lambda *_, **__: fake)
    monkeypatch.setattr(coordination.time, "time", lambda: NOW)
    return fake


@pytest.fixture
def driver(zookeeper: FakeZooKeeper) -> Coordination:
    return Coordination("zookeeper", NAMES.zookeeper, "insights", IDENTITY, 2.5)


def test_each_epoch_is_higher_than_the_one_before(driver: Coordination) -> None:
    assert [driver.take_epoch("traffic", 0) for _ in range(3)] == [
        MINUTES,
        MINUTES + 1,
        MINUTES + 2,
    ]


def test_jobs_have_epochs_of_their_own(driver: Coordination) -> None:
    driver.take_epoch("traffic", 0)
    assert driver.take_epoch("archive", 0) == MINUTES


def test_drivers_that_start_at_once_get_different_epochs(
    zookeeper: FakeZooKeeper, driver: Coordination
) -> None:
    epochs = []

    def another_driver() -> None:
        zookeeper.before_set = lambda: None
        epochs.append(driver.take_epoch("traffic", 0))

    zookeeper.before_set = another_driver
    epochs.append(driver.take_epoch("traffic", 0))
    assert sorted(epochs) == [MINUTES, MINUTES + 1]


def test_a_lost_zookeeper_doesnt_take_epochs_back(
    zookeeper: FakeZooKeeper, driver: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = driver.take_epoch("traffic", 0)
    del zookeeper.nodes["/millrace/jobs/traffic/epoch"]
    monkeypatch.setattr(coordination.time, "time", lambda: NOW + 60)
    assert driver.take_epoch("traffic", 0) > before


def test_a_restored_zookeeper_and_a_slow_clock_dont_take_epochs_back(
    zookeeper: FakeZooKeeper, driver: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = driver.take_epoch("traffic", 0)
    zookeeper.nodes["/millrace/jobs/traffic/epoch"] = (b"7", 1)
    monkeypatch.setattr(coordination.time, "time", lambda: NOW - 86400)
    assert driver.take_epoch("traffic", written) > written


def test_who_no_longer_leads_takes_no_epoch(zookeeper: FakeZooKeeper, driver: Coordination) -> None:
    before = driver.take_epoch("traffic", 0)
    del zookeeper.nodes["/millrace/applications/insights/leader/lock-1"]
    with pytest.raises(LeaseLost):
        driver.take_epoch("traffic", 0)
    assert zookeeper.nodes["/millrace/jobs/traffic/epoch"][0] == str(before).encode()


def test_drivers_know_of_each_other(zookeeper: FakeZooKeeper, driver: Coordination) -> None:
    driver.announce("standby")
    driver.announce("leading")
    another = Coordination(
        "zookeeper", NAMES.zookeeper, "insights", replace(IDENTITY, attempt=2), 2.5
    )
    [leader] = another.others()
    assert leader["standing_by_since"] is None
    assert (leader["run"], leader["host"], leader["jvm"]) == (IDENTITY.run, "worker-1", 7)
    assert leader["state"] == "leading"
    assert driver.others() == []


def test_an_announcement_is_made_again_after_its_session_ended(
    zookeeper: FakeZooKeeper, driver: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.announce("standby")
    zookeeper.nodes.clear()
    monkeypatch.setattr(coordination.time, "time", lambda: NOW + 600)
    driver._announce_again()
    another = Coordination(
        "zookeeper", NAMES.zookeeper, "insights", replace(IDENTITY, attempt=2), 2.5
    )
    assert [other["standing_by_since"] for other in another.others()] == [NOW]
    [node] = driver._client.get_children("/millrace/applications/insights/drivers")
    assert node == IDENTITY.name


def test_a_rehearsal_is_announced_and_changes_nothing_else(
    zookeeper: FakeZooKeeper, driver: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.announce("standby")
    monkeypatch.setattr(coordination.time, "time", lambda: NOW + 600)
    driver.announce_rehearsal()
    another = replace(IDENTITY, attempt=2)
    [told] = Coordination("zookeeper", NAMES.zookeeper, "insights", another, 2.5).others()
    assert (told["state"], told["standing_by_since"]) == ("standby", NOW)
    assert told["rehearsed_at"] == NOW + 600


def test_who_is_warm_is_a_standby_unless_it_leads_by_now(
    zookeeper: FakeZooKeeper, driver: Coordination
) -> None:
    another = Coordination(
        "zookeeper", NAMES.zookeeper, "insights", replace(IDENTITY, attempt=2), 2.5
    )
    driver.announce("warming")
    driver.announce_standby()
    assert [other["state"] for other in another.others()] == ["standby"]
    driver.announce("leading")
    driver.announce_standby()
    assert [other["state"] for other in another.others()] == ["leading"]


def test_a_job_is_disabled_while_its_node_is_there(
    zookeeper: FakeZooKeeper, driver: Coordination
) -> None:
    assert driver.is_disabled("traffic") is False
    zookeeper.ensure_path("/millrace/jobs/traffic/disabled")
    assert driver.is_disabled("traffic") is True
    assert driver.is_disabled("archive") is False
    zookeeper.connected = False
    assert driver.is_disabled("traffic") is None


def test_what_jobs_do_is_told_when_it_changes(
    zookeeper: FakeZooKeeper, driver: Coordination
) -> None:
    driver.announce("leading")
    for _ in range(3):
        driver.announce_jobs({"traffic": "failed"}, {"traffic": "why"})
    [(value, number)] = [v for path, v in zookeeper.nodes.items() if path.endswith(IDENTITY.name)]
    assert json.loads(value)["jobs"] == {"traffic": "failed"}
    assert json.loads(value)["troubles"] == {"traffic": "why"}
    assert number == 1


def test_a_driver_knows_which_attempt_of_which_application_it_is() -> None:
    environment = {"CONTAINER_ID": "container_e17_1410901177871_0001_02_000001"}
    identity = identify("v1", environment)
    assert (identity.run, identity.attempt) == ("application_1410901177871_0001", 2)
    environment = {"CONTAINER_ID": "container_1410901177871_0012_01_000001"}
    assert identify("v1", environment).run == "application_1410901177871_0012"


@pytest.mark.parametrize(
    ("other", "attempt", "moves"),
    [
        (None, 1, False),
        ("worker-2", 1, False),
        ("worker-1", 1, True),
        ("worker-1", 2, True),  # the first was killed elsewhere
        ("worker-1", 4, False),  # there may be no other host
    ],
)
def test_two_drivers_keep_away_from_each_other(
    other: str | None, attempt: int, moves: bool
) -> None:
    identity = replace(IDENTITY, attempt=attempt)
    others = [{"host": other, "run": "application_1_2"}] if other else []
    with pytest.raises(SharesHost) if moves else nullcontext():
        keep_apart(identity, others)


def test_the_last_attempt_takes_any_host() -> None:
    assert load_plan("local").spark.settings.defaults.attempts > CHOOSY_ATTEMPTS


def leading_since(moment: float) -> bytes:
    other = replace(IDENTITY, run="application_1_2")
    return json.dumps(asdict(other) | {"state": "leading", "since": moment}).encode()


def test_who_has_just_taken_over_is_left_alone_as_long_as_it_leads(
    zookeeper: FakeZooKeeper, driver: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = "/millrace/applications/insights/drivers/application_1_2-1"
    zookeeper.nodes[node] = (leading_since(NOW), 0)
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            del zookeeper.nodes[node]  # it died

    # Of that module alone: other tests' threads may be asleep.
    clock = SimpleNamespace(sleep=pause, time=time.time)
    monkeypatch.setattr("millrace_jobs.driver.time", clock)
    let_catch_up(driver, 45)
    assert len(pauses) == 3
    zookeeper.nodes[node] = (leading_since(NOW - 45), 0)  # it has caught up
    let_catch_up(driver, 45)
    assert len(pauses) == 3


@pytest.mark.parametrize(
    ("order", "stop"),
    [
        ({"state": "stopped", "version": "v1"}, True),
        ({"state": "stopped", "version": "v0"}, False),  # meant for the version before
        ({"state": "running", "version": "v1"}, False),
        (None, False),
    ],
)
def test_orders_to_stop(
    zookeeper: FakeZooKeeper, driver: Coordination, order: dict[str, str] | None, stop: bool
) -> None:
    if order:
        zookeeper.nodes["/millrace/applications/insights/desired"] = (json.dumps(order).encode(), 0)
    assert driver.is_stop_desired("v1") is stop


def test_without_zookeeper_nobody_is_told_to_stop(
    zookeeper: FakeZooKeeper, driver: Coordination
) -> None:
    zookeeper.connected = False
    assert not driver.is_stop_desired("v1")


def test_draining_lets_the_batch_end_and_begins_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    began, finished = threading.Event(), []

    def slow(_: DataFrame, batch: int) -> None:
        began.set()
        time.sleep(2)
        finished.append(batch)

    draining = threading.Event()
    lease: Any = SimpleNamespace(confirm=lambda: None)
    query = (
        spark.readStream.format("rate")
        .load()
        .writeStream.foreachBatch(runner._while_leading(slow, lease, draining, []))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    assert began.wait(60)
    ready: Any = SimpleNamespace(job=None)
    one: Any = runner.RunningJob(ready, query, None, draining)  # type: ignore[arg-type]
    runner.drain([one])
    assert not query.isActive
    assert finished == [0]
    assert "0" in {path.name for path in (tmp_path / "offsets").iterdir()}


@pytest.mark.parametrize("lost", [True, False])
def test_who_lost_the_lease_waits_for_no_batch(monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    """A driver that was frozen would otherwise stay in its successor's standby's way."""
    drained: list[Any] = []
    context = SimpleNamespace(settings={"trigger_seconds": 1})
    one = SimpleNamespace(name="traffic", context=context, query=None, job=None)
    lease = SimpleNamespace(is_lost=False, acquire=lambda within: True, release=lambda: None)
    driver: Any = SimpleNamespace(
        lease=lease,
        announce=lambda state: None,
        is_disabled=lambda job: False,
        is_stop_desired=lambda version: False,
    )
    config: Any = SimpleNamespace(jobs=["traffic"], version="v1", lease_seconds=3)

    def fail(*_: Any) -> None:
        lease.is_lost = lost
        raise RuntimeError

    monkeypatch.setattr(runner, "Tables", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(runner, "prepare", lambda *_: one)
    monkeypatch.setattr(runner, "supervise", fail)
    monkeypatch.setattr(runner, "drain", drained.append)
    with pytest.raises(RuntimeError):
        runner.serve(config, None, workers([]), driver, rehearsing=False)  # type: ignore[arg-type]
    assert len(drained) == (0 if lost else 1)


@pytest.mark.parametrize(
    ("rehearsing", "leads_at_once", "steps"),
    [
        (True, False, ["rehearsal", "leads", "rehearsal ends"]),
        (False, True, ["standby"]),
        (False, False, ["standby", "rehearsal", "leads", "rehearsal ends"]),
    ],
)
def test_whoever_stands_by_rehearses(
    monkeypatch: pytest.MonkeyPatch, rehearsing: bool, leads_at_once: bool, steps: list[str]
) -> None:
    done: list[str] = []

    def acquire(within: float | None = None) -> bool:
        if within is None:
            done.append("leads")
        return leads_at_once

    def rehearse(*_: Any) -> Any:
        done.append("rehearsal")
        return SimpleNamespace(end=lambda: done.append("rehearsal ends"))

    monkeypatch.setattr(runner, "rehearse", rehearse)
    driver: Any = SimpleNamespace(lease=SimpleNamespace(acquire=acquire), announce=done.append)
    enabled: Any = [object()]
    runner.lead(enabled, workers([]), 3, driver, rehearsing=rehearsing)
    assert done == steps


def test_with_all_jobs_disabled_a_driver_leads_without_rehearsing() -> None:
    done: list[Any] = []
    lease = SimpleNamespace(acquire=lambda within=None: done.append(within) or within is None)
    driver: Any = SimpleNamespace(lease=lease, announce=done.append)
    runner.lead([], workers([]), 3, driver, rehearsing=True)
    assert done == ["standby", 6, None]


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
    monkeypatch.setattr(runner, "DRAIN_POLL_SECONDS", 0)
    query: Any = Results(*reports)
    runner.await_results(query)
    assert query.looks == looks


def test_other_jobs_wait_for_results_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0, 19, 21])
    slept: list[float] = []
    monkeypatch.setattr(
        runner, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=slept.append)
    )
    query: Any = Results(None, None, None)
    runner.await_results(query)
    assert len(slept) == 1


class Rehearsed:
    """A stand-in for a rehearsal, which is warm at once; ``done`` tells what was rehearsed."""

    def __init__(self, job: Any, scratch: Any, *_: Any, **more: Any) -> None:
        self.done.append((job, scratch, more.get("batches")))
        if job == self.fails:
            raise StreamingQueryException("no such table")
        if warm := more.get("when_warm"):
            warm()

    def wait(self) -> None: ...


@pytest.fixture
def rehearsed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is rehearsed, while jobs are as wide as said in `on_all_executors`."""
    Rehearsed.done, Rehearsed.fails = [], None
    monkeypatch.setattr(runner, "Rehearsal", Rehearsed)
    monkeypatch.setattr(runner, "scratch", lambda _, name: name)
    monkeypatch.setattr(
        runner, "on_all_executors", lambda one, _: replace(one, job=f"{one.name}, wide")
    )
    return Rehearsed.done


def workers(told: list[Any]) -> Any:
    return SimpleNamespace(
        number=2, complete=lambda: None, wait=lambda over: told.append("all executors")
    )


def to_rehearse(*names: str) -> list[runner.ReadyJob]:
    return [
        runner.ReadyJob(
            SimpleNamespace(job=name, settings={"rehearsal_pause_seconds": 60}),
            name,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
        )
        for name in names
    ]


def test_a_standby_is_one_once_all_jobs_ran_on_all_executors(rehearsed: list[Any]) -> None:
    driver: Any = SimpleNamespace(announce_standby=lambda: rehearsed.append("standby"))
    runner.rehearse(to_rehearse("traffic", "archive"), workers(rehearsed), driver)
    assert rehearsed == [
        ("traffic", "traffic", None),
        "all executors",
        ("traffic, wide", "traffic-on-all", 2),
        ("archive, wide", "archive-on-all", 2),
        "standby",
    ]


def test_many_jobs_keep_nobody_from_standing_by(
    monkeypatch: pytest.MonkeyPatch, rehearsed: list[Any]
) -> None:
    clock = iter([0, 1, 89, 91])
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    driver: Any = SimpleNamespace(announce_standby=lambda: rehearsed.append("standby"))
    runner.rehearse(to_rehearse("traffic", "archive", "sessions"), workers(rehearsed), driver)
    assert [entry[1] for entry in rehearsed[2:-1]] == ["traffic-on-all", "archive-on-all"]
    assert rehearsed[-1] == "standby"


def test_a_job_that_cannot_be_prepared_keeps_nobody_from_standing_by(
    monkeypatch: pytest.MonkeyPatch, rehearsed: list[Any]
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("HDFS is away")

    monkeypatch.setattr(runner, "on_all_executors", fail)
    driver: Any = SimpleNamespace(announce_standby=lambda: rehearsed.append("standby"))
    runner.rehearse(to_rehearse("traffic", "archive"), workers(rehearsed), driver)
    assert rehearsed[-1] == "standby"


def test_what_fails_on_all_executors_keeps_nobody_from_standing_by(rehearsed: list[Any]) -> None:
    Rehearsed.fails = "traffic, wide"
    driver: Any = SimpleNamespace(announce_standby=lambda: rehearsed.append("standby"))
    runner.rehearse(to_rehearse("traffic", "archive"), workers(rehearsed), driver)
    assert rehearsed[-2:] == [("archive, wide", "archive-on-all", 2), "standby"]


@pytest.mark.parametrize(("number", "tasks", "partitions"), [(2, 2, 3), (1, 1, 3), (4, 4, 4)])
def test_on_all_executors_is_a_task_for_each(
    monkeypatch: pytest.MonkeyPatch, number: int, tasks: int, partitions: int
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(runner, "prepare", lambda *arguments: made.append(arguments))

    @dataclass(frozen=True)
    class Jobs:
        settings: dict[str, Any]

    own = {"tasks": 1, "shuffle_partitions": 3, "trigger_seconds": 1}
    context: Any = SimpleNamespace(
        job="traffic",
        config=Jobs({"traffic": own, "archive": {}}),
        settings=own,
        spark=None,
        tables="tables",
        lease="lease",
    )
    runner.on_all_executors(runner.ReadyJob(context, None, None), number)  # type: ignore[arg-type]
    [(name, config, *_)] = made
    assert name == "traffic"
    assert config.settings["traffic"] == own | {"tasks": tasks, "shuffle_partitions": partitions}
    assert context.config.settings["traffic"] == own


def prepared(name: str) -> Any:
    return runner.ReadyJob(SimpleNamespace(job=name), None, None)  # type: ignore[arg-type]


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
    return runner.RunningJob(prepared(name), query, follow, threading.Event(), **more)


Orders = Callable[[str], bool | None]


def supervised(
    monkeypatch: pytest.MonkeyPatch,
    jobs: list[Any],
    *successors: Any,
    orders: Iterable[Orders] = (lambda job: False,) * 5,
    told: list[dict[str, str]] | None = None,
) -> list[str]:
    """The jobs that were started until the driver was told to stop, after a look for each order:
    which jobs are disabled."""
    started: list[str] = []
    left = iter(successors)
    looks = iter(orders)
    driver: Any = SimpleNamespace(
        lease=SimpleNamespace(is_lost=False),
        announce_jobs=lambda states, _: told is not None and told.append(states),
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

    monkeypatch.setattr(runner, "start", start)
    monkeypatch.setattr(runner, "await_results", lambda query: started.append("first batch"))
    monkeypatch.setattr(runner, "POLL_SECONDS", 0)
    driver.is_stop_desired = is_stop_desired
    runner.supervise(jobs, driver, "v1", SimpleNamespace(look=lambda: None))
    return started


def only(*disabled: str) -> Orders:
    return lambda job: job in disabled


def silent(_: str) -> None:
    """ZooKeeper doesn't say."""


def test_jobs_start_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [prepared("traffic"), prepared("archive")]
    started = supervised(monkeypatch, jobs, running("traffic"), running("archive"))
    assert started == ["traffic", "first batch", "archive"]


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
    drained = running("traffic", *[runner.Drained()] * 5)
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


class FakeTables:
    def __init__(self, row: Any = None) -> None:
        self.row = row
        self.rows: list[dict[str, Any]] = []
        self.work: dict[str, Any] = {}
        self.timestamps: list[int] = []
        self.written: Counter[str] = Counter()

    def select_one(self, *_: Any) -> Any:
        return self.row

    def upsert(self, table: str, columns: Any, rows: Any, timestamp: int) -> None:
        self.written[table] += 1
        if table == "job_work":
            self.work = dict(zip(columns, rows[0], strict=True))
            return
        self.rows += [dict(zip(columns, row, strict=True)) for row in rows]
        self.timestamps.append(timestamp)


@pytest.mark.parametrize("written", [90, 0])
def test_a_run_takes_an_epoch_above_what_was_written_and_claims_it_first(
    monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    tables = FakeTables(SimpleNamespace(epoch=written, checkpoint=None) if written else None)
    context = runner.JobContext("traffic", *[None] * 2, tables, None, None)  # type: ignore[arg-type]
    asked: list[int] = []

    class Started(Exception):
        """Far enough."""

    def lead() -> None:
        raise Started

    def take_epoch(_: str, above: int) -> int:
        asked.append(above)
        return above + 1

    monkeypatch.setattr(runner, "contract", lambda *_: {})
    monkeypatch.setattr(runner.JobContext, "settings", {})
    monkeypatch.setattr(runner.JobContext, "streams", [SimpleNamespace(topic="events")])
    driver: Any = SimpleNamespace(
        take_epoch=take_epoch, put_contract=lambda *_: None, kept_checkpoint=lambda _: "traffic"
    )
    job: Any = SimpleNamespace(lead=lead)
    with pytest.raises(Started):
        runner.start(runner.ReadyJob(context, job, None), driver)  # type: ignore[arg-type]
    assert asked == [written]
    assert tables.rows == [{"job": "traffic", "epoch": written + 1}]
    assert tables.timestamps == [version(written + 1, 0)]


@pytest.mark.parametrize("kept", ["traffic", None])
def test_a_checkpoint_that_vanished_is_refused_before_anything_is_fenced(
    monkeypatch: pytest.MonkeyPatch, kept: str | None
) -> None:
    tables = FakeTables(SimpleNamespace(epoch=90, checkpoint="query", batch=7))
    gone = SimpleNamespace(query_id=lambda: None, newest=lambda: -1, location="hdfs://x")
    context = runner.JobContext("traffic", *[None] * 2, tables, gone, None)  # type: ignore[arg-type]
    monkeypatch.setattr(runner.JobContext, "settings", {"checkpoint": "traffic"})
    driver: Any = SimpleNamespace(kept_checkpoint=lambda _: kept)
    with pytest.raises(Discontinued, match="is gone"):
        runner.start(runner.ReadyJob(context, None, None), driver)  # type: ignore[arg-type]
    assert tables.rows == []


def test_another_folder_is_a_new_start(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = FakeTables(SimpleNamespace(checkpoint="query", batch=7))
    context = runner.JobContext("traffic", *[None] * 2, tables, None, None)  # type: ignore[arg-type]
    monkeypatch.setattr(runner.JobContext, "settings", {"checkpoint": "traffic-2"})
    runner.check_continuity(context, "traffic")


class FakeLateEvents:
    windows = WINDOW_SECONDS

    def __init__(self) -> None:
        self.counted: list[int] = []
        self.watermarks_ms: list[int] = []
        self.ends: list[Any] = []
        self.readings = 0
        self.error: Exception | None = None

    def count(self, _: str, batches: list[JudgedBatch]) -> int:
        if self.error:
            raise self.error
        self.readings += 1
        self.counted += [batch.number for batch in batches]
        self.watermarks_ms += [batch.watermark_ms for batch in batches]
        self.ends += [batch.records.end for batch in batches]
        return 10 * len(batches)


def batch(number: int, watermark: str = "1970-01-01T00:00:00.000Z", dropped: int = 0) -> Any:
    """Spark's progress of a batch that reads two topics, and drops so many rows in its join."""
    return SimpleNamespace(
        batchId=number,
        eventTime={"watermark": watermark, "max": "2015-05-17T10:30:00.000Z"},
        stateOperators=[SimpleNamespace(numRowsDroppedByWatermark=rows) for rows in (0, dropped)],
        inputRowsPerSecond=7.0,
        durationMs={"addBatch": 400, "triggerExecution": 500},
        sources=[
            SimpleNamespace(
                startOffset=offsets(topic, number), endOffset=offsets(topic, number + 1)
            )
            for topic in ("events", "clicks")
        ],
    )


def offsets(topic: str, batches: int) -> str | None:
    """After so many batches of ten records, as Spark's progress has them."""
    return json.dumps({topic: {"0": 10 * batches}}) if batches else None


def known(**changes: Any) -> SimpleNamespace:
    """The job's row, as the driver before left it."""
    row = {"checkpoint": "query", "watermark": None, "max_event_time": None}
    return SimpleNamespace(**row | changes)


def follow(
    batches: list[Any],
    row: Any = None,
    committed: int = -1,
    leads_for: float = progress.CATCH_UP_SECONDS,
) -> tuple[Progress, FakeTables, FakeLateEvents]:
    tables, late = FakeTables(row), FakeLateEvents()
    context = SimpleNamespace(
        job="traffic",
        epoch=5,
        version=lambda batch: version(5, batch),
        settings={"trigger_seconds": 2, "watermark_seconds": 3600},
        tables=tables,
        config=SimpleNamespace(version="v1"),
        checkpoint=SimpleNamespace(
            oldest=lambda: 3,
            batch=lambda number: Batch({}, {}),
            watermark_ms=lambda number: 1000 * number,
        ),
    )
    query: Any = SimpleNamespace(id="query", _jsq=None)
    following = Progress(context, query, late, committed)
    following._reports = Told(batches)  # type: ignore[assignment]
    following._began -= leads_for
    return following, tables, late


class Told:
    """Reports of these batches."""

    def __init__(self, reports: list[Any]) -> None:
        self.unread = reports

    def tell(self, report: Any) -> None:
        self.unread.append(report)

    def news(self) -> list[Any]:
        news, self.unread = self.unread, []
        return news


def test_only_batches_of_which_spark_dropped_something_are_read_again() -> None:
    watermark = "2015-05-17T10:06:00.000Z"
    batches = [batch(0), batch(1, watermark, dropped=1), batch(2, watermark), batch(3, watermark)]
    following, tables, late = follow(batches)
    following.follow()
    assert late.counted == [1]
    assert late.ends == [{"events": {"0": 20}, "clicks": {"0": 20}}]
    row = tables.rows[-1]
    assert (row['"batch"'], row["epoch"], row["version"]) == (3, 5, "v1")
    assert row["watermark"].isoformat() == "2015-05-17T10:06:00+00:00"
    assert row["max_event_time"].isoformat() == "2015-05-17T11:06:00+00:00"  # an hour ahead of it


def test_what_a_driver_has_done_adds_up_from_when_it_began_to_lead() -> None:
    following, tables, _ = follow([batch(8), batch(9, *LATE)], known(batch=7), committed=7)
    following.follow()
    assert tables.work == {"job": "traffic", "batches": 2, "batch_ms": 1000, "late_events": 10}


def test_a_batch_is_taken_in_once() -> None:
    following, _, late = follow([batch(1, *LATE)])
    following.follow()
    following.follow()
    assert late.counted == [1]


def test_a_further_stream_is_archived_by_the_same_program() -> None:
    jobs = ("archive", "archive_clicks", "traffic")
    programs = [runner.program(job, {}).__name__ for job in jobs]
    assert programs == ["Archive", "Archive", "Traffic"]
    assert runner.program("attribution", {}) is runner.Declared


def test_no_job_takes_more_than_the_archive_in_the_same_time() -> None:
    plan = load_plan("local")
    settings = plan.spark.rendered()["settings"]
    rates = {}
    for job in plan.jobs:
        own = settings["common"] | settings[job]
        config: Any = SimpleNamespace(settings={job: own})
        context = runner.JobContext(job, config, *[None] * 4)  # type: ignore[arg-type]
        rates[job] = context.max_offsets / max(own["trigger_seconds"], 1)
        assert context.max_offsets == plan.spark.settings.batch_records(job)  # as operators see it
    assert len(rates) > 1
    assert rates["archive"] == rates["traffic"] == max(rates.values())


LATE = "2015-05-17T11:00:00Z", 1


def test_a_slow_clock_has_its_batches_read_again_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    following, tables, late = follow([])
    for number in range(12):
        now = float(number)
        following._reports.tell(batch(number, *LATE))  # type: ignore[attr-defined]
        following.follow()
    assert late.counted == list(range(11))
    assert late.readings == 3  # after 0, 5 and 10 s
    assert tables.rows[-1]['"batch"'] == 10  # the newest that is counted
    assert late.watermarks_ms[:2] == [0, millis("2015-05-17 11:00:00")]  # of the batch before


@pytest.mark.parametrize("error", [RuntimeError("offsets are gone"), WriteFailed("no quorum")])
def test_what_cant_be_counted_ends_nothing_and_is_told(error: Exception) -> None:
    following, tables, late = follow([batch(0, *LATE), batch(1, *LATE)])
    late.error = error
    following.follow()
    told, row = tables.rows
    assert (told["first_batch"], told["last_batch"], told["reason"]) == (0, 1, str(error))
    assert row['"batch"'] == 1


def test_what_the_checkpoint_has_forgotten_is_told() -> None:
    following, tables, late = follow([batch(9)], known(batch=0), committed=8)
    following.follow()
    assert late.counted == [3, 4, 5, 6, 7, 8]
    assert (tables.rows[0]["first_batch"], tables.rows[0]["last_batch"]) == (1, 2)
    assert tables.rows[-1]['"batch"'] == 9


def test_the_batch_to_come_of_an_idle_query_is_not_taken_for_one_that_ran() -> None:
    to_come = batch(1)
    to_come.durationMs = {"latestOffset": 3, "triggerExecution": 4}
    following, tables, late = follow([batch(0), to_come])
    following.follow()
    assert tables.rows[-1]['"batch"'] == 0
    following._reports.tell(batch(1, *LATE))  # type: ignore[attr-defined]
    following.follow()
    assert late.counted == [1]


def test_what_the_driver_before_left_uncounted_is_counted() -> None:
    following, tables, late = follow([], known(batch=4), committed=6)
    following.follow()
    assert late.counted == [5, 6]
    following.follow()
    assert tables.rows[-1]['"batch"'] == 6
    assert tables.rows[-1]["watermark"].timestamp() == 7
    assert tables.rows[-1]["max_event_time"].timestamp() == 3607


def test_nothing_is_counted_while_results_catch_up() -> None:
    following, tables, late = follow([batch(7, *LATE)], known(batch=4), committed=6, leads_for=0)
    following.follow()
    assert late.counted == []
    assert tables.rows[-1]['"batch"'] == 4  # whoever leads next counts them
    following._began -= progress.CATCH_UP_SECONDS
    following.follow()
    assert late.counted == [5, 6, 7]
    assert late.readings == 1


def test_progress_goes_on_from_what_the_driver_before_wrote() -> None:
    row = known(batch=4, max_event_time=datetime(2015, 5, 18))
    following, tables, _ = follow([batch(5)], row)
    following.follow()
    assert tables.rows[-1]["max_event_time"].isoformat() == "2015-05-18T00:00:00+00:00"


def test_batches_of_another_checkpoint_dont_count_as_known() -> None:
    row = known(batch=400, checkpoint="older")
    following, _, late = follow([batch(5)], row, committed=4)
    following.follow()
    following.follow()
    assert late.counted == [3, 4]  # 3 is the oldest that the checkpoint still tells about


def test_heartbeats_are_in_order_and_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    due = progress.HEARTBEAT_SECONDS
    clock = iter([0.0, 0.0, 0.4 * due, 1.2 * due])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    following, tables, _ = follow([])
    for _ in range(3):
        following.follow()
    assert tables.timestamps == [version(5, 0), version(5, 1)]  # the second one came too soon


def test_an_idle_job_only_says_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    due = progress.HEARTBEAT_SECONDS
    clock = iter([0.0, *(number * due for number in range(4))])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    following, tables, _ = follow([batch(0)])
    following.follow()
    following.follow()
    assert (tables.written["job_progress"], tables.written["job_work"]) == (2, 1)
    following._reports.tell(batch(1))  # type: ignore[attr-defined]
    following.follow()
    assert (tables.written["job_progress"], tables.written["job_work"]) == (3, 2)


def test_heartbeats_stay_in_their_epoch_however_long_a_driver_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([0.0, 49 * 86400.0, 50 * 86400.0])  # milliseconds fill 32 bits in 49.7 days
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    following, tables, _ = follow([])
    following.follow()
    following.follow()
    assert tables.timestamps == sorted(tables.timestamps)
    assert all(timestamp < version(6, 0) for timestamp in tables.timestamps)
    assert len(tables.timestamps) == 2


def test_a_declared_job_that_fails_again_pauses_and_ends_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])
    declared = object.__new__(runner.Declared)
    context = SimpleNamespace(job="theirs")
    ready = runner.ReadyJob(context, declared, None)  # type: ignore[arg-type]
    query = SimpleNamespace(lastProgress=None)
    failed = runner.RunningJob(ready, query, None, threading.Event())  # type: ignore[arg-type]
    started = replace(failed)
    monkeypatch.setattr(runner, "start", lambda *_: started)
    error = ValueError("poison")

    again = runner.start_again(failed, error, None)  # type: ignore[arg-type]
    assert again.is_second_try
    paused = runner.start_again(again, error, None)  # type: ignore[arg-type]
    assert paused.paused_until > clock[0]
    assert runner.start_again(paused, error, None) is paused  # type: ignore[arg-type]
    clock[0] = paused.paused_until
    resumed = runner.start_again(paused, error, None)  # type: ignore[arg-type]
    assert resumed.is_second_try
    assert not resumed.paused_until


GONE = Discontinued("job archive: the checkpoint hdfs://x: it is gone")


def refusing(monkeypatch: pytest.MonkeyPatch, *refusals: Exception | None) -> list[float]:
    """Starts of jobs are refused by turns; the clock, which is the test's to move."""
    clock = [1000.0]
    left = iter(refusals)

    def start(ready: Any, _: Any) -> Any:
        if error := next(left):
            raise error
        return running(ready.name, batches=1)

    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(runner, "start", start)
    monkeypatch.setattr(runner, "await_results", lambda _: None)
    return clock


@pytest.mark.parametrize("is_first", [True, False])
def test_a_refused_job_stays_out_until_its_checkpoint_is_back(
    monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    clock = refusing(monkeypatch, GONE, GONE, None)
    driver: Any = SimpleNamespace(is_disabled=lambda _: False)

    def look(job: Any) -> Any:
        return runner.tend(job, driver, is_first=is_first)

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
    driver: Any = SimpleNamespace(is_disabled=lambda _: False)
    job = running("traffic", ValueError("in Spark's words"), raised=[GONE])
    refused = runner.tend(job, driver, is_first=True)
    assert isinstance(refused, runner.ReadyJob)
    assert refused.state == "failed"


def test_a_refused_job_that_is_disabled_has_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, GONE)
    driver: Any = SimpleNamespace(is_disabled=lambda _: False)
    refused = runner.tend(prepared("archive"), driver, is_first=False)
    driver.is_disabled = lambda _: True
    assert runner.tend(refused, driver, is_first=False).state == "disabled"


def test_a_refused_job_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [prepared("traffic"), prepared("archive")]
    told: list[dict[str, str]] = []
    other = running("archive", batches=1)

    monkeypatch.setattr(runner, "refuse", lambda job, _: replace(job, trouble="gone"))
    started = supervised(monkeypatch, jobs, GONE, other, *[GONE] * 4, told=told)
    assert "archive" in started
    assert told[-1] == {"traffic": "failed", "archive": "running"}


def declared_job(query: Any, **more: Any) -> runner.RunningJob:
    ready = runner.ReadyJob(
        SimpleNamespace(job="theirs"),  # type: ignore[arg-type]
        object.__new__(runner.Declared),
        None,  # type: ignore[arg-type]
    )
    return runner.RunningJob(ready, query, None, threading.Event(), **more)  # type: ignore[arg-type]


def test_without_what_it_failed_by_a_job_goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "start", lambda *_: started)
    started = declared_job(SimpleNamespace(lastProgress=None))
    again = runner.start_again(
        replace(started, is_second_try=True),
        Quarantined("batch 5 is run again without events-0-7"),
        None,  # type: ignore[arg-type]
    )
    assert not again.paused_until


def test_a_job_that_fails_by_its_code_is_tried_again_more_and_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(
        runner, "start", lambda *_: declared_job(SimpleNamespace(lastProgress=None))
    )
    job = declared_job(SimpleNamespace(lastProgress=None), is_second_try=True)
    error = NotInRecords("more than 50 further records fail: no\nand more")
    pauses = []
    for _ in range(7):
        job = runner.start_again(job, error, None)  # type: ignore[arg-type]
        assert job.trouble == "more than 50 further records fail: no"
        pauses.append(job.paused_until - clock[0])
        clock[0] = job.paused_until
        job = runner.start_again(job, error, None)  # type: ignore[arg-type]
        assert not job.trouble
    assert pauses == [60, 120, 240, 480, 960, 960, 960]
    ended_one = replace(job, query=SimpleNamespace(lastProgress=object()))  # type: ignore[arg-type]
    job = runner.start_again(ended_one, error, None)  # type: ignore[arg-type]
    assert runner.start_again(job, error, None).paused_until == clock[0] + 60  # type: ignore[arg-type]


def test_a_first_job_that_fails_by_its_data_ends_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    query = SimpleNamespace(exception=lambda: RuntimeError("as Spark says it"), lastProgress=None)
    failed = declared_job(query, raised=[NotInRecords("it is the code")], is_second_try=True)
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

    job: Any = object.__new__(runner.Declared)
    steps: list[str] = []
    context: Any = SimpleNamespace(job="theirs", tables=None, settings={}, streams=[])
    context.checkpoint = SimpleNamespace(location="", last_committed=lambda: -1)
    context.max_offsets = 7
    context.spark = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    context.lease = None

    class Frame:
        def __init__(self, name: str) -> None:
            self.name = name

        @property
        def writeStream(self) -> Any:
            steps.append(self.name)
            raise Started

    monkeypatch.setattr(runner.Declared, "lead", lambda _: steps.append("lead"))
    monkeypatch.setattr(runner.Declared, "take_skips", lambda _: changed)
    monkeypatch.setattr(runner.Declared, "frame", lambda *_: Frame("built anew"))
    monkeypatch.setattr(runner, "check_continuity", lambda *_: None)
    monkeypatch.setattr(runner, "last_epoch", lambda *_: 0)
    monkeypatch.setattr(runner, "claim", lambda _: None)
    monkeypatch.setattr(runner, "contract", lambda *_: {})
    driver: Any = SimpleNamespace(
        take_epoch=lambda *_, **__: 1, put_contract=lambda *_: None, kept_checkpoint=lambda _: None
    )
    with pytest.raises(Started):
        runner.start(runner.ReadyJob(context, job, Frame("prepared")), driver)  # type: ignore[arg-type]
    assert steps == ["lead", "built anew" if changed else "prepared"]


@pytest.mark.slow
def test_batches_send_hadoops_configuration_without_the_names_of_its_files(
    spark: SparkSession,
) -> None:
    java: Any = spark.sparkContext._jvm
    configuration = spark.sparkContext._jsc.hadoopConfiguration()

    def sent() -> int:
        written = java.java.io.ByteArrayOutputStream()
        configuration.write(java.java.io.DataOutputStream(written))
        return int(written.size())

    values, before = configuration.size(), sent()
    runner._forget_sources(spark)
    assert sent() < 0.7 * before
    assert configuration.size() == values
    configuration.set("one.more", "value")
    assert configuration.get("one.more") == "value"
