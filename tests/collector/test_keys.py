"""Who may send what, as ZooKeeper says it now: by stream, by rate over all hosts, by address."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from kazoo.exceptions import ConnectionLoss, NoNodeError
from millrace_collector import app as collector_app
from millrace_collector import zookeeper
from millrace_collector.following import Following
from millrace_collector.limits import Allowance, Senders
from millrace_collector.refusals import TooLarge, TooMany
from millrace_collector.zookeeper import ZookeeperRegistry
from prometheus_client import generate_latest

from millrace_shared.keys import Follower, Key, Keys
from millrace_shared.names import ZookeeperNames
from tests.clock import Clock, now, play
from tests.collector.conftest import (
    KEYS,
    PAGE_SECRET,
    SECRET,
    SLOW_SECRET,
    collector_settings,
    key_of,
    serving,
)
from tests.jobs.samples import EVENT
from tests.keys import Memory
from tests.waiting import soon
from tests.zookeeper import Client, Nodes

Make = Callable[..., FastAPI]
NO_KEY = {"Authorization": ""}
CLICK = {"click_id": "1", "impression_id": "i", "campaign": "c", "event_time": EVENT["event_time"]}


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def follow(app: FastAPI, keys: dict[str, Key]) -> None:
    """The operator changed the keys, and the collector has looked."""
    app.state.registry.content = Keys(keys).content()
    app.state.collector.follower.look()


def require_refused(answer: httpx.Response, status: int, said: str) -> None:
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert said in answer.json()["detail"]


# -- Who may send


def test_without_a_key_it_is_said_how_one_is_sent(client: httpx.Client) -> None:
    refused = ("", "Bearer", "Bearer other", f"Basic {SECRET}")
    for headers in ({"Authorization": value} for value in refused):
        answer = client.post("/v1/events", json=EVENT, headers=headers)
        require_refused(answer, 401, "Authorization: Bearer KEY")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_a_key_writes_its_streams_and_the_refusal_names_the_other(collector: Make) -> None:
    with serving(collector({"shop": key_of(SECRET, 10, streams=["clicks"])})) as client:
        assert client.post("/v1/clicks", json=CLICK).status_code == 200
        require_refused(client.post("/v1/events", json=EVENT), 403, "stream events")
        assert client.post("/v1/nothing", json=EVENT).status_code == 404


def test_a_revoked_key_is_refused_and_a_new_one_is_taken(collector: Make) -> None:
    app = collector({})
    with serving(app) as client:
        assert client.post("/v1/events", json=EVENT).status_code == 401
        follow(app, KEYS)
        assert client.post("/v1/events", json=EVENT).status_code == 200
        follow(app, {})
        assert client.post("/v1/events", json=EVENT).status_code == 401


def test_an_expired_key_is_refused(collector: Make, clock: Clock) -> None:
    with serving(collector({"shop": key_of(SECRET, 10, expires=100.0)})) as client:
        assert client.post("/v1/events", json=EVENT).status_code == 200
        clock.sleep(100)
        assert client.post("/v1/events", json=EVENT).status_code == 401


def test_who_can_t_be_judged_yet_is_told_to_come_again(collector: Make) -> None:
    app = collector()
    follower = app.state.collector.follower
    follower.keys = follower._content = follower._store.content = None
    app.state.registry.answers = False
    with serving(app) as client:
        answer = client.post("/v1/events", json=EVENT)
        require_refused(answer, 503, "No key is known here yet")
        assert int(answer.headers["retry-after"]) > 0
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
        app.state.registry.answers = True
        follower.look()
        app.state.registry.answers = False
        assert client.post("/v1/events", json=EVENT).status_code == 200


# -- Public keys


def test_a_public_key_may_be_in_the_address_and_no_other_one_may(client: httpx.Client) -> None:
    page = client.post(f"/v1/events?key={PAGE_SECRET}", json=EVENT, headers=NO_KEY)
    assert page.status_code == 200
    answer = client.post(f"/v1/events?key={SECRET}", json=EVENT, headers=NO_KEY)
    require_refused(answer, 401, "no public one")
    assert SECRET not in answer.text
    assert client.post("/v1/events", json=EVENT, headers=bearer(PAGE_SECRET)).status_code == 200


def sent_from(client: httpx.Client, address: str, count: int) -> list[int]:
    """As the proxy says it: uvicorn takes this machine's word for the address."""
    headers = NO_KEY | {"X-Forwarded-For": address}
    path = f"/v1/events?key={PAGE_SECRET}"
    return [client.post(path, json=EVENT, headers=headers).status_code for _ in range(count)]


def test_an_address_has_its_own_rate_and_uses_up_no_other_s(
    client: httpx.Client, clock: Clock
) -> None:
    assert sent_from(client, "192.0.2.1", 12) == [200] * 10 + [429] * 2
    assert sent_from(client, "192.0.2.2", 12) == [200] * 10 + [429] * 2
    clock.sleep(0.5)
    assert sent_from(client, "192.0.2.1", 6) == [200] * 5 + [429]


