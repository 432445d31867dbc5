"""What the toolkit sends: `millrace send`, and `millrace load --through collector`, whose ledger is
as strict as that of Kafka's own producer."""

import itertools
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from millrace.cluster import collector as client_of_collector
from millrace.cluster.collector import CollectorProducer, Sender
from millrace.cluster.doors import Credentials
from millrace.common.errors import OperatorError
from millrace.keys import operator_rate
from millrace.ledger.load import Load
from millrace.ledger.store import Ledger, Writer
from millrace.plan import load_plan
from millrace.replay.send import send_log
from tests.collector.conftest import SECRET, serving
from tests.collector.fakes import FakeProducer
from tests.jobs.samples import event
from tests.unit.runs import SPEC
from tests.waiting import PATIENCE_SECONDS, soon

NOBODY = "http://127.0.0.1:1"
ACCESS = Credentials(None, SECRET)


def sent(folder: Path, urls: list[str], key: str = SECRET) -> Ledger:
    """The ledger of a second of load that begins now."""
    at_once = {"partitions": 1, "seconds": 1, "out_of_order": 0, "late": 0, "results_offsets": [0]}
    spec = replace(SPEC, **at_once, started_ms=int(1000 * time.time()))
    writer = Writer(folder / "run", spec)
    connect = lambda: CollectorProducer(urls, "events", Credentials(None, key))  # noqa: E731
    Load(spec, connect, writer, lambda: False, lambda seen: None).run()
    return Ledger.open(writer.path)


def test_all_is_acknowledged_where_it_is_also_by_one_host_of_two(
    collector: Callable[..., FastAPI], producers: list[FakeProducer], tmp_path: Path
) -> None:
    with serving(collector()) as client:
        ledger = sent(tmp_path, [NOBODY, str(client.base_url)])
    assert ledger.acked.sum() == len(producers[0].written) == 1000
    values = {offset: value for offset, (_, _, value) in enumerate(producers[0].written)}
    for number, row in enumerate(ledger.events(np.arange(0, 1000, 100)).to_pylist()):
        assert row["event_id"].encode() in values[int(ledger.offset[100 * number])]


def test_what_kafka_did_not_acknowledge_is_in_doubt_and_the_rest_is_not(
    collector: Callable[..., FastAPI], producers: list[FakeProducer], tmp_path: Path
) -> None:
    with serving(collector()) as client:
        producers[0].errors[b'"method":"POST"'] = KafkaError(KafkaError._MSG_TIMED_OUT)
        ledger = sent(tmp_path, [str(client.base_url)])
    written = len(producers[0].written)
    assert 0 < written < 1000
    assert (ledger.acked.sum(), ledger.in_doubt, ledger.failed) == (written, 1000 - written, 0)


def test_what_is_refused_has_failed(
    collector: Callable[..., FastAPI], producers: list[FakeProducer], tmp_path: Path
) -> None:
    with serving(collector()) as client:
        too_large = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        producers[0].refuses[b'"method":"POST"'] = too_large
        ledger = sent(tmp_path, [str(client.base_url)])
    written = len(producers[0].written)
    assert (ledger.acked.sum(), ledger.in_doubt, ledger.failed) == (written, 0, 1000 - written)
    assert written < 1000


def test_what_is_not_written_goes_to_the_next_host(
    collector: Callable[..., FastAPI], producers: list[FakeProducer], tmp_path: Path
) -> None:
    with serving(collector()) as one, serving(collector()) as other:
        producers[0].refuses[b'"method":"POST"'] = BufferError()
        ledger = sent(tmp_path, [str(one.base_url), str(other.base_url)])
    assert ledger.acked.sum() == sum(len(producer.written) for producer in producers) == 1000
    assert all(b'"method":"POST"' not in value for _, _, value in producers[0].written)


