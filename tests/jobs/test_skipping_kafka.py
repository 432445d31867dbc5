"""Records that no executor can hold, on a real broker: found, left out, and nothing else is."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from bench.engines.broker import broker
from millrace.common.paths import REPO
from tests.jobs.samples import NAMES

pytestmark = pytest.mark.extended

TOPIC = "bombs"
HUGE = 300_000_000
PATIENCE_SECONDS = 900.0


def test_a_job_goes_on_behind_records_that_no_executor_can_hold(
    connectors: list[Path], tmp_path: Path
) -> None:
    shutil.copytree(connectors[0].parent, tmp_path / "jars")
    truth: Counter[str] = Counter()
    bombs: list[tuple[int, int]] = []
    offsets: Counter[int] = Counter()
    with broker() as running:
        running.create(TOPIC, 2)
        running.create(NAMES.kafka.topics.dead_letters, 1)

        def send(partition: int, value: bytes, codec: str = "none") -> None:
            settings = {"compression.type": codec, "message.max.bytes": 1_000_000_000}
            producer = Producer({"bootstrap.servers": running.address, "linger.ms": 0} | settings)
            producer.produce(TOPIC, value, partition=partition)
            assert producer.flush(60) == 0
            offsets[partition] += 1

        def words(partition: int, count: int) -> None:
            producer = Producer({"bootstrap.servers": running.address})
            for number in range(count):
                word = f"word-{number % 7}"
                producer.produce(TOPIC, word, partition=partition)
                truth[word] += 1
            assert producer.flush(60) == 0
            offsets[partition] += count

        def bomb(partition: int, codec: str) -> None:
            bombs.append((partition, offsets[partition]))
            send(partition, b"a" * HUGE, codec)

        words(0, 150)
        words(1, 250)
        bomb(0, "gzip")
        bomb(0, "zstd")
        words(0, 40)
        bomb(1, "zstd")
        words(1, 150)
        bomb(0, "zstd")
        words(0, 100)
        done = subprocess.run(
            [sys.executable, "-m", "tests.jobs.skipping_driver", running.address, TOPIC, tmp_path],
            cwd=REPO,
            env=os.environ | {"PYTHONPATH": f"{REPO}:{REPO / 'spark-jobs'}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["counts"] == truth
        assert [tuple(place) for place in found["left_out"]] == sorted(bombs)
        assert letters(running.address, len(bombs)) == {f"{TOPIC}-{p}-{o}" for p, o in bombs}


def letters(address: str, count: int) -> set[str]:
    """The keys of the dead letters."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([NAMES.kafka.topics.dead_letters])
    keys: set[str] = set()
    for message in consumer.consume(count, 30):
        assert message.error() is None
        assert message.value() is None
        keys.add(message.key().decode())
    consumer.close()
    return keys
