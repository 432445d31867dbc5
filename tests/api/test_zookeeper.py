"""The door's part of ZooKeeper, over a client that has a tree of nodes in memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from millrace_api.zookeeper import SESSION_SECONDS, Registry, RegistryUnavailable, client

from millrace_shared.keys import Follower, Keys
from millrace_shared.names import ZookeeperNames
from tests.api.keys import FakeCopy, key

NAMES = ZookeeperNames("/lock", "/applications", "/jobs", "/upkeep", "/m/keys", "/m/doors")
ANN = Keys({"ann": key("ann", "insights")}).content()


@dataclass
class Answer:
    give: Callable[[], Any]
    waits: list[float]

    def get(self, timeout: float) -> Any:
        self.waits.append(timeout)
        return self.give()


@dataclass
class FakeClient:
    nodes: dict[str, bytes] = field(default_factory=dict)
    ephemeral: set[str] = field(default_factory=set)
    connected: bool = True
    failure: Exception | None = None
    waits: list[float] = field(default_factory=list)
    asked: int = 0

    def _answer(self, give: Callable[[], Any]) -> Answer:
        def answered() -> Any:
            if self.failure:
                raise self.failure
            return give()

        self.asked += 1
        return Answer(answered, self.waits)

    def _there(self, path: str) -> bytes:
        if path not in self.nodes:
            raise NoNodeError
        return self.nodes[path]

    def get_async(self, path: str) -> Answer:
        return self._answer(lambda: (self._there(path), None))

    def get_children_async(self, path: str) -> Answer:
        def children() -> list[str]:
            self._there(path)
            return [
                one.removeprefix(f"{path}/") for one in self.nodes if one.startswith(f"{path}/")
            ]

        return self._answer(children)

    def create_async(
        self, path: str, value: bytes, ephemeral: bool = False, makepath: bool = False
    ) -> Answer:
        def create() -> None:
            if path in self.nodes:
                raise NodeExistsError
            parent = path.rpartition("/")[0]
            if makepath:
                self.nodes.setdefault(parent, b"")
            self._there(parent)
            self.nodes[path] = value
            if ephemeral:
                self.ephemeral.add(path)

        return self._answer(create)

    def set_async(self, path: str, value: bytes) -> Answer:
        def put() -> None:
            self._there(path)
            self.nodes[path] = value

        return self._answer(put)

    def lose_session(self) -> None:
        for path in self.ephemeral:
            self.nodes.pop(path)
        self.ephemeral.clear()


@pytest.fixture
def zookeeper() -> FakeClient:
    return FakeClient({"/m/keys": ANN})


def registry(zookeeper: FakeClient, host: str = "edge-1") -> Registry:
    return Registry(zookeeper, NAMES, host)


def test_each_door_is_there_once_and_knows_of_the_others(zookeeper: FakeClient) -> None:
    one, two = registry(zookeeper), registry(zookeeper, "edge-2")
    assert [one.register(), two.register(), one.register(), two.register()] == [1, 2, 2, 2]
    assert zookeeper.ephemeral == {"/m/doors/insight-api/edge-1", "/m/doors/insight-api/edge-2"}


def test_a_session_that_was_lost_is_there_again_at_the_next_look(zookeeper: FakeClient) -> None:
    door = registry(zookeeper)
    door.register()
    zookeeper.lose_session()
    assert door.register() == 1
    assert zookeeper.ephemeral == {"/m/doors/insight-api/edge-1"}


def test_when_a_key_was_used_is_kept_beside_the_keys(zookeeper: FakeClient) -> None:
    door = registry(zookeeper)
    assert door.used() == {}
    for used in ({"ann": 1.5}, {"ann": 2.5, "bob": 3.0}):
        door.note_used(used)
        assert door.used() == registry(zookeeper).used() == used
    assert registry(zookeeper, "edge-2").used() == {}
    assert "/m/keys/insight-api-edge-1" not in zookeeper.ephemeral  # it outlives the door


def test_where_keys_are_lost_no_note_makes_a_node_that_looks_as_if_there_were_none() -> None:
    lost = FakeClient()
    with pytest.raises(RegistryUnavailable):
        registry(lost).note_used({"ann": 1.5})
    assert lost.nodes == {}


@pytest.mark.parametrize("failure", [KazooTimeoutError("late"), ConnectionLoss()])
def test_nothing_is_waited_for_longer_than_a_session(
    zookeeper: FakeClient, failure: Exception
) -> None:
    door = registry(zookeeper)
    zookeeper.failure = failure
    for ask in (door.keys, door.register, door.used, lambda: door.note_used({})):
        with pytest.raises(RegistryUnavailable):
            ask()
    assert {*zookeeper.waits} == {SESSION_SECONDS}


def test_nothing_is_asked_while_there_is_no_connection(zookeeper: FakeClient) -> None:
    """Or all of it would be asked at once, later."""
    zookeeper.connected = False
    with pytest.raises(RegistryUnavailable):
        registry(zookeeper).keys()
    assert zookeeper.asked == 0


def test_keys_that_are_gone_are_not_no_keys(zookeeper: FakeClient) -> None:
    follower = Follower(registry(zookeeper), FakeCopy(), 2, lambda: 0.0)
    follower.look()
    del zookeeper.nodes["/m/keys"]
    with pytest.raises(RegistryUnavailable, match="millrace up"):
        follower.look()
    assert [*(follower.keys or ())] == ["ann"]


def test_a_client_is_made_without_a_connection_and_never_gives_up() -> None:
    made = client([("127.0.0.1", 1), ("127.0.0.1", 2)])
    assert not made.connected
    assert made.hosts == [("127.0.0.1", 1), ("127.0.0.1", 2)]
    assert made._conn_retry.max_tries == -1
