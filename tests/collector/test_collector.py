"""The collector behind its real server, over a producer whose acknowledgements the tests give."""

import base64
import gzip
import importlib
import json
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import httpx
import pytest
from confluent_kafka import KafkaError, KafkaException
from fastapi import FastAPI
from millrace_collector.bodies import CLOUD_EVENT, CLOUD_EVENTS
from millrace_collector.content_encoding import zstd
from prometheus_client import generate_latest

from millrace.common.paths import REPO
from tests.clock import Clock
from tests.collector.conftest import SECRET, SLOW_SECRET, collector_settings, serving
from tests.collector.fakes import FakeProducer
from tests.generated import generated_client
from tests.jobs.samples import EVENT, event
from tests.waiting import PATIENCE_SECONDS, soon

NDJSON = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}
CLICK = {"impression_id": "i", "campaign": "spring", "event_time": EVENT["event_time"]}


def cloud_event(data: object, **changes: Any) -> dict[str, Any]:
    base = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "request", "data": data}
    return {name: value for name, value in (base | changes).items() if value is not None}


def in_headers(**changes: str) -> dict[str, str]:
    attributes = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "request"} | changes
    return {f"ce-{name}": value for name, value in attributes.items() if value != "absent"}


def in_base64(data: object) -> str:
    return base64.b64encode(json.dumps(data).encode()).decode()


def values(producer: FakeProducer) -> list[dict[str, Any]]:
    return [json.loads(value) for _, _, value in producer.written]


BATCH_OF_BASE64 = [cloud_event(None, data_base64=in_base64(EVENT))] * 2
BODIES = {
    "an object": (JSON, json.dumps(EVENT)),
    "an array": (JSON, json.dumps([EVENT, EVENT], indent=1)),
    "lines": (NDJSON, f"{json.dumps(EVENT)}\r\n\n{json.dumps(EVENT)}"),
    "a beacon's text": ({"Content-Type": "text/plain;charset=UTF-8"}, json.dumps(EVENT)),
    "a CloudEvent": ({"Content-Type": CLOUD_EVENT}, json.dumps(cloud_event(EVENT))),
    "CloudEvents": ({"Content-Type": CLOUD_EVENTS}, json.dumps([cloud_event(EVENT)] * 2)),
    "CloudEvents in Base64": ({"Content-Type": CLOUD_EVENTS}, json.dumps(BATCH_OF_BASE64)),
    "a CloudEvent in headers": (JSON | in_headers(), json.dumps(EVENT)),
}
ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "identity": lambda body: body,
    "gzip": lambda body: gzip.compress(body[:40]) + gzip.compress(body[40:]) + b"\0" * 9,
    "x-gzip": gzip.compress,
    "zstd": lambda body: zstd.compress(body[:40]) + zstd.compress(body[40:]),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_body_becomes_records(
    client: httpx.Client, producer: FakeProducer, name: str, encoding: str
) -> None:
    headers, text = BODIES[name]
    body = ENCODINGS[encoding](text.encode())
    answer = client.post(
        "/v1/events", content=body, headers=headers | {"Content-Encoding": encoding}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"written": len(producer.written)}
    assert values(producer) == [EVENT] * max(1, text.count('"specversion"'), text.count("0f9e"))
    assert {(topic, key) for topic, key, _ in producer.written} == {("topic-of-events", b"a1")}


@pytest.mark.parametrize(
    "prefer",
    [
        ["return=representation"],
        ['respond-async, Return = "representation"; unknown=1, wait=5'],
        ["handling=lenient", "return=representation"],
    ],
)
def test_who_asks_for_it_is_told_where_each_record_is(
    client: httpx.Client, prefer: list[str]
) -> None:
    for first in (0, 2):
        answer = client.post(
            "/v1/events", json=[EVENT, EVENT], headers=[("Prefer", line) for line in prefer]
        )
        places = [[0, first], [0, first + 1]]
        assert answer.json() == {"written": 2, "places": places}
        assert answer.headers["preference-applied"] == "return=representation"


def test_who_prefers_something_else_is_not(client: httpx.Client) -> None:
    answer = client.post("/v1/events", json=[EVENT], headers={"Prefer": "return=minimal"})
    assert answer.json() == {"written": 1}
    assert "preference-applied" not in answer.headers


