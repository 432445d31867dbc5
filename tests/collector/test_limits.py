"""What a key may send, and what a hostile request costs: counted in records that are looked at and
in bytes that are decompressed, which its key pays, and nobody else."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from millrace_collector import bodies
from millrace_collector.content_encoding import PART_BYTES, PART_MEMBERS, Content, zstd
from millrace_collector.limits import Allowance
from millrace_collector.records import Checker
from millrace_collector.refusals import BadBody, TooLarge, TooMany

from tests.clock import Clock
from tests.collector.conftest import KEYS, SECRET, SLOW_SECRET, key_of, serving
from tests.collector.fakes import FakeProducer
from tests.jobs.samples import EVENT, event
from tests.waiting import PATIENCE_SECONDS, soon

SLOW = {"Authorization": f"Bearer {SLOW_SECRET}"}
NDJSON = {"Content-Type": "application/x-ndjson"}
GZIP = NDJSON | {"Content-Encoding": "gzip"}


@dataclass
class Work:
    """What the collector has done."""

    records: int = 0
    decompressed: int = 0


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    done = Work()
    key_of_record, read = Checker.key_of, Content.read

    def counted_key_of(*args: Any) -> bytes:
        done.records += 1
        return key_of_record(*args)

    def counted_read(content: Content) -> bytes:
        part = read(content)
        done.decompressed += len(part)
        return part

    monkeypatch.setattr(Checker, "key_of", counted_key_of)
    monkeypatch.setattr(Content, "read", counted_read)
    return done


Make = Callable[..., FastAPI]


@pytest.fixture
def slow_client(collector: Make) -> Iterator[httpx.Client]:
    """A client whose key may send 100 records a second, and 1,000 at once."""
    with serving(with_slow_key(collector, 100, burst_seconds=10)) as client:
        client.headers.update(SLOW)
        yield client


def with_slow_key(collector: Make, rate: int, **changes: Any) -> FastAPI:
    keys = KEYS | {"slow": key_of(SLOW_SECRET, rate)}
    return collector(keys, **{"request_bytes": 4_000_000, "buffer_bytes": 30_000_000} | changes)


def lines(good: int, bad: int = 0) -> bytes:
    return b"\n".join([event()] * good + [b"nonsense"] * bad)


# -- Allowances


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 120)), max_size=50))
def test_an_allowance_gives_its_rate_and_what_was_saved_and_no_more(
    steps: list[tuple[float, int]],
) -> None:
    clock = Clock()
    allowance = Allowance("records", 10, 100, clock)
    given_out = 0
    for pause, amount in steps:
        clock.sleep(pause)
        try:
            allowance.charge(amount)
            given_out += amount
        except TooLarge:
            assert amount > 100
        except TooMany as refused:
            clock.sleep(refused.retry_after_seconds + 1e-6)
            allowance.charge(amount)  # by then it is there
            given_out += amount
        assert given_out <= 100 + 10 * clock.seconds + 1e-3


def test_a_key_has_its_rate_and_the_others_have_theirs(collector: Make, clock: Clock) -> None:
    with serving(collector()) as client:
        assert client.post("/v1/events", json=EVENT, headers=SLOW).status_code == 200
        refused = client.post("/v1/events", json=EVENT, headers=SLOW)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert client.post("/v1/events", json=EVENT).status_code == 200
        clock.sleep(1)
        assert client.post("/v1/events", json=EVENT, headers=SLOW).status_code == 200


def test_more_than_a_key_may_have_at_once_is_too_large(
    slow_client: httpx.Client, work: Work
) -> None:
    answer = slow_client.post("/v1/events", content=lines(1001), headers=NDJSON)
    assert answer.status_code == 413
    assert "1,000 records at once; send fewer records" in answer.json()["detail"]
    assert work.records == 0
    assert slow_client.post("/v1/events", content=lines(1000), headers=NDJSON).status_code == 200


def test_a_large_request_locks_nobody_of_its_key_out(
    slow_client: httpx.Client, clock: Clock
) -> None:
    """It is never on credit: another record waits for its own turn alone."""
    assert slow_client.post("/v1/events", content=lines(1000), headers=NDJSON).status_code == 200
    refused = slow_client.post("/v1/events", json=EVENT)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    clock.sleep(0.01)
    assert slow_client.post("/v1/events", json=EVENT).status_code == 200


def test_requests_that_come_together_share_what_their_key_may_have(
    slow_client: httpx.Client, producers: list[FakeProducer], work: Work
) -> None:
    with ThreadPoolExecutor(12) as pool:
        sent = [
            pool.submit(slow_client.post, "/v1/events", content=lines(500), headers=NDJSON)
            for _ in range(12)
        ]
        statuses = sorted(one.result(PATIENCE_SECONDS).status_code for one in sent)
    assert statuses == [200] * 2 + [429] * 10
    assert work.records == len(producers[0].written) == 1000


# -- Hostile requests


def test_bad_records_are_charged_as_good_ones_are(slow_client: httpx.Client, work: Work) -> None:
    body = gzip.compress(lines(0, bad=400))
    statuses = [
        slow_client.post("/v1/events", content=body, headers=GZIP).status_code for _ in range(20)
    ]
    assert statuses == [422] * 2 + [429] * 18
    assert work.records == 800
    other = slow_client.post(
        "/v1/events", json=EVENT, headers={"Authorization": f"Bearer {SECRET}"}
    )
    assert other.status_code == 200


def test_bytes_are_charged_as_they_are_decompressed(slow_client: httpx.Client, work: Work) -> None:
    """100 records of 1,024 bytes a second, and ten seconds of that at once."""
    body = gzip.compress(b"\n" * 900_000)
    statuses = [
        slow_client.post("/v1/events", content=body, headers=GZIP).status_code for _ in range(20)
    ]
    assert statuses == [200] + [429] * 19
    assert work.decompressed <= 1_024_000 + 19 * PART_BYTES


def test_who_waits_as_told_is_taken_soon(
    slow_client: httpx.Client, clock: Clock, work: Work
) -> None:
    """Nobody knows before how much a body has in it: a try costs, but each asks for more time."""
    body = gzip.compress(b"\n" * 900_000)
    tries = 0
    slow_client.post("/v1/events", content=body, headers=GZIP)
    while (answer := slow_client.post("/v1/events", content=body, headers=GZIP)).status_code == 429:
        clock.sleep(float(answer.headers["retry-after"]))
        tries += 1
        assert tries < 10
    assert answer.status_code == 200


@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress])
def test_empty_members_are_not_for_nothing(
    slow_client: httpx.Client, compress: Callable[[bytes], bytes], work: Work
) -> None:
    encoding = {"Content-Encoding": "gzip" if compress is gzip.compress else "zstd"}
    answer = slow_client.post(
        "/v1/events", content=compress(b"") * 2_000, headers=NDJSON | encoding
    )
    assert answer.status_code in (413, 429)


def test_a_bomb_is_put_down_soon(slow_client: httpx.Client, work: Work) -> None:
    body = gzip.compress(b"\n" * 100_000_000)
    assert slow_client.post("/v1/events", content=body, headers=GZIP).status_code in (413, 429)
    assert work.decompressed <= 4_000_000 + PART_BYTES


def test_an_array_of_nothing_is_refused_before_it_is_taken_apart(
    collector: Make, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 KB that become two million values of 64 bytes each."""
    found: list[int] = []
    decode = bodies._elements
    monkeypatch.setattr(
        bodies, "_elements", lambda part: found.append(part.count(b",")) or decode(part)
    )
    body = gzip.compress(b"[" + b"1," * 1_999_000 + b"1]")
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    with serving(with_slow_key(collector, 100_000)) as client:
        assert client.post("/v1/events", content=body, headers=headers | SLOW).status_code == 413
    assert sum(found) == work.records == 0


