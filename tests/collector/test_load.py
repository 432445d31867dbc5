"""What the toolkit sends: `millrace send`, and `millrace load --through collector`, whose ledger is
as strict as that of Kafka's own producer."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import KafkaError
from fastapi import FastAPI

from millrace.cluster.collector import CollectorProducer, Sender
from millrace.common.errors import OperatorError
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


def sent(folder: Path, urls: list[str], key: str = SECRET) -> Ledger:
    """The ledger of a second of load that begins now."""
    at_once = {"partitions": 1, "seconds": 1, "out_of_order": 0, "late": 0, "results_offsets": [0]}
    spec = replace(SPEC, **at_once, started_ms=int(1000 * time.time()))
    writer = Writer(folder / "run", spec)
    connect = lambda: CollectorProducer(urls, "events", key)  # noqa: E731
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


def test_what_kafka_did_not_acknowledge_is_in_doubt(
    collector: Callable[..., FastAPI], producers: list[FakeProducer], tmp_path: Path
) -> None:
    with serving(collector()) as client:
        producers[0].error = KafkaError(KafkaError._MSG_TIMED_OUT)
        ledger = sent(tmp_path, [str(client.base_url)])
    assert (ledger.acked.sum(), ledger.in_doubt, ledger.failed) == (0, 1000, 0)


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
        sender = Sender([NOBODY, str(client.base_url)], "events", SECRET, 100_000)
        monkeypatch.setattr(Sender, "of", lambda plan, stream: sender)
        assert send_log(load_plan("local"), str(log)) == (1200, 1)
    ids = {json.loads(value)["event_id"] for _, _, value in producers[0].written}
    assert len(ids) == len(producers[0].written) == 1200


def test_records_are_sent_again_until_they_are_acknowledged(
    collector: Callable[..., FastAPI], producers: list[FakeProducer]
) -> None:
    with serving(collector()) as client, ThreadPoolExecutor(1) as pool:
        producers[0].error = KafkaError(KafkaError._MSG_TIMED_OUT)
        sending = pool.submit(
            Sender([str(client.base_url)], "events", SECRET, 1000).send, [event()]
        )
        soon(lambda: producers[0].failed > 1, "it was sent again")
        producers[0].error = None
        sending.result(2 * PATIENCE_SECONDS)
    assert len(producers[0].written) == 1