def test_the_other_streams_have_their_own_rules(
    client: httpx.Client, producer: FakeProducer
) -> None:
    assert client.post("/v1/clicks", json=CLICK).status_code == 422
    answer = client.post("/v1/clicks", json=CLICK | {"click_id": "1"})
    assert answer.status_code == 200
    assert [(topic, key) for topic, key, _ in producer.written] == [("topic-of-clicks", b"i")]


def test_nothing_is_written_before_kafka_says_so(
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
        assert posted.result(PATIENCE_SECONDS).json() == {"written": 1}


# -- What became of each record


@pytest.mark.parametrize(
    ("headers", "body", "record", "why"),
    [
        (JSON, [EVENT, EVENT | {"status": 1000}, EVENT], 2, "$.status"),
        (JSON, [EVENT, EVENT, 1], 3, "object"),
        (NDJSON, None, 3, "malformed"),
        (
            {"Content-Type": CLOUD_EVENTS},
            [cloud_event(EVENT), {"id": "1"}, cloud_event(EVENT)],
            2,
            "data",
        ),
    ],
)
def test_a_bad_record_is_refused_and_the_others_are_written(
    client: httpx.Client,
    producer: FakeProducer,
    headers: dict[str, str],
    body: object,
    record: int,
    why: str,
) -> None:
    content = json.dumps(body).encode() if body else event() + b"\n" + event() + b"\nnonsense"
    answer = client.post("/v1/events", content=content, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (207, "application/json")
    told = answer.json()
    assert (told["written"], [one["record"] for one in told["refused"]]) == (2, [record])
    assert why in told["refused"][0]["why"]
    assert [value["event_id"] for value in values(producer)] == [EVENT["event_id"]] * 2


def test_where_every_record_is_refused_the_answer_is_a_problem(
    client: httpx.Client, producer: FakeProducer
) -> None:
    answer = client.post("/v1/events", json=[EVENT | {"url": ""}, {}])
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    told = answer.json()
    assert (told["title"], told["status"], told["written"]) == ("Records refused", 422, 0)
    assert [one["record"] for one in told["refused"]] == [1, 2]
    assert told["refused"][0]["why"] in told["detail"]
    assert not producer.written


def test_what_kafka_did_not_acknowledge_is_unknown(
    client: httpx.Client, producer: FakeProducer
) -> None:
    producer.errors[b"/unsure"] = KafkaError(KafkaError._MSG_TIMED_OUT)
    records = [EVENT, EVENT | {"url": "/unsure"}, {}, EVENT]
    answer = client.post("/v1/events", json=records, headers={"Prefer": "return=representation"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    told = answer.json()
    assert "_MSG_TIMED_OUT" in told["detail"]
    assert (told["written"], told["unknown"], told["places"]) == (
        2,
        [2],
        [[0, 0], None, None, [0, 1]],
    )
    assert [one["record"] for one in told["refused"]] == [3]
    assert "unwritten" not in told


def test_who_sends_again_what_is_not_written_has_each_record_once(
    client: httpx.Client, producer: FakeProducer
) -> None:
    producer.errors[b"/later"] = KafkaError(KafkaError._MSG_TIMED_OUT)
    records = [EVENT | {"url": url} for url in ("/1", "/later", "/3")]
    told = client.post("/v1/events", json=records).json()
    producer.errors.clear()
    again = [records[number - 1] for number in told["unknown"]]
    assert client.post("/v1/events", json=again).json() == {"written": 1}
    assert sorted(value["url"] for value in values(producer)) == ["/1", "/3", "/later"]


def test_a_producer_that_ended_for_good_is_replaced(
    client: httpx.Client, producers: list[FakeProducer]
) -> None:
    producers[0].fatal = True
    answer = client.post("/v1/events", json=[EVENT, EVENT])
    assert (answer.status_code, answer.json()["unwritten"]) == (503, [1, 2])
    assert client.post("/v1/events", json=[EVENT]).status_code == 200
    assert [len(producer.written) for producer in producers] == [0, 1]


def test_a_record_that_the_client_does_not_take_is_refused(
    client: httpx.Client, producer: FakeProducer
) -> None:
    producer.refuses[b"/large"] = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    answer = client.post("/v1/events", json=[EVENT | {"url": "/large"}, EVENT])
    assert (answer.status_code, answer.json()["refused"][0]["record"]) == (207, 1)
    producer.refuses[b"/large"] = BufferError()
    answer = client.post("/v1/events", json=[EVENT | {"url": "/large"}, EVENT])
    assert (answer.status_code, answer.json()["unwritten"]) == (503, [1])


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.MSG_SIZE_TOO_LARGE,  # of a batch, in which others' records are, too
    ],
)
def test_what_only_an_operator_can_mend_is_not_to_be_sent_again(
    client: httpx.Client, producer: FakeProducer, code: int
) -> None:
    producer.errors[b"/no"] = KafkaError(code)
    answer = client.post("/v1/events", json=[EVENT | {"url": "/no"}, EVENT])
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "retry-after" not in answer.headers
    told = answer.json()
    assert (told["written"], told["unwritten"]) == (1, [1])
    assert KafkaError(code).name() in told["detail"]
    assert "operator" in told["detail"]


# -- What isn't taken at all


REFUSALS = {
    "no array": (400, JSON, b"[{]"),
    "no gzip": (400, JSON | {"Content-Encoding": "gzip"}, event()),
    "half of gzip": (400, JSON | {"Content-Encoding": "gzip"}, gzip.compress(event())[:-9]),
    "too large": (413, NDJSON, b"\n" * 100_001),
    "a bomb": (413, NDJSON | {"Content-Encoding": "gzip"}, gzip.compress(b"\n" * 10_000_000)),
    "a form": (415, {"Content-Type": "application/x-www-form-urlencoded"}, event()),
    "garbage behind gzip": (
        400,
        JSON | {"Content-Encoding": "gzip"},
        gzip.compress(event()) + b"more",
    ),
    "no zstd": (400, JSON | {"Content-Encoding": "zstd"}, event()),
    "brotli": (415, JSON | {"Content-Encoding": "br"}, event()),
    "gzip twice": (415, JSON | {"Content-Encoding": "gzip, gzip"}, event()),
    "lines of CloudEvents": (415, NDJSON | in_headers(), event()),
    "a bomb of zstd": (
        413,
        NDJSON | {"Content-Encoding": "zstd"},
        zstd.compress(b"\n" * 10_000_000),
    ),
    "a comma too many": (400, JSON, b"[" + event() + b",]"),
    "an array of which is too much": (413, JSON, b"[" + b"1," * 49_000 + b"1]"),
    "no key": (401, JSON | {"Authorization": ""}, event()),
    "a wrong key": (401, JSON | {"Authorization": "Bearer other"}, event()),
    "an empty key": (401, JSON | {"Authorization": "Bearer"}, event()),
    "a password": (401, JSON | {"Authorization": f"Basic {SECRET}"}, event()),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused(client: httpx.Client, producer: FakeProducer, name: str) -> None:
    status, headers, body = REFUSALS[name]
    answer = client.post("/v1/events", content=body, headers=headers)
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert producer.written == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/events", 405),
        ("PUT", "/v1/events", 405),
        ("POST", "/healthz", 405),
        ("POST", "/v1/events?kee=1", 400),
        ("POST", "/v1/events?key=1&pretty", 400),
    ],
)
def test_what_is_not_there_is_a_problem_too(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert ("allow" in answer.headers) == (status == 405)


def test_a_stream_that_is_not_there_says_which_are(client: httpx.Client) -> None:
    answer = client.post("/v1/orders", json=EVENT)
    assert answer.status_code == 404
    assert "clicks, events, impressions" in answer.json()["detail"]


def test_a_full_buffer_refuses_and_is_empty_again(
    collector: Callable[..., FastAPI], producers: list[FakeProducer]
) -> None:
    with serving(collector(buffer_bytes=15_000)) as client, ThreadPoolExecutor(1) as pool:
        producers[0].answers = False
        waiting = pool.submit(client.post, "/v1/events", json=[EVENT] * 8)
        soon(lambda: len(producers[0]) == 8, "the records are handed over")
        refused = client.post("/v1/events", json=[EVENT] * 8)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["title"] == "Buffer full"
        producers[0].answers = True
        assert waiting.result(PATIENCE_SECONDS).status_code == 200
        assert client.post("/v1/events", json=[EVENT] * 8).status_code == 200
        assert client.post("/v1/events", json=[EVENT] * 20).status_code == 413


def test_a_body_that_does_not_come_is_not_waited_for(collector: Callable[..., FastAPI]) -> None:
    with serving(collector(receive_seconds=0.5)) as client, connected(client) as connection:
        connection.sendall(
            f"POST /v1/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {SECRET}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{".encode()
        )
        assert b" 408 " in connection.recv(1000).splitlines()[0]


@pytest.mark.parametrize("http", ["auto", "h11"])
@pytest.mark.parametrize(
    ("size", "key", "status"),
    [(10**10, SECRET, 413), (90_000, SLOW_SECRET, 413), (10, "other", 401), (10, SECRET, 100)],
)
def test_what_will_be_refused_is_not_asked_to_go_on(
    collector: Callable[..., FastAPI],
    http: Literal["auto", "h11"],
    size: int,
    key: str,
    status: int,
) -> None:
    streams = collector_settings().model_dump(mode="json")["streams"]
    clicks = {"clicks": streams["clicks"]}  # of 4 KiB at most, so the slow key may send 16 at once
    app = collector(streams=clicks)
    with serving(app, http) as client, connected(client) as connection:
        connection.sendall(
            f"POST /v1/clicks HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nExpect: 100-continue\r\n"
            f"Content-Length: {size}\r\n\r\n".encode()
        )
        assert f" {status} ".encode() in connection.recv(1000).splitlines()[0]


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


# -- Health, pages, metrics, the description


def test_it_is_ready_while_kafka_answers(
    client: httpx.Client, producer: FakeProducer, clock: Clock
) -> None:
    assert client.get("/readyz").status_code == 200
    producer.answers = False
    clock.sleep(1)
    assert client.get("/readyz").status_code == 503
    assert client.get("/healthz").status_code == 200
    assert client.head("/readyz").status_code == 503
    assert client.head("/healthz").status_code == 200


def test_kafka_is_asked_once_a_second_whoever_wants_to_know(
    client: httpx.Client, producer: FakeProducer, clock: Clock
) -> None:
    for looks in (1, 2):
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: client.get("/readyz").status_code, range(20)))
        assert answers == [200] * 20
        assert producer.looks == looks
        clock.sleep(1)


