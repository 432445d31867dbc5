"""A batch is written exactly once, wherever a driver dies: the real sinks over stores in memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.inputs.continuity import CheckpointMismatch
from millrace_jobs.leadership.lease import LeaseLost
from millrace_jobs.query.write_version import write_version
from millrace_jobs.sinks import batch_commit, concurrently, results
from millrace_jobs.sinks.batch_commit import BatchIdentity, Effects
from millrace_jobs.sinks.results import Results

from tests.jobs import fakes
from tests.jobs.samples import NAMES, settings_of
from tests.jobs.world import AtOnce

SETTINGS = settings_of("traffic")
BATCHES = 2
REQUESTS = 10  # of a driver that writes them all


class Killed(BaseException):
    """Ends a driver: nothing catches it, and nothing that comes after it takes effect."""


@dataclass
class Stores:
    """What outlives drivers. The driver that is at the request ``dies_at`` dies of it.

    ``answered``: whether the request has taken effect by then.
    """

    dies_at: int = 0
    answered: bool = False
    requests: int = 0
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)  # key → version, value
    pins: dict[int, int] = field(default_factory=dict)  # batch → what it saw when it first ran
    published: list[dict[str, Any]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kafka = fakes.Kafka(lambda effect, _: self.request(effect), self.published.append)

    def request(self, effect: Callable[[], Any]) -> Any:
        self.requests += 1
        dies = self.requests == self.dies_at
        if dies and not self.answered:
            raise Killed
        answer = effect()
        if dies:
            raise Killed
        return answer

    def upsert(self, key: str, version: int, value: int) -> None:
        if version >= self.rows.get(key, (-1, 0))[0]:
            self.rows[key] = version, value


@pytest.fixture(params=["stored first", "published first"])
def stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Stores:
    found = Stores()
    monkeypatch.setattr(results, "Producer", lambda one: fakes.Producer(found.kafka, one))
    monkeypatch.setattr(results, "Consumer", lambda one: fakes.Consumer(found.kafka, one))
    monkeypatch.setattr(results, "ThreadPoolExecutor", AtOnce)
    beside_block = FirstThen if request.param == "stored first" else LastThen
    monkeypatch.setattr(concurrently, "ThreadPoolExecutor", beside_block)
    return found


class FirstThen(AtOnce):
    """What is done beside is done before the block."""

    def __enter__(self) -> "FirstThen":
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, work: Callable[[], Any]) -> Any:
        found = work()
        return SimpleNamespace(result=lambda: found)


class LastThen(FirstThen):
    """What is done beside is done after the block."""

    def submit(self, work: Callable[[], Any]) -> Any:
        return SimpleNamespace(result=work)


class Driver:
    """One process. ``sees`` is what lookup tables say while it runs: another thing each time."""

    def __init__(self, stores: Stores, epoch: int) -> None:
        self.stores, self.epoch = stores, epoch
        verify = partial(stores.steps.append, "verify")
        self.results = Results("", NAMES.kafka, "test", SETTINGS, verify)
        self.results.take_over()

    def write(self, number: int, read: int | None = None) -> bool:
        stores = self.stores
        offsets = {"events": {"0": read or 10 * (number + 1)}}
        identity = BatchIdentity("query", number, write_version(self.epoch, number), offsets)

        def pin() -> int:
            stores.steps.append("prepare")
            return stores.request(lambda: stores.pins.setdefault(number, self.epoch))

        def prepare() -> Effects:
            seen = pin()
            record = {"key": f"{number}", "value": seen, "version": identity.version}
            return Effects([record], partial(store, seen))

        def store(seen: int) -> None:
            stores.steps.append("store")
            stores.request(lambda: stores.upsert(f"{number}", identity.version, seen))

        def confirm() -> None:
            stores.steps.append("confirm")

        return batch_commit.commit(identity, self.results, confirm, prepare)


def all_batches(stores: Stores) -> int:
    """Drivers, one after the other, until all batches are written; how many died."""
    died, committed = 0, 0
    while committed < BATCHES:
        try:
            driver = Driver(stores, epoch=1 + died)
            while committed < BATCHES:
                driver.write(committed)
                committed += 1
        except Killed:
            died += 1
    return died


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("dies_at", range(1, REQUESTS + 1))
def test_wherever_a_driver_dies_each_batch_is_there_once(
    stores: Stores, dies_at: int, answered: bool
) -> None:
    stores.dies_at, stores.answered = dies_at, answered
    died = all_batches(stores)
    assert died == 1
    assert [record["key"] for record in stores.published] == ["0", "1"]
    by_key = {record["key"]: record["value"] for record in stores.published}
    assert {key: value for key, (_, value) in stores.rows.items()} == by_key
    assert {key: stores.pins[int(key)] for key in by_key} == by_key


def test_a_driver_that_lives_makes_as_many_requests(stores: Stores) -> None:
    assert all_batches(stores) == 0
    assert stores.requests == REQUESTS


def test_the_lease_is_confirmed_before_each_write(stores: Stores) -> None:
    Driver(stores, 1).write(0)
    assert stores.steps == ["verify", "confirm", "prepare", "confirm", "store"]


def test_a_batch_that_is_published_is_stored_and_not_published_again(stores: Stores) -> None:
    assert Driver(stores, 1).write(0)
    assert not Driver(stores, 2).write(0)
    assert len(stores.published) == 1
    assert stores.rows["0"] == (write_version(2, 0), 1)


@pytest.mark.parametrize(("number", "read"), [(0, None), (1, 15)])
def test_a_checkpoint_that_went_back_is_refused_before_anything_is_written(
    stores: Stores, number: int, read: int | None
) -> None:
    all_batches(stores)
    stores.steps.clear()
    with pytest.raises(CheckpointMismatch):
        Driver(stores, 2).write(number, read)
    assert stores.steps == ["verify"]


def test_who_lost_the_lease_writes_nothing(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise LeaseLost

    driver = Driver(stores, 1)
    identity = BatchIdentity("query", 0, write_version(1, 0), {"events": {"0": 10}})
    with pytest.raises(LeaseLost):
        batch_commit.commit(identity, driver.results, lost, lambda: pytest.fail("it prepares"))
    assert not stores.rows
    assert not stores.published
