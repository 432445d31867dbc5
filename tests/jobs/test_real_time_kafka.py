"""A job in real time on a real broker: its driver is killed, and nothing that was sent is lost."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.engines.broker import Broker, broker
from millrace.common.paths import REPO
from millrace.common.waiting import wait_until
from millrace.inventory import deployment
from millrace.plan import load_plan
from millrace.setup.jobs_package import build
from tests.alerts import JOB, write_down
from tests.jobs.samples import NAMES, event
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.extended

PARTITIONS = 3
EVENTS_PER_SECOND = 100
START_SECONDS = 120.0
COMMIT_SECONDS = 5  # the least that Spark takes
SETTLE_SECONDS = 60.0
TOPIC, RESULTS = NAMES.kafka.topics.events, NAMES.kafka.topics.results
GROUP = f"{NAMES.kafka.group_prefix}{JOB}"


class Sender:
    """Sends events one by one, every second one a failure, and knows where each is in its topic."""

    def __init__(self, brokers: str) -> None:
        self.failures: set[str] = set()  # keys of the records that are to come
        self._producer = Producer({"bootstrap.servers": brokers, "linger.ms": 0})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Sender":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._producer.flush()

    def _run(self) -> None:
        number = 0
        while not self._over.wait(1 / EVENTS_PER_SECOND):
            status = 500 if number % 2 else 200
            value = event(event_id=f"e{number}", status=status)
            heard = self._heard if status == 500 else None
            self._producer.produce(TOPIC, value, on_delivery=heard, partition=number % PARTITIONS)
            self._producer.poll(0)
            number += 1

    def _heard(self, error: Any, message: Any) -> None:
        assert error is None
        self.failures.add(f"{JOB}|events|{message.partition()}|{message.offset()}")


class Reader:
    """All records of the results topic by their keys, and up to where they were seen."""

    def __init__(self, brokers: str) -> None:
        self.seen: dict[str, list[bytes]] = defaultdict(list)
        self.read_to: dict[int, int] = {}
        self._consumer = Consumer({"bootstrap.servers": brokers, "group.id": "reader"})
        self._consumer.assign([TopicPartition(RESULTS, number, 0) for number in range(2)])
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(100, 0.05):
                if not message.error():
                    self.seen[message.key().decode()].append(message.value())
                    self.read_to[message.partition()] = message.offset() + 1


@contextmanager
def driver(one: Broker, folder: Path, spark: dict[str, str], log: str) -> Iterator[Any]:
    """A driver with its JVM in a process group, killed as a whole when the context ends."""
    content = deployment(load_plan("local"), JOB) | {"version": ""}
    content["settings"][JOB]["trigger_seconds"] = COMMIT_SECONDS
    asked = {
        "config": content,
        "brokers": one.address,
        "folder": folder.as_uri(),
        "spark": spark,
    }
    package = build(target=folder, folders=[folder])["jobs"].path  # as hosts have it
    path = os.pathsep.join(map(str, (package, REPO)))
    with (folder / log).open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.jobs.real_time_driver", json.dumps(asked)],
            env=os.environ | {"PYTHONPATH": path},
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def positions(brokers: str) -> dict[int, int]:
    """What the job has told of how far it has read, by partition."""
    asking = Consumer({"bootstrap.servers": brokers, "group.id": GROUP})
    try:
        wanted = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        return {one.partition: one.offset for one in asking.committed(wanted, PATIENCE_SECONDS)}
    finally:
        asking.close()


def ends(brokers: str, topic: str = TOPIC, partitions: int = PARTITIONS) -> dict[int, int]:
    asking = Consumer({"bootstrap.servers": brokers, "group.id": "nobody"})
    try:
        return {
            number: asking.get_watermark_offsets(TopicPartition(topic, number), PATIENCE_SECONDS)[1]
            for number in range(partitions)
        }
    finally:
        asking.close()


def test_after_a_kill_nothing_is_lost_and_what_comes_again_is_the_same(
    tmp_path: Path, spark_settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_TRIAL", str(write_down(tmp_path)))
    with broker() as one:
        one.create(TOPIC, PARTITIONS)
        one.create(RESULTS, 2)
        with Sender(one.address) as sender, Reader(one.address) as reader:
            with driver(one, tmp_path, spark_settings, "first.log"):
                assert wait_until(lambda: len(reader.seen) > 0, START_SECONDS)
                assert wait_until(
                    lambda: min(positions(one.address).values()) > 0, START_SECONDS
                ), (tmp_path / "first.log").read_text()
                assert wait_until(
                    lambda: under_way(reader.seen, positions(one.address)), SETTLE_SECONDS, 0.1
                )  # the middle of a batch
            assert wait_until(
                lambda: reader.read_to == ends(one.address, RESULTS, 2), SETTLE_SECONDS
            )
            before = set(reader.seen)
            noted = positions(one.address)
            with driver(one, tmp_path, spark_settings, "second.log"):
                assert wait_until(lambda: set(reader.seen) > before, START_SECONDS)
                assert wait_until(
                    lambda: in_real_time(one.address, sender, reader), SETTLE_SECONDS, 0.1
                )
                sender.end()
                assert wait_until(lambda: sender.failures <= reader.seen.keys(), SETTLE_SECONDS), (
                    f"{len(sender.failures - reader.seen.keys())} lost"
                )
                assert wait_until(
                    lambda: positions(one.address) == ends(one.address), SETTLE_SECONDS
                )
                in_transaction(one.address)  # its end takes an offset that nobody reads
                assert wait_until(
                    lambda: positions(one.address) == ends(one.address), SETTLE_SECONDS
                ), (positions(one.address), ends(one.address))
    assert reader.seen.keys() == sender.failures
    assert all(len(set(found)) == 1 for found in reader.seen.values())
    again = {key for key, found in reader.seen.items() if len(found) > 1}
    assert again <= before, "what comes again was there before the kill"
    assert again, "the kill was in the middle of a batch"
    assert all(offset >= noted[partition] for partition, offset in map(place_of, again))


def under_way(keys: Iterable[str], noted: dict[int, int]) -> set[str]:
    """Those of a batch that isn't over: the job has not told of having read so far."""
    return {
        key
        for key in list(keys)
        for partition, offset in [place_of(key)]
        if offset >= noted[partition]
    }


def in_real_time(brokers: str, sender: Sender, reader: Reader) -> bool:
    """Whether an event is answered for which another one's answer, of its own batch, was seen
    before it was sent. Where answers come with their batch's end no event can be."""
    noted = positions(brokers)
    assert wait_until(lambda: under_way(reader.seen, noted), SETTLE_SECONDS, 0.02)
    sent = set(sender.failures)

    def answered() -> bool:
        return not under_way(reader.seen, noted).issubset(sent) or positions(brokers) != noted

    assert wait_until(answered, SETTLE_SECONDS, 0.02)
    return positions(brokers) == noted


def place_of(key: str) -> tuple[int, int]:
    _, _, partition, offset = key.split("|")
    return int(partition), int(offset)


def in_transaction(brokers: str) -> None:
    producer = Producer({"bootstrap.servers": brokers, "transactional.id": "test"})
    producer.init_transactions(PATIENCE_SECONDS)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, event(event_id="last", status=200), partition=partition)
    producer.commit_transaction(PATIENCE_SECONDS)