def test_an_empty_body_has_nothing_to_write(client: httpx.Client) -> None:
    for headers, body in ((JSON, b"[]"), (NDJSON, b""), (NDJSON, b"\n \r\n")):
        answer = client.post("/v1/events", content=body, headers=headers)
        assert answer.json() == {"written": 0}
    assert client.post("/v1/events", content=b"", headers=JSON).status_code == 422


def preflight(client: httpx.Client, origin: str) -> httpx.Response:
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    asked |= {"Access-Control-Request-Headers": "authorization,content-type"}
    return client.options("/v1/events", headers=asked)


def test_pages_of_other_origins_are_let_in_where_the_settings_say_so(
    collector: Callable[..., FastAPI],
) -> None:
    shop = "https://shop.example.org"
    with serving(collector(allowed_origins=[shop])) as client:
        allowed = preflight(client, shop)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == shop
        assert "authorization" in allowed.headers["access-control-allow-headers"]
        assert "access-control-allow-origin" not in preflight(client, "https://other.org").headers
        answer = client.post("/v1/events", json=EVENT, headers={"Origin": shop})
        assert answer.headers["access-control-allow-origin"] == shop


def test_no_page_of_another_origin_is_let_in_unless_it_is_said(client: httpx.Client) -> None:
    assert preflight(client, "https://shop.example.org").status_code == 405