def test_a_request_that_never_fits_the_memory_is_too_large(collector: Make, work: Work) -> None:
    with serving(with_slow_key(collector, 100_000, buffer_bytes=1_000_000)) as client:
        answer = client.post("/v1/events", content=b"1\n" * 4_000, headers=NDJSON | SLOW)
        assert (answer.status_code, answer.json()["title"]) == (413, "Too large")
        assert (
            client.post("/v1/events", content=lines(100), headers=NDJSON | SLOW).status_code == 200
        )
    assert work.records == 100


def test_another_key_has_its_turn_between_two_parts_of_large_requests(
    collector: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one thread, which many large requests of one key want. The first part of the first one
    lasts until the small one waits, too."""
    app = with_slow_key(collector, 100_000, threads=1)
    intake = app.state.collector.intake
    begun, came, looked = threading.Event(), threading.Event(), []
    key_of_record, records_of = Checker.key_of, intake._records

    def observed(checker: Checker, value: bytes, now: datetime) -> bytes:
        looked.append(value)
        if not begun.is_set():
            begun.set()
            came.wait(PATIENCE_SECONDS)
            soon(intake._pool._work_queue.qsize, "the small request waits for the thread")
        return key_of_record(checker, value, now)

    def coming(form: bodies.Format, body: bytes, *args: Any) -> Any:
        if b"/small" in body:
            came.set()
        return records_of(form, body, *args)

    monkeypatch.setattr(Checker, "key_of", observed)
    monkeypatch.setattr(intake, "_records", coming)
    with serving(app) as client, ThreadPoolExecutor(8) as pool:
        large = [
            pool.submit(client.post, "/v1/events", content=lines(2_000), headers=NDJSON | SLOW)
            for _ in range(8)
        ]
        begun.wait(PATIENCE_SECONDS)
        assert client.post("/v1/events", json=EVENT | {"url": "/small"}).status_code == 200
        assert {one.result(PATIENCE_SECONDS).status_code for one in large} == {200}
    (place,) = (number for number, value in enumerate(looked) if b"/small" in value)
    assert place <= 600  # three parts, where there are eighty


# -- Parts of bodies


def content_of(body: bytes, encoding: str) -> list[bytes]:
    content = Content(body, encoding)
    parts = []
    while not content.is_read:
        parts.append(content.read())
        assert len(parts[-1]) <= PART_BYTES
    return parts


@given(st.lists(st.binary(max_size=200_000), max_size=4), st.sampled_from(["gzip", "zstd"]))
def test_members_are_read_in_parts(contents: list[bytes], encoding: str) -> None:
    compress = {"gzip": gzip.compress, "zstd": zstd.compress}[encoding]
    assert b"".join(content_of(b"".join(map(compress, contents)), encoding)) == b"".join(contents)


def test_padding_is_skipped_and_empty_members_come_in_parts_too() -> None:
    padded = gzip.compress(b"a") + b"\0" * 1000 + gzip.compress(b"b") + b"\0" * 1000
    assert b"".join(content_of(padded, "gzip")) == b"ab"
    assert len(content_of(gzip.compress(b"") * 10 * PART_MEMBERS, "gzip")) >= 10


def taken_apart(split: bodies.Split, body: bytes) -> tuple[list[bytes], int]:
    """The records, and in how many parts they came."""
    found, at, parts = [], 0, 0
    while True:
        part, at = split(body, at)
        found, parts = found + part, parts + 1
        if at >= len(body):
            return found, parts


nasty_texts = st.lists(
    st.sampled_from(["}", "},{", '"', "\\", "[", "]", ",", " ", "é"]), max_size=8
)
elements = st.recursive(
    st.none() | st.integers() | nasty_texts.map("".join),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(nasty_texts.map("".join), inner, max_size=3)
    ),
    max_leaves=8,
).map(lambda value: json.dumps(value, ensure_ascii=False).encode())


@given(
    st.lists(elements, min_size=1, max_size=300),
    st.sampled_from([b",", b" ,\n", b",  "]),
    st.integers(10, 400),
)
def test_an_array_in_parts_is_the_same_array(
    values: list[bytes], comma: bytes, part_bytes: int
) -> None:
    """However short parts are: so short that elements are as long."""
    body = b" [" + comma.join(values) + b"]\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "PART_BYTES", part_bytes)
        assert taken_apart(bodies.array, body)[0] == values


@given(st.binary(max_size=200).map(lambda tail: b'[{"a":[{}]},{"a":"},{"},' + tail))
def test_what_is_no_array_is_none_in_parts_either(body: bytes) -> None:
    try:
        json.loads(body)
        is_json = True
    except (ValueError, RecursionError):
        is_json = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "PART_BYTES", 10)
        if is_json:
            taken_apart(bodies.array, body)
        else:
            with pytest.raises(BadBody):
                taken_apart(bodies.array, body)


def test_large_bodies_come_in_parts() -> None:
    nested = json.dumps({"a": {"b": [{"c": "},{"}]}, "d": 1}).encode()
    for split, body in (
        (bodies.array, b"[" + b",".join([nested] * 20_000) + b"]"),
        (bodies.lines, b"\n".join([nested] * 20_000)),
    ):
        found, parts = taken_apart(split, body)
        assert found == [nested] * 20_000
        assert parts >= len(body) // bodies.PART_BYTES - 1
