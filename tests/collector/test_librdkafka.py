"""Kafka's client as it is: against its own brokers of the tests, and against none."""

import time
from functools import partial

import httpx
from millrace_collector.app import create_app
from millrace_collector.delivery import Delivery, connect

from millrace_shared.keys import Follower
from tests.collector.conftest import KEYS, collector_settings, serving
from tests.jobs.samples import EVENT
from tests.keys import FakeRegistry, Memory


def answers(kafka: dict[str, str | int | bool], requests: int) -> list[httpx.Response]:
    follower = Follower(FakeRegistry(KEYS), Memory(), 1, time.time)
    follower.look()
    app = create_app(collector_settings(), Delivery(partial(connect, kafka)), follower)
    with serving(app) as client:
        return [client.post("/v1/events", json=[EVENT] * 20) for _ in range(requests)]


def test_brokers_acknowledge() -> None:
    for answer in answers({"test.mock.num.brokers": 3}, requests=3):
        assert answer.json() == {"written": 20}


def test_without_brokers_it_says_so_within_the_time_out() -> None:
    [answer] = answers({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 1000}, requests=1)
    assert answer.status_code == 503
    assert "_MSG_TIMED_OUT" in answer.json()["detail"]