def test_metrics_tell_what_became_of_requests_and_records(
    client: httpx.Client, producer: FakeProducer, collector: Callable[..., FastAPI]
) -> None:
    producer.errors[b"/unsure"] = KafkaError(KafkaError._MSG_TIMED_OUT)
    client.post("/v1/events", json=[EVENT, {}, EVENT | {"url": "/unsure"}])
    client.post("/v1/events", content=b"[", headers=JSON)
    client.post("/v1/events", json=EVENT, headers={"Authorization": "Bearer other"})
    client.get("/nothing")
    app = client.app  # type: ignore[attr-defined]
    told = generate_latest(app.state.collector.metrics.registry).decode()
    for line in (
        'millrace_collector_records_total{fate="written",key="tests",stream="events"} 1.0',
        'millrace_collector_records_total{fate="refused",key="tests",stream="events"} 1.0',
        'millrace_collector_records_total{fate="unknown",key="tests",stream="events"} 1.0',
        'millrace_collector_problems_total{stream="events",title="Kafka can\'t be reached"} 1.0',
        'millrace_collector_problems_total{stream="events",title="Bad body"} 1.0',
        'millrace_collector_problems_total{stream="events",title="No such key"} 1.0',
        'millrace_collector_problems_total{stream="none",title="Not Found"} 1.0',
        "millrace_collector_buffer_bytes 0.0",
        "millrace_collector_buffer_size_bytes 1e+06",
    ):
        assert line in told.splitlines(), told


