"""A stream whose values are Avro: which records are events, and the reasons why others are not."""

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from millrace_jobs.stream import Stream
from millrace_jobs.transforms import parse
from millrace_jobs.transforms.large import HASH, SIZE
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.common.paths import REPO
from millrace.config.streams import load_streams
from millrace.plan.streams import plan_stream
from tests.jobs.samples import RECEIVED, STREAM

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "request",
    "fields": [
        {"name": "event_time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        *({"name": name, "type": "string"} for name in ("event_id", "visitor_id", "method", "url")),
        {"name": "kind", "type": ["null", "string"]},  # required; a producer may leave it out
        {"name": "status", "type": "int"},
        {"name": "bytes", "type": ["long", "null"]},
        {"name": "session_hint", "type": "string"},
        *(
            {"name": name, "type": ["null", "string"], "default": None}
            for name in ("referrer", "user_agent", "campaign")
        ),
    ],
}
AVRO = replace(STREAM, avro_schema=json.dumps(SCHEMA))
TIME = datetime(2015, 5, 17, 10, 5, 3, 250_000)
EVENT: dict[str, Any] = {
    "event_time": TIME,
    "event_id": "0f9e",
    "visitor_id": "a1",
    "method": "GET",
    "url": "/straße?q=日本",
    "kind": "page_view",
    "status": 200,
    "bytes": 2**33,
    "session_hint": "",
    "referrer": None,
    "user_agent": "Mozilla/5.0",
    "campaign": None,
}

Records = Callable[[list[bytes | None]], DataFrame]


def encoded(**changes: Any) -> bytes:
    """An event but for the changes, by another implementation than Spark's."""
    event = EVENT | changes
    value = io.BytesIO()
    moment = event["event_time"].replace(tzinfo=UTC)
    fastavro.schemaless_writer(value, SCHEMA, event | {"event_time": moment})
    return value.getvalue()


def large(size: int) -> bytes:
    return encoded(url="/" + "x" * (size - len(encoded(url="/")) - 2))


def claiming(size: int) -> bytes:
    """A few bytes that say that a string of so many follows."""
    text = io.BytesIO()
    fastavro.schemaless_writer(text, "long", size)
    return encoded().partition(b"\x080f9e")[0] + text.getvalue() + b"0f9e"


EVENTS = [
    encoded(),
    encoded(event_time=RECEIVED + timedelta(hours=1)),
    encoded(event_time=datetime(2000, 1, 1)),
    encoded(campaign="spring", referrer=""),
    large(AVRO.record_bytes),
]
MALFORMED: dict[str, list[bytes | None]] = {
    "no value": [None],
    "larger than 32768 bytes": [large(AVRO.record_bytes + 1), b"\xff" * 10_000_000],
    "not Avro of the stream's schema": [
        b"",
        json.dumps(EVENT, default=str).encode(),
        encoded()[:-1],
        claiming(2**30),
        claiming(2**31 - 9),
        b"\0\0\0\0\x07" + encoded(),  # the header of a registry
    ],
    "more than Avro of the stream's schema": [encoded() + b"\0", encoded() + encoded()],
    "missing field: kind": [encoded(kind=None)],
    "missing field: bytes": [encoded(bytes=None)],
    "kind is empty": [encoded(kind="")],
    "url has the character NUL": [encoded(url="/\0")],
    "not UTF-8: url": [encoded(url="/ab").replace(b"/ab", b"/\xc3\x28")],
    "not UTF-8: campaign": [encoded(campaign="ab").replace(b"ab", b"\xff\xfe")],
    "event_time out of range": [
        encoded(event_time=datetime(1999, 12, 31, 23, 59, 59, 999_000)),
        encoded(event_time=RECEIVED + timedelta(hours=1, milliseconds=1)),
        encoded(event_time=datetime(9999, 12, 31)),
        encoded(event_time=datetime(1, 1, 1)),
    ],
    "status out of range": [encoded(status=1000), encoded(status=-(2**31))],
    "bytes out of range": [encoded(bytes=-1), encoded(bytes=2**63 - 1)],
}


def test_events_arrive_unchanged(records: Records) -> None:
    classified = records(EVENTS).transform(parse.classify, AVRO)
    rows = parse.valid(classified, AVRO).orderBy("offset").collect()
    assert len(rows) == len(EVENTS)
    assert {name: rows[0][name] for name in EVENT} == EVENT
    plain = records([]).transform(parse.classify, STREAM)
    assert parse.valid(classified, AVRO).dtypes == parse.valid(plain, STREAM).dtypes


def test_every_malformed_record_has_its_reason_and_keeps_its_bytes(records: Records) -> None:
    cases = [(reason, value) for reason, values in MALFORMED.items() for value in values]
    read = records([value for _, value in cases])
    classified = read.transform(parse.classify, AVRO)
    found = parse.malformed(classified, AVRO)
    rows = {row.offset: row for row in found.collect()}
    assert [rows[number].reason for number in range(len(cases))] == [why for why, _ in cases]
    kept = [value and value[: AVRO.record_bytes] for _, value in cases]
    assert [rows[number].value for number in range(len(cases))] == kept
    assert parse.valid(classified, AVRO).count() == 0
    assert found.columns == [*read.columns, SIZE, HASH, "reason"]


def test_the_documented_producer_s_records_are_events(
    records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (REPO / "docs" / "your-own-job.md").read_text().partition("### Another format")[2]
    blocks = [re.search(rf"```{kind}\n(.*?)```", text, re.S) for kind in ("yaml", "json", "python")]
    declaration, schema, producer = (block[1] for block in blocks if block)
    (tmp_path / "configs" / "streams").mkdir(parents=True)
    (tmp_path / "configs" / "streams" / "orders.yaml").write_text(declaration)
    (tmp_path / "configs" / "streams" / "orders.avsc").write_text(schema)
    monkeypatch.chdir(tmp_path)
    sent: list[bytes | None] = []

    class Producer:
        def __init__(self, settings: dict[str, str]) -> None:
            assert settings.keys() == {"bootstrap.servers"}

        def produce(self, topic: str, value: bytes, key: str) -> None:
            assert (topic, key) == ("orders", "o-1")
            sent.append(value)

        def flush(self) -> None:
            assert sent

    monkeypatch.setattr("confluent_kafka.Producer", Producer)
    exec(producer, {})
    orders = plan_stream(load_streams(tmp_path / "configs")["orders"], "orders", "small")
    stream = Stream.of("orders", orders.model_dump())
    received = records(sent).withColumn("timestamp", F.current_timestamp())
    [row] = parse.valid(received.transform(parse.classify, stream), stream).collect()
    assert (row.order_id, row.cents, row.voucher) == ("o-1", 1250, None)


@settings(max_examples=20)
@given(st.lists(st.binary(max_size=80) | st.binary().map(lambda end: encoded()[:40] + end)))
@example([encoded()])
def test_whatever_comes_is_an_event_or_a_dead_letter(
    records: Records, values: list[bytes | None]
) -> None:
    classified = records(values).transform(parse.classify, AVRO)
    events = [row.offset for row in parse.valid(classified, AVRO).collect()]
    others = [row.offset for row in parse.malformed(classified, AVRO).collect()]
    assert sorted(events + others) == list(range(len(values)))
    for offset in events:  # as another implementation reads it
        value = io.BytesIO(values[offset] or b"")
        assert fastavro.schemaless_reader(value, SCHEMA)["method"]
        assert not value.read()
