"""What no event should look like: a dead letter with its reason and its bytes; the job goes on."""

import hashlib
import json
import re
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from millrace.cluster import kafka
from millrace.cluster.kafka import Message, TopicPartition
from millrace.plan import Plan
from tests.e2e.conftest import Month
from tests.e2e.support import Insights
from tests.waiting import wait_until

SIXTEEN_MIB = 16 * 1024 * 1024


def event(moment: str, **changes: Any) -> dict[str, Any]:
    return {
        "event_id": uuid.uuid4().hex,
        "event_time": moment,
        "visitor_id": uuid.uuid4().hex,
        "session_hint": None,
        "method": "GET",
        "url": "/",
        "referrer": None,
        "status": 200,
        "bytes": 1,
        "user_agent": None,
        "kind": "page_view",
        "campaign": None,
    } | changes


def bad_records(moment: str) -> dict[str, bytes]:
    """Pattern of the reason → the record that earns it."""
    good = event(moment)
    without_status = {name: value for name, value in good.items() if name != "status"}
    return {
        "not JSON": b'{"event_id": "cut sho',
        "missing field: status": json.dumps(without_status).encode(),
        "event_time": json.dumps(event("2099-01-01T00:00:00.000Z")).encode(),
        "not UTF-8": json.dumps(good).encode().replace(b'"/"', b'"/\xff\xfe"'),
        "larger than": b"garbage " * (10 * 1024 * 1024 // 8),
    }


def test_bad_input_becomes_dead_letters_and_the_job_goes_on(
    plan: Plan, insights: Insights, month: Month, letters: Callable[[], int]
) -> None:
    start = month.truth.first.replace(minute=0, second=0)
    moment = start.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    bad = bad_records(moment)
    places = produce(plan, list(bad.values()))
    found = read_dead_letters(plan, set(places))
    record_bytes = plan.streams[plan.spark.settings.common.stream].record_bytes
    for place, (reason, value) in zip(places, bad.items(), strict=True):
        assert found[place].value() == value[:record_bytes]
        assert header(found[place], "size") == str(len(value))
        assert header(found[place], "sha256") == hashlib.sha256(value).hexdigest()
        assert re.search(reason, header(found[place], "reason")), header(found[place], "reason")
    wait_until(lambda: letters() == len(bad), 60, f"{len(bad)} dead letters")

    produce(plan, [json.dumps(event(moment)).encode()])
    wait_until(lambda: requests_of(insights, start) == 1, 120, "the event behind them is counted")


def requests_of(insights: Insights, start: datetime) -> int:
    hour = insights.get("/v1/traffic/total", from_=start, to=start + timedelta(hours=1))
    return hour["requests"]


def produce(plan: Plan, values: list[bytes]) -> list[str]:
    """Where the records stand, named as their dead letters are."""
    topic = plan.names.kafka.topics.events
    options = {"enable.idempotence": True, "message.max.bytes": SIXTEEN_MIB}
    producer = kafka.producer(kafka.default_client(plan) | options)
    places: dict[int, str] = {}

    def remember(number: int) -> Callable[[Any, Message], None]:
        def delivered(error: Any, message: Message) -> None:
            assert error is None, error
            places[number] = f"{topic}-{message.partition()}-{message.offset()}"

        return delivered

    for number, value in enumerate(values):
        producer.produce(topic, value, key=str(number), on_delivery=remember(number))
    assert producer.flush(60) == 0
    return [places[number] for number in range(len(values))]


def read_dead_letters(plan: Plan, keys: set[str]) -> dict[str, Message]:
    """The committed dead letters with these keys, as soon as all are there."""
    topic = plan.names.kafka.topics.dead_letters
    consumer = kafka.consumer(kafka.default_client(plan) | {"group.id": f"e2e-{uuid.uuid4().hex}"})
    partitions = range(plan.topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, kafka.OFFSET_BEGINNING) for p in partitions])
    found: dict[str, Message] = {}

    def all_are_there() -> bool:
        message = consumer.poll(1)
        if message is not None and not message.error() and message.key().decode() in keys:
            found[message.key().decode()] = message
        return found.keys() == keys

    wait_until(all_are_there, 120, "no dead letter is missing", every=0)
    consumer.close()
    return found


def header(message: Message, name: str) -> str:
    return dict(message.headers())[name].decode()