def test_the_description_has_bodies_problems_and_keys(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {"/v1/clicks", "/v1/events", "/v1/impressions"}
    send = described["paths"]["/v1/events"]["post"]
    assert send["security"] == [{"bearer": []}, {"key": []}]
    schemes = described["components"]["securitySchemes"]
    assert (schemes["bearer"]["scheme"], schemes["key"]["in"]) == ("bearer", "query")
    record = described["components"]["schemas"]["events_record"]
    assert "event_time" in record["required"]
    assert record["properties"]["status"]["maximum"] == 999
    assert record["properties"]["campaign"] == {"type": ["string", "null"]}
    for status, answer in send["responses"].items():
        kind = "application/json" if status in ("200", "207") else "application/problem+json"
        assert [*answer["content"]] == [kind], status
    text = json.dumps(described)
    for name in re.findall(r'"#/components/schemas/(\w+)"', text):
        assert name in described["components"]["schemas"]


def test_the_description_is_made_once(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = client.app  # type: ignore[attr-defined]
    monkeypatch.setattr(app, "openapi", lambda: pytest.fail("it is made anew"))
    first = client.get("/openapi.json")
    assert client.get("/openapi.json").content == first.content


def test_the_document_explains_every_status(client: httpx.Client) -> None:
    """docs/send-events.md has a row for each that the description names, and no other."""
    page = (REPO / "docs" / "send-events.md").read_text()
    rows = set(re.findall(r"^\| (\d{3}) \|", page, re.MULTILINE))
    described = client.get("/openapi.json").json()
    assert rows == set(described["paths"]["/v1/events"]["post"]["responses"])


def test_the_documents_program_sends_until_each_record_is_written_or_refused(
    client: httpx.Client, producer: FakeProducer
) -> None:
    page = (REPO / "docs" / "send-events.md").read_text()
    (program,) = (
        text for text in re.findall(r"```python\n(.*?)```", page, re.S) if "def send" in text
    )
    known: dict[str, Any] = {}
    exec(program.partition("with httpx.Client")[0], known)
    producer.errors[b"/later"] = KafkaError(KafkaError._MSG_TIMED_OUT)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        producer.errors.clear()

    known["time"] = SimpleNamespace(sleep=pause)
    sent = [EVENT | {"url": url} for url in ("/1", "", "/later")]
    refused = known["send"](client, "events", sent)
    assert [(one["record"], one["of"]) for one in refused] == [(2, sent[1])]
    assert [value["url"] for value in values(producer)] == ["/1", "/later"]
    assert pauses == [2.0, 0.0]


# -- CloudEvents


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (cloud_event(EVENT, specversion="0.3"), "specversion"),
        (cloud_event(EVENT, specversion="banana"), "specversion"),
        *((cloud_event(EVENT, **{name: ""}), name) for name in ("id", "source", "type")),
        *((cloud_event(EVENT, **{name: None}), name) for name in ("id", "source", "type")),
        (cloud_event(EVENT, specversion=None), "specversion"),
        (cloud_event(EVENT, id=1), "id"),
        (cloud_event(EVENT, time="yesterday"), "attribute can't be read"),
        (cloud_event(EVENT, time=5), "attribute can't be read"),
        (cloud_event(EVENT, more=[1]), "more"),
        (cloud_event(EVENT, subject={"a": 1}), "subject"),
        (cloud_event(EVENT, datacontenttype="text/plain"), "text/plain"),
        (cloud_event(None), "without data"),
        (cloud_event(None, data_base64="no base64!"), "base64"),
        (cloud_event(EVENT, data_base64=in_base64(EVENT)), "both"),
        (cloud_event(json.dumps(EVENT)), "object"),
        ([EVENT], "object"),
    ],
)
def test_what_is_no_cloud_event_is_refused(
    client: httpx.Client, producer: FakeProducer, event: object, why: str
) -> None:
    answer = client.post(
        "/v1/events", content=json.dumps(event), headers={"Content-Type": CLOUD_EVENT}
    )
    assert answer.status_code == 422
    assert why in answer.json()["refused"][0]["why"]
    assert not producer.written