def test_all_addresses_together_have_the_key_s_rate(client: httpx.Client) -> None:
    statuses = [sent_from(client, f"192.0.2.{n}", 9) for n in range(1, 13)]
    assert sum(each.count(200) for each in statuses) == 100
    assert client.post("/v1/events", json=EVENT).status_code == 200  # of another key


def test_what_the_key_refuses_is_not_charged_to_the_address(clock: Clock) -> None:
    senders = Senders(collector_settings(), clock)
    page = KEYS["page"]
    senders.of("page", page, 1, "b").rates[1].events.charge(95)
    sender = senders.of("page", page, 1, "a")
    with pytest.raises(TooMany, match="This key"):
        sender.events.charge(6)
    assert sender.rates[0].events.left == 10
    sender.events.charge(5)
    with pytest.raises(TooMany, match="An address with this key"):
        sender.events.charge(6)


def test_so_many_addresses_are_remembered_those_that_sent_last(clock: Clock) -> None:
    senders = Senders(collector_settings(addresses=3), clock)
    first = senders.of("page", KEYS["page"], 1, "0")
    for number in range(1, 1000):
        senders.of("page", KEYS["page"], 1, str(number))
        assert senders.of("page", KEYS["page"], 1, "0") is first
    assert len(senders._of_addresses) == 3
    for number in range(3):
        senders.of("page", KEYS["page"], 1, f"more-{number}")
    assert senders.of("page", KEYS["page"], 1, "0") is not first


def test_every_address_of_a_private_key_is_one_sender(clock: Clock) -> None:
    senders = Senders(collector_settings(), clock)
    assert senders.of("tests", KEYS["tests"], 1, "a") is senders.of("tests", KEYS["tests"], 1, "b")


# -- Rates over all hosts


def test_a_second_is_shared_by_the_doors_that_are_there_and_a_request_by_all(
    collector: Make, clock: Clock
) -> None:
    """The key may send 100 a second for ten seconds: through each of two hosts 500 at once."""
    room = {"request_bytes": 4_000_000, "buffer_bytes": 30_000_000}
    app = collector({"shop": key_of(SECRET, 100)}, all_doors=2, burst_seconds=10, **room)
    with serving(app) as client:
        for there, a_second in ((2, 50), (1, 100), (2, 50)):
            app.state.registry.there = there
            app.state.collector.follower.look()
            clock.sleep(100)
            assert client.post("/v1/events", json=[EVENT] * 501).status_code == 413
            assert client.post("/v1/events", json=[EVENT] * 500).status_code == 200
            clock.sleep(1)
            assert client.post("/v1/events", json=[EVENT] * (a_second + 1)).status_code == 429
            assert client.post("/v1/events", json=[EVENT] * a_second).status_code == 200


def test_another_rate_is_effective_at_once_and_gives_nothing_more(
    collector: Make, clock: Clock
) -> None:
    app = collector({"shop": key_of(SECRET, 10)})
    with serving(app) as client:
        assert client.post("/v1/events", json=[EVENT] * 10).status_code == 200
        follow(app, {"shop": key_of(SECRET, 100)})
        assert client.post("/v1/events", json=EVENT).status_code == 429
        clock.sleep(0.5)
        assert client.post("/v1/events", json=[EVENT] * 51).status_code == 429
        assert client.post("/v1/events", json=[EVENT] * 50).status_code == 200
        follow(app, {"shop": key_of(SECRET, 2)})
        clock.sleep(10)
        assert client.post("/v1/events", json=[EVENT] * 3).status_code == 413
        assert client.post("/v1/events", json=[EVENT] * 2).status_code == 200


@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.integers(0, 40), st.floats(0.1, 50), st.integers(1, 100)),
        max_size=40,
    )
)
def test_no_change_of_a_rate_gives_more_than_the_rates_did(
    steps: list[tuple[float, int, float, int]],
) -> None:
    clock = Clock()
    allowance = Allowance("records", 10, 20, clock)
    rate, allowed, given_out = 10.0, 20.0, 0
    for pause, amount, other_rate, other_most in steps:
        clock.sleep(pause)
        allowed += pause * rate
        try:
            allowance.charge(amount)
            given_out += amount
        except (TooMany, TooLarge):
            pass
        assert given_out <= allowed + 1e-6
        rate = other_rate
        before = allowance.left
        allowance.change(other_rate, other_most)
        assert allowance.left <= before


# -- Following, whatever happens


def test_whatever_a_look_raises_the_next_one_is_tried() -> None:
    """A Follower is called again after errors of every kind, each said once."""
    looks: list[Exception | None] = [OSError("disk"), ValueError("no keys"), KeyError("x"), None]

    class Looked:
        seen = 0

        def look(self) -> None:
            what = looks[min(self.seen, len(looks) - 1)]
            self.seen += 1
            if what:
                raise what

    async def scenario() -> tuple[int, float]:
        follower: Any = Looked()
        following = Following(follower, 2.0, now)
        task = asyncio.create_task(following.go_on())
        await asyncio.sleep(9)
        task.cancel()
        return follower.seen, following.looked_at

    assert play(scenario) == (5, 8.0)


