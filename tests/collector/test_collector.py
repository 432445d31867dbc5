"""The collector behind its real server, over a producer whose acknowledgements the tests give."""

import gzip
import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from confluent_kafka import KafkaError
from fastapi import FastAPI
from millrace_collector.bodies import CLOUD_EVENT, CLOUD_EVENTS
from millrace_collector.limits import Keys

from tests.clock import Clock
from tests.collector.conftest import SECRET, SLOW_SECRET, collector_settings, serving
from tests.collector.fakes import FakeProducer
from tests.jobs.samples import EVENT, event
from tests.waiting import PATIENCE_SECONDS, soon

NDJSON = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}


def cloud_event(data: object) -> dict[str, Any]:
    return {"specversion": "1.0", "id": "1", "source": "/shop", "type": "request", "data": data}


def values(producer: FakeProducer) -> list[dict[str, Any]]:
    return [json.loads(value) for _, _, value in producer.written]


BODIES = {
    "an object": (JSON, json.dumps(EVENT)),
    "an array": (JSON, json.dumps([EVENT, EVENT], indent=1)),
    "lines": (NDJSON, f"{json.dumps(EVENT)}\r\n\n{json.dumps(EVENT)}"),
    "a beacon's text": ({"Content-Type": "text/plain;charset=UTF-8"}, json.dumps(EVENT)),
    "a CloudEvent": ({"Content-Type": CLOUD_EVENT}, json.dumps(cloud_event(EVENT))),
    "CloudEvents": ({"Content-Type": CLOUD_EVENTS}, json.dumps([cloud_event(EVENT)] * 2)),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_body_becomes_records(
    client: httpx.Client, producer: FakeProducer, name: str, compressed: bool
) -> None:
    headers, text = BODIES[name]
    body = text.encode()
    if compressed:
        headers, body = headers | {"Content-Encoding": "gzip"}, gzip.compress(body)
    answer = client.post("/v1/events", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"acknowledged": len(producer.written)}
    assert values(producer) == [EVENT] * text.count(EVENT["event_id"])
    assert {(topic, key) for topic, key, _ in producer.written} == {("topic-of-events", b"a1")}


def test_who_asks_for_it_is_told_where_each_record_is(client: httpx.Client) -> None:
    for first in (0, 2):
        answer = client.post(
            "/v1/events", json=[EVENT, EVENT], headers={"Prefer": "return=representation"}
        )
        places = [[0, first], [0, first + 1]]
        assert answer.json() == {"acknowledged": 2, "places": places}


def test_the_other_streams_have_their_own_rules(
    client: httpx.Client, producer: FakeProducer
) -> None:
    click = {"click_id": "1", "impression_id": "i", "campaign": "spring"}
    assert client.post("/v1/clicks", json=click).status_code == 422
    answer = client.post("/v1/clicks", json=click | {"event_time": EVENT["event_time"]})
    assert answer.status_code == 200
    assert [(topic, key) for topic, key, _ in producer.written] == [("topic-of-clicks", b"i")]


def test_nothing_is_acknowledged_before_kafka_has(
    client: httpx.Client, producer: FakeProducer
) -> None:
    producer.answers = False
    with ThreadPoolExecutor(1) as pool:
        posted = pool.submit(client.post, "/v1/events", json=EVENT)
        soon(lambda: len(producer), "the record is handed over")
        polls = producer.polls
        soon(lambda: producer.polls > polls + 10, "and nothing comes of it")
        assert not posted.done()
        producer.answers = True
        assert posted.result(PATIENCE_SECONDS).json() == {"acknowledged": 1}


@pytest.mark.parametrize(
    ("headers", "body", "record"),
    [
        (JSON, [EVENT, EVENT | {"status": 1000}, EVENT], 2),
        (NDJSON, None, 3),
        ({"Content-Type": CLOUD_EVENTS}, [cloud_event(EVENT), {"id": "1"}], 2),
    ],
)
def test_one_bad_record_refuses_all(
    client: httpx.Client,
    producer: FakeProducer,
    headers: dict[str, str],
    body: object,
    record: int,
) -> None:
    content = json.dumps(body).encode() if body else event() + b"\n" + event() + b"\nnonsense"
    answer = client.post("/v1/events", content=content, headers=headers)
    assert (answer.status_code, answer.json()["record"]) == (422, record)
    assert answer.headers["content-type"] == "application/problem+json"
    assert producer.written == []


REFUSALS = {
    "no array": (400, JSON, b"[{]"),
    "no gzip": (400, JSON | {"Content-Encoding": "gzip"}, event()),
    "half of gzip": (400, JSON | {"Content-Encoding": "gzip"}, gzip.compress(event())[:-9]),
    "too large": (413, NDJSON, b"\n" * 100_001),
    "a bomb": (413, NDJSON | {"Content-Encoding": "gzip"}, gzip.compress(b"\n" * 10_000_000)),
    "a form": (415, {"Content-Type": "application/x-www-form-urlencoded"}, event()),
    "zstd": (415, JSON | {"Content-Encoding": "zstd"}, event()),
    "no key": (401, JSON | {"Authorization": ""}, event()),
    "a wrong key": (401, JSON | {"Authorization": "Bearer other"}, event()),
    "a password": (401, JSON | {"Authorization": f"Basic {SECRET}"}, event()),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused(client: httpx.Client, producer: FakeProducer, name: str) -> None:
    status, headers, body = REFUSALS[name]
    answer = client.post("/v1/events", content=body, headers=headers)
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert producer.written == []


def test_a_stream_that_is_not_there_says_which_are(client: httpx.Client) -> None:
    answer = client.post("/v1/orders", json=EVENT)
    assert answer.status_code == 404
    assert "clicks, events, impressions" in answer.json()["detail"]


def test_a_page_may_have_its_key_in_the_address(client: httpx.Client) -> None:
    answer = client.post(f"/v1/events?key={SECRET}", json=EVENT, headers={"Authorization": ""})
    assert answer.status_code == 200


def test_a_key_has_its_rate_and_the_others_have_theirs(collector: Callable[..., FastAPI]) -> None:
    slow = {"Authorization": f"Bearer {SLOW_SECRET}"}
    app, clock, known = collector(), Clock(), collector_settings()
    app.state.collector.keys = Keys(known.keys, known.burst_seconds, clock)
    with serving(app) as client:
        assert client.post("/v1/events", json=[EVENT] * 3, headers=slow).status_code == 200
        refused = client.post("/v1/events", json=[EVENT], headers=slow)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert client.post("/v1/events", json=[EVENT]).status_code == 200
        clock.sleep(2)
        assert client.post("/v1/events", json=[EVENT], headers=slow).status_code == 200


def test_a_full_buffer_refuses_and_is_empty_again(
    collector: Callable[..., FastAPI], producers: list[FakeProducer]
) -> None:
    with serving(collector(buffer_bytes=10_000)) as client, ThreadPoolExecutor(1) as pool:
        producers[0].answers = False
        waiting = pool.submit(client.post, "/v1/events", json=[EVENT] * 8)
        soon(lambda: len(producers[0]) == 8, "the records are handed over")
        refused = client.post("/v1/events", json=[EVENT] * 8)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        producers[0].answers = True
        assert waiting.result(PATIENCE_SECONDS).status_code == 200
        assert client.post("/v1/events", json=[EVENT] * 8).status_code == 200


def test_what_kafka_did_not_acknowledge_is_not_acknowledged(
    client: httpx.Client, producer: FakeProducer
) -> None:
    producer.error = KafkaError(KafkaError._MSG_TIMED_OUT)
    answer = client.post("/v1/events", json=[EVENT])
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    producer.error = None
    assert client.post("/v1/events", json=[EVENT]).status_code == 200


def test_a_producer_that_ended_for_good_is_replaced(
    client: httpx.Client, producers: list[FakeProducer]
) -> None:
    producers[0].fatal = True
    assert client.post("/v1/events", json=[EVENT]).status_code == 503
    assert client.post("/v1/events", json=[EVENT]).status_code == 200
    assert [len(producer.written) for producer in producers] == [0, 1]


def test_a_body_that_does_not_come_is_not_waited_for(collector: Callable[..., FastAPI]) -> None:
    with serving(collector(receive_seconds=0.5)) as client, connected(client) as connection:
        connection.sendall(
            f"POST /v1/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {SECRET}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{".encode()
        )
        assert b" 408 " in connection.recv(1000).splitlines()[0]


def connected(client: httpx.Client) -> socket.socket:
    address = client.base_url
    return socket.create_connection((address.host, address.port or 0), PATIENCE_SECONDS)


def test_a_stop_answers_what_was_begun(
    collector: Callable[..., FastAPI], producers: list[FakeProducer]
) -> None:
    with serving(collector()) as client, ThreadPoolExecutor(1) as pool:
        producers[0].answers = False
        posted = pool.submit(client.post, "/v1/events", json=EVENT)
        soon(lambda: len(producers[0]), "the record is handed over")
        client.stop()  # type: ignore[attr-defined]
        soon(lambda: not takes_connections(client), "the server is about to end")
        producers[0].answers = True
        assert posted.result(PATIENCE_SECONDS).status_code == 200


def takes_connections(client: httpx.Client) -> bool:
    try:
        connected(client).close()
    except ConnectionRefusedError:
        return False
    return True


def test_it_is_ready_while_kafka_answers(client: httpx.Client, producer: FakeProducer) -> None:
    assert client.get("/readyz").status_code == 200
    producer.answers = False
    assert client.get("/readyz").status_code == 503
    assert client.get("/healthz").status_code == 200


def test_an_empty_body_has_nothing_to_acknowledge(client: httpx.Client) -> None:
    assert client.post("/v1/events", json=[]).json() == {"acknowledged": 0}