@pytest.mark.parametrize(
    "changes",
    [{"specversion": "0.3"}, {"id": ""}, {"source": "absent"}, {"type": ""}, {"time": "yesterday"}],
)
def test_headers_of_no_cloud_event_refuse_it(
    client: httpx.Client, producer: FakeProducer, changes: dict[str, str]
) -> None:
    answer = client.post("/v1/events", json=EVENT, headers=in_headers(**changes))
    assert answer.status_code == 422
    assert not producer.written


def test_an_optional_attribute_may_be_null(client: httpx.Client) -> None:
    sent = cloud_event(EVENT) | {"subject": None, "time": None, "extension": True}
    answer = client.post(
        "/v1/events", content=json.dumps(sent), headers={"Content-Type": CLOUD_EVENT}
    )
    assert answer.status_code == 200, answer.text


MODES: dict[str, Callable[[bytes], tuple[dict[str, str], bytes]]] = {
    "structured": lambda data: (
        {"Content-Type": CLOUD_EVENT},
        json.dumps(cloud_event(0, id="c-1")).encode().replace(b'"data": 0', b'"data":' + data),
    ),
    "batched": lambda data: (
        {"Content-Type": CLOUD_EVENTS},
        b"["
        + json.dumps(cloud_event(0, id="c-1")).encode().replace(b'"data": 0', b'"data":' + data)
        + b"]",
    ),
    "binary": lambda data: (JSON | in_headers(id="c-1"), data),
}


@pytest.mark.parametrize("mode", MODES)
def test_the_id_of_a_cloud_event_names_its_record(
    collector: Callable[..., FastAPI], producers: list[FakeProducer], mode: str
) -> None:
    """Where the stream tells copies by a field, and the record has none of its own. All else stays
    as it came."""
    streams = collector_settings().model_dump(mode="json")["streams"]
    streams["clicks"]["deduplicate_by"] = "click_id"
    bare = json.dumps(CLICK, indent=1).encode()
    own = json.dumps(CLICK | {"click_id": "own"}).encode()
    with serving(collector(streams=streams)) as client:
        for data in (bare, own):
            headers, body = MODES[mode](data)
            answer = client.post("/v1/clicks", content=body, headers=headers)
            assert answer.status_code == 200, answer.text
    assert [value for _, _, value in producers[0].written] == [
        b'{"click_id":"c-1",' + bare[1:],
        own,
    ]


def test_the_id_of_a_cloud_event_is_left_out_where_the_stream_tells_no_copies(
    client: httpx.Client,
) -> None:
    answer = client.post(
        "/v1/clicks", content=json.dumps(cloud_event(CLICK)), headers={"Content-Type": CLOUD_EVENT}
    )
    assert answer.status_code == 422
    assert "click_id" in answer.json()["refused"][0]["why"]


# --- a client that is made of the description ----------------------------------------------------


@pytest.fixture
def generated(client: httpx.Client, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """What a generated client's function for `events` answers, parsed by its types."""
    with generated_client(f"{client.base_url}/openapi.json", tmp_path / "millrace_door") as door:
        send = importlib.import_module("millrace_door.api.default.send_events")
        patience = httpx.Timeout(PATIENCE_SECONDS)

        def sent(body: Any, **headers: str) -> Any:
            with door.AuthenticatedClient(str(client.base_url), SECRET, timeout=patience) as one:
                return send.sync(client=one, body=body, **headers)

        yield sent


def test_a_generated_client_sends_records(
    generated: Callable[..., Any], producer: FakeProducer
) -> None:
    record = importlib.import_module("millrace_door.models.events_record").EventsRecord
    good, bad = record.from_dict(EVENT), record.from_dict(EVENT | {"status": 1000})
    assert generated(good).written == 1
    answer = generated([good, bad], prefer="return=representation")
    assert (answer.written, [one.record for one in answer.refused]) == (1, [2])
    assert answer.places[0][1] == len(producer.written) - 1
    assert answer.places[1] is None
    problem = generated([bad])
    assert (problem.status, problem.refused[0].record) == (422, 1)
    assert [value["event_id"] for value in values(producer)] == [EVENT["event_id"]] * 2
