"""The lease: a driver that can't be sure that it leads doesn't write."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from kazoo.exceptions import (
    BadVersionError,
    LockTimeout,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from millrace_jobs.leadership import lease as module
from millrace_jobs.leadership.lease import Lease, LeaseLost

from tests.clock import Clock

SECONDS = 2.5


class FakeLock:
    path, node = "/leader", "lock-1"

    def __init__(self, interruptions: int) -> None:
        self.interruptions = interruptions
        self.released = False
        self.taken = False  # by another driver

    def acquire(self, timeout: float | None) -> bool:
        if self.interruptions:
            self.interruptions -= 1
            raise SessionExpiredError
        if self.taken and timeout is not None:
            raise LockTimeout
        return True

    def release(self) -> None:
        self.released = True


class FakeClient:
    """ZooKeeper with one lock's node, which may be gone, or not answer."""

    def __init__(self, interruptions: int = 0) -> None:
        self.lock = FakeLock(interruptions)
        self.holds = True
        self.answers = True
        self.on_question: Callable[[], None] = lambda: None
        self.values: dict[str, tuple[bytes, int]] = {"/epoch": (b"1", 3)}

    def Lock(self, *_: str) -> FakeLock:
        return self.lock

    def exists_async(self, _: str) -> Any:
        def get(timeout: float) -> bool:
            self.on_question()
            if not self.answers:
                raise KazooTimeoutError
            return self.holds

        return SimpleNamespace(get=get)

    def transaction(self) -> "FakeTransaction":
        return FakeTransaction(self)


class FakeTransaction:
    """All of it or nothing, and an answer for each step, as kazoo has them."""

    def __init__(self, client: FakeClient) -> None:
        self.client = client
        self.data: list[tuple[str, bytes, int]] = []

    def check(self, path: str, version: int) -> None:
        assert (path, version) == ("/leader/lock-1", 0)

    def set_data(self, *data: Any) -> None:
        self.data.append(data)

    def commit_async(self) -> Any:
        return SimpleNamespace(get=self._commit)

    def _commit(self, timeout: float) -> list[Any]:
        self.client.on_question()
        if not self.client.answers:
            raise KazooTimeoutError
        if not self.client.holds:
            return [NoNodeError(), *(RuntimeInconsistency() for _ in self.data)]
        if any(self.client.values[path][1] != version for path, _, version in self.data):
            return [RolledBackError(), *(BadVersionError() for _ in self.data)]
        for path, value, version in self.data:
            self.client.values[path] = (value, version + 1)
        return [True, *self.data]


def make(client: FakeClient, clock: Clock) -> Lease:
    lease = Lease(client, "/leader", "driver", SECONDS, clock)  # type: ignore[arg-type]
    lease._keep = lambda: None  # type: ignore[method-assign]  # renewals are the test's
    lease.acquire()
    return lease


class WaitsOn(Exception):
    """Instead of the pause before the next look."""


def confirmed(lease: Lease) -> bool:
    """Whether `confirm` returns; False when it waits on. Raises LeaseLost as it does."""

    def pause(_: float) -> None:
        raise WaitsOn

    with patch.object(module, "time", SimpleNamespace(sleep=pause)):
        try:
            lease.confirm()
        except WaitsOn:
            return False
    return True


def test_a_lease_that_was_confirmed_just_now_holds() -> None:
    assert confirmed(make(FakeClient(), Clock(100)))


def test_while_zookeeper_is_silent_a_driver_waits_and_then_goes_on() -> None:
    client, clock = FakeClient(), Clock(100)
    lease = make(client, clock)
    client.answers = False
    clock.seconds += SECONDS - 0.1
    lease.renew()
    assert confirmed(lease)
    clock.seconds += 0.2
    assert not confirmed(lease)
    client.answers = True
    lease.renew()
    assert confirmed(lease)


def test_a_driver_that_was_frozen_finds_its_lease_gone_and_writes_no_more() -> None:
    client, clock = FakeClient(), Clock(100)
    lease = make(client, clock)
    clock.seconds += 60
    assert not confirmed(lease)  # not even before it has asked
    client.holds = False
    lease.renew()
    assert lease.is_lost
    with pytest.raises(LeaseLost):
        confirmed(lease)


def test_the_lease_is_counted_from_before_the_question() -> None:
    client, clock = FakeClient(), Clock(100)
    lease = make(client, clock)

    def slow() -> None:
        clock.seconds += 2

    client.on_question = slow
    lease.renew()
    clock.seconds += SECONDS - 2
    assert not confirmed(lease)


def test_a_released_lease_is_over() -> None:
    client = FakeClient()
    lease = make(client, Clock(100))
    lease.release()
    assert client.lock.released
    with pytest.raises(LeaseLost):
        confirmed(lease)


def test_standing_in_line_outlives_an_expired_session() -> None:
    assert confirmed(make(FakeClient(interruptions=2), Clock(100)))


def test_who_asks_for_a_while_is_told_that_another_one_leads() -> None:
    client = FakeClient()
    client.lock.taken = True
    lease = Lease(client, "/leader", "driver", SECONDS)  # type: ignore[arg-type]
    assert not lease.acquire(within=0.1)
    client.lock.taken = False
    assert lease.acquire(within=0.1)


def test_what_was_true_just_now_isnt_good_enough_to_fence_others() -> None:
    client = FakeClient()
    lease = make(client, Clock(100))
    lease.verify()
    client.holds = False
    lease.confirm()  # as far as it knows
    with pytest.raises(LeaseLost):
        lease.verify()
    assert lease.is_lost


def test_a_silent_zookeeper_is_asked_again() -> None:
    client = FakeClient()
    lease = make(client, Clock(100))
    asked: list[None] = []

    def comes_back() -> None:
        asked.append(None)
        client.answers = len(asked) > 2

    client.on_question = comes_back
    lease.verify()
    assert len(asked) == 3


def test_only_who_leads_writes_and_only_what_it_has_read() -> None:
    client = FakeClient()
    lease = make(client, Clock(100))
    assert not lease.write("/epoch", b"2", version=2)
    assert lease.write("/epoch", b"2", version=3)
    client.holds = False
    with pytest.raises(LeaseLost):
        lease.write("/epoch", b"3", version=4)
    assert client.values == {"/epoch": (b"2", 4)}