def test_the_collector_follows_by_itself(collector: Make) -> None:
    app = collector({}, keys_look_seconds=0.01)
    with serving(app) as client:
        app.state.registry.content = Keys(KEYS).content()
        soon(lambda: client.post("/v1/events", json=EVENT).status_code == 200, "the key is known")
        app.state.registry.answers = False
        soon(lambda: app.state.collector.following._trouble, "it has noticed")
        app.state.registry.content = Keys({}).content()
        app.state.registry.answers = True
        soon(lambda: client.post("/v1/events", json=EVENT).status_code == 401, "and goes on")


def test_metrics_tell_of_keys_that_expire_and_when_they_were_used(
    collector: Make, clock: Clock
) -> None:
    clock.seconds = 50.0
    app = collector({"shop": key_of(SECRET, 10, expires=100.0), "idle": key_of(SLOW_SECRET, 1)})
    with serving(app) as client:
        client.post("/v1/events", json=EVENT)
        soon(lambda: app.state.collector.following.looked_at, "it has looked")
    told = generate_latest(app.state.collector.metrics.registry).decode().splitlines()
    assert 'millrace_key_expires_timestamp_seconds{key="shop"} 100.0' in told
    assert 'millrace_key_used_timestamp_seconds{key="shop"} 50.0' in told
    assert not [line for line in told if "idle" in line or SECRET in line]
    [looked] = [line for line in told if line.startswith("millrace_keys_looked_at")]
    assert 0 < float(looked.split()[1]) <= time.time()


# -- ZooKeeper


ZNODES = ZookeeperNames(**collector_settings().model_dump()["znodes"])
COPY = Keys(KEYS).content()


@pytest.fixture
def nodes() -> Nodes:
    nodes = Nodes()
    nodes.put(ZNODES.keys, COPY)
    return nodes


def registry(nodes: Nodes, host: str = "edge-1") -> tuple[ZookeeperRegistry, Client]:
    client: Any = Client(nodes)
    return ZookeeperRegistry(client, ZNODES, host), client


def test_the_keys_are_the_node_s_value(nodes: Nodes) -> None:
    door, _ = registry(nodes)
    assert door.keys() == COPY
    del nodes.content[ZNODES.keys]
    with pytest.raises(NoNodeError):
        door.keys()
    nodes.answers = False
    with pytest.raises(ConnectionLoss):
        door.keys()


def test_doors_are_the_collectors_whose_sessions_live(nodes: Nodes) -> None:
    (one, _), (other, session) = registry(nodes), registry(nodes, "edge-2")
    assert [one.register(), one.register(), other.register(), one.register()] == [1, 1, 2, 2]
    assert f"{ZNODES.doors}/collector/edge-2" in nodes.content
    writes = nodes.writes
    one.register()
    assert nodes.writes == writes  # to look is no write
    session.end_session()
    assert one.register() == 1
    assert [other.register(), one.register()] == [2, 2]


def test_uses_are_noted_beneath_the_keys_and_never_instead_of_them(nodes: Nodes) -> None:
    door, _ = registry(nodes)
    assert door.used() == {}
    for at in (1.0, 2.0):
        door.note_used({"shop": at})
        assert door.used() == {"shop": at}
    assert json.loads(nodes.content[f"{ZNODES.keys}/collector-edge-1"][0]) == {"shop": 2.0}
    nodes.content.clear()
    with pytest.raises(NoNodeError):
        door.note_used({"shop": 3.0})
    assert nodes.content == {}


def test_a_door_of_the_whole_follows_zookeeper(nodes: Nodes) -> None:
    door, _ = registry(nodes)
    follower = Follower(door, Memory(), 2, Clock())
    follower.look()
    assert follower.find(SECRET) == ("tests", KEYS["tests"])
    changed = KEYS | {"tests": replace(KEYS["tests"], secrets=[])}
    nodes.put(ZNODES.keys, Keys(changed).content())
    follower.look()
    assert follower.find(SECRET) is None


def test_the_program_starts_while_nothing_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(collector_settings().model_copy(update={"metrics_port": 1}).model_dump_json())
    monkeypatch.setenv("MILLRACE_COLLECTOR_CONFIG", str(config))
    started: list[str] = []

    class Unconnected:
        connected = False

        def start_async(self) -> None:
            started.append("start_async")

    monkeypatch.setattr(zookeeper, "KazooClient", lambda servers, **_: Unconnected())
    app = collector_app.serve()
    assert started == ["start_async"]
    with pytest.raises(ConnectionLoss):
        app.state.collector.follower.look()


def test_a_copy_of_before_lets_in_who_had_a_key(collector: Make) -> None:
    app = collector({})
    follower = app.state.collector.follower
    follower.keys, follower._store.content = None, COPY
    app.state.registry.answers = False
    with serving(app) as client:
        assert client.post("/v1/events", json=EVENT).status_code == 200
