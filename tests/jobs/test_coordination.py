"""Epochs, announcements, orders to stop."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
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
from millrace_jobs.driver.lifecycle import (
    BEHIND_SECONDS,
    CHOOSY_ATTEMPTS,
    SharesHost,
    keep_apart,
    let_catch_up,
)
from millrace_jobs.leadership import coordination
from millrace_jobs.leadership.coordination import Coordination, JobReport
from millrace_jobs.leadership.identity import Identity, identify
from millrace_jobs.leadership.lease import LeaseLost

from millrace.plan import load_plan
from millrace_shared.driver_record import DriverRecord
from tests.jobs.samples import NAMES

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

    def delete(self, path: str) -> None:
        if self.nodes.pop(path, None) is None:
            raise NoNodeError

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
    another = another_driver()
    [leader] = another.others()
    assert leader.standing_by_since is None
    assert (leader.run, leader.host, leader.jvm) == (IDENTITY.run, "worker-1", 7)
    assert leader.state == "leading"
    assert driver.others() == []


def test_an_announcement_is_made_again_after_its_session_ended(
    zookeeper: FakeZooKeeper, driver: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.announce("standby")
    zookeeper.nodes.clear()
    monkeypatch.setattr(coordination.time, "time", lambda: NOW + 600)
    driver._announce_again()
    another = another_driver()
    assert [other.standing_by_since for other in another.others()] == [NOW]
    [node] = driver._client.get_children("/millrace/applications/insights/drivers")
    assert node == IDENTITY.name


def test_a_rehearsal_is_announced_and_changes_nothing_else(
    zookeeper: FakeZooKeeper, driver: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.announce("standby")
    monkeypatch.setattr(coordination.time, "time", lambda: NOW + 600)
    driver.announce_rehearsal()
    [told] = another_driver().others()
    assert (told.state, told.standing_by_since) == ("standby", NOW)
    assert told.rehearsed_at == NOW + 600


def another_driver() -> Coordination:
    """Of the same application, as YARN starts it after the first one."""
    identity = replace(IDENTITY, attempt=2)
    return Coordination("zookeeper", NAMES.zookeeper, "insights", identity, 2.5)


def test_who_is_warm_is_a_standby_unless_it_leads_by_now(
    zookeeper: FakeZooKeeper, driver: Coordination
) -> None:
    another = another_driver()
    driver.announce("warming")
    driver.announce_standby()
    assert [other.state for other in another.others()] == ["standby"]
    driver.announce("leading")
    driver.announce_standby()
    assert [other.state for other in another.others()] == ["leading"]


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
    told = JobReport("failed", "why", 7.0, "job-failed")
    for _ in range(3):
        driver.announce_jobs({"traffic": told, "archive": JobReport("running")}, {"archive": 5.0})
    [(value, number)] = [v for path, v in zookeeper.nodes.items() if path.endswith(IDENTITY.name)]
    record = DriverRecord.parse(value)
    assert record.jobs == {"traffic": "failed", "archive": "running"}
    assert record.troubles == {"traffic": "why"}
    assert record.failed_since == {"traffic": 7.0}
    assert record.runbooks == {"traffic": "job-failed"}
    assert record.behind_since == {"archive": 5.0}
    assert number == 1


def test_a_hand_over_is_known_to_the_next_driver_until_it_is_forgotten(
    zookeeper: FakeZooKeeper, driver: Coordination
) -> None:
    another = another_driver()
    driver.forget_hand_over("traffic")
    driver.note_hand_over("traffic", "why")
    assert another.was_handed_over("traffic")
    assert not another.was_handed_over("archive")
    [(value, _)] = [v for path, v in zookeeper.nodes.items() if path.endswith("/handover")]
    assert json.loads(value) == {"by": IDENTITY.name, "at": NOW, "reason": "why"}
    another.forget_hand_over("traffic")
    assert not driver.was_handed_over("traffic")


def test_only_another_driver_that_is_warm_is_a_standby(
    zookeeper: FakeZooKeeper, driver: Coordination
) -> None:
    another = another_driver()
    driver.announce("standby")
    another.announce("warming")
    assert not driver.has_standby()
    another.announce("standby")
    assert driver.has_standby()


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
    others = [DriverRecord("application_1_2", other, "leading", NOW)] if other else []
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
    clock = SimpleNamespace(sleep=pause, time=lambda: NOW)
    monkeypatch.setattr("millrace_jobs.driver.lifecycle.time", clock)
    let_catch_up(driver, 45)
    assert len(pauses) == 3
    zookeeper.nodes[node] = (leading_since(NOW - 45), 0)  # it has caught up
    let_catch_up(driver, 45)
    assert len(pauses) == 3


def test_who_is_behind_is_left_alone_for_a_while(
    zookeeper: FakeZooKeeper, driver: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = "/millrace/applications/insights/drivers/application_1_2-1"
    told = json.loads(leading_since(NOW - 3600)) | {"behind_since": {"traffic": NOW}}
    zookeeper.nodes[node] = (json.dumps(told).encode(), 0)
    assert driver.is_leader_behind()
    now = [float(NOW)]

    def pause(seconds: float) -> None:
        now[0] += seconds

    clock = SimpleNamespace(sleep=pause, time=lambda: now[0])
    monkeypatch.setattr("millrace_jobs.driver.lifecycle.time", clock)
    let_catch_up(driver, 45)
    assert now[0] == NOW + BEHIND_SECONDS
    zookeeper.nodes[node] = (leading_since(NOW - 3600), 0)
    let_catch_up(driver, 45)
    assert now[0] == NOW + BEHIND_SECONDS
    assert not driver.is_leader_behind()
    zookeeper.connected = False
    assert not driver.is_leader_behind()


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


def test_a_contract_keeps_the_fields_that_a_version_leaves_out(driver: Coordination) -> None:
    for contract, kept in [
        ({"checkpoint": "a", "fields": {"x": "int"}, "topic": "t"}, {"x": "int"}),
        ({"checkpoint": "a", "fields": {"y": "int"}}, {"x": "int", "y": "int"}),
        ({"checkpoint": "a", "fields": {"x": "int"}}, {"x": "int", "y": "int"}),
        ({"checkpoint": "b", "fields": {"x": "string"}}, {"x": "string"}),
    ]:
        driver.put_contract("archive", contract)
        found = json.loads(driver._client.get(f"{NAMES.zookeeper.jobs}/archive/contract")[0])
        assert found == contract | {"fields": kept}


def test_tries_are_counted_by_question(driver: Coordination) -> None:
    numbers = [driver.count_try("sessions", "skip", id) for id in ("a", "a", "b", "b", "a")]
    assert numbers == [1, 2, 1, 2, 1]
    assert driver.count_try("sessions", "retry", "a") == 1