@pytest.mark.parametrize(("status", "in_doubt"), [(502, True), (504, True), (503, False)])
def test_what_a_proxy_had_no_answer_to_is_in_doubt_and_what_it_kept_is_sent_again(
    collector: Callable[..., FastAPI],
    producers: list[FakeProducer],
    tmp_path: Path,
    status: int,
    in_doubt: bool,
) -> None:
    app, asked = collector(), itertools.count()

    @app.middleware("http")
    async def proxy(request: Request, call_next: Any) -> Response:
        if request.method == "POST" and next(asked) == 0:
            problem = {"title": "of the proxy", "status": status}
            return JSONResponse(problem, status, media_type="application/problem+json")
        answer: Response = await call_next(request)
        return answer

    with serving(app) as client:
        ledger = sent(tmp_path, [str(client.base_url)])
    written = len(producers[0].written)
    assert ledger.acked.sum() == written
    assert (written < 1000) is in_doubt


def test_a_key_that_is_not_taken_ends_the_load(
    collector: Callable[..., FastAPI], tmp_path: Path
) -> None:
    with serving(collector()) as client, pytest.raises(OperatorError, match="401"):
        sent(tmp_path, [str(client.base_url)], "other")


def test_a_log_is_sent_and_what_is_no_request_is_left_out(
    collector: Callable[..., FastAPI],
    producers: list[FakeProducer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "access.log"
    line = '1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET /{} HTTP/1.1" 200 12 "-" "-"\n'
    log.write_text("nonsense\n" + "".join(line.format(number) for number in range(1200)))
    with serving(collector()) as client:
        sender = Sender([NOBODY, str(client.base_url)], "events", ACCESS, 100_000, 1_000)
        monkeypatch.setattr(Sender, "of", lambda plan, stream: sender)
        assert send_log(load_plan("local"), str(log)) == (1200, 1)
    ids = {json.loads(value)["event_id"] for _, _, value in producers[0].written}
    assert len(ids) == len(producers[0].written) == 1200


def test_only_what_is_not_written_is_sent_again(
    collector: Callable[..., FastAPI], producers: list[FakeProducer]
) -> None:
    values = [event(url=url) for url in ("/1", "/later", "/3")]
    with serving(collector()) as client, ThreadPoolExecutor(1) as pool:
        producers[0].errors[b"/later"] = KafkaError(KafkaError._MSG_TIMED_OUT)
        sending = pool.submit(
            Sender([str(client.base_url)], "events", ACCESS, 10_000, 10).send, values
        )
        soon(lambda: producers[0].failed > 1, "it was sent again")
        producers[0].errors.clear()
        sending.result(2 * PATIENCE_SECONDS)
    assert sorted(value for _, _, value in producers[0].written) == sorted(values)


def test_what_is_refused_is_said_once_the_others_are_written(
    collector: Callable[..., FastAPI], producers: list[FakeProducer]
) -> None:
    with serving(collector()) as client:
        sender = Sender([str(client.base_url)], "events", ACCESS, 10_000, 10)
        with pytest.raises(OperatorError, match=r"1 refused: .*url"):
            sender.send([event(), event(url=""), event()])
    assert len(producers[0].written) == 2


def test_a_request_is_no_larger_than_its_key_may_send_at_once(
    collector: Callable[..., FastAPI], producers: list[FakeProducer]
) -> None:
    with serving(collector(burst_seconds=0.01)) as client:  # 1,000 records
        Sender([str(client.base_url)], "events", ACCESS, 90_000, 100).send([event()] * 250)
    assert len(producers[0].written) == 250


def test_a_request_fits_what_the_operator_s_key_may_send_through_one_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_of_collector.doors, "credentials", lambda plan: ACCESS)
    plan = load_plan("local")
    sender = Sender.of(plan, "events")
    settings = plan.services["collector"].settings["config.json"]
    share = operator_rate(plan) * settings["burst_seconds"] / 2
    assert sender._request_records <= share
    assert sender._request_bytes <= settings["request_bytes"]
