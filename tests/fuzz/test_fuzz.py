"""Whatever arrives, each record is an event of its archive, a dead letter, or skipped, once.

FUZZ_MINUTES says how long records are sent, at least; FUZZ_SEED makes the same records again.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from random import Random
from uuid import uuid4

import pytest

from millrace.audit.archive import Archive
from millrace.cluster import kafka, prometheus, yarn, zookeeper
from millrace.cluster.hdfs import Hdfs
from millrace.cluster.kafka import TopicPartition
from millrace.cluster.skips import skipped
from millrace.common.paths import stack_name
from millrace.plan import Plan, load_plan
from tests.drills.steady import wait_until_steady
from tests.e2e.support import millrace
from tests.fuzz.records import records
from tests.fuzz.sender import Place, Sender, Sent
from tests.waiting import pause, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.extended]

MINUTES = float(os.environ.get("FUZZ_MINUTES", "60"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or time.time_ns()
AT_ONCE = 50  # records of a producer, once a second: all that a laptop's cores do beside the jobs
CAUGHT_UP_SECONDS = 900.0


@pytest.fixture
def plan() -> Iterator[Plan]:
    """With all archives at work, also those of jobs that `local` doesn't run."""
    plan = load_plan(stack_name())
    idle = sorted(zookeeper.disabled(plan) & set(archives(plan)))
    for job in idle:
        millrace("jobs", "enable", job, "--within", "10m")
    yield plan
    for job in idle:
        millrace("jobs", "disable", job, "--within", "10m", "--yes")


def test_each_record_has_its_place_and_nothing_is_restarted(plan: Plan) -> None:
    print(f"FUZZ_SEED={SEED}")  # shown where the test fails
    wait_until_steady(plan)
    streams = archived_streams(plan)
    before = processes(plan)
    sent = everything_sent(plan, streams)
    wait_until(lambda: caught_up(plan), CAUGHT_UP_SECONDS, "the jobs have read all of it", every=5)
    places = {*archived(plan, streams), *dead_letters(plan), *left_out(plan)}
    lost = Counter(kind for place, kind in sent.kept.items() if place not in places)
    assert not lost, f"FUZZ_SEED={SEED}: no place for {lost}"
    seen = Counter(kind for place, kind in sent.aborted.items() if place in places)
    assert not seen, f"FUZZ_SEED={SEED}: aborted, and taken all the same: {seen}"
    assert processes(plan) == before, f"FUZZ_SEED={SEED}"


def archived_streams(plan: Plan) -> list[str]:
    """The streams of this stack that a job archives."""
    return [stream for job in archives(plan) for stream in plan.spark.settings.streams_of(job)]


def archives(plan: Plan) -> list[str]:
    return [job for job in plan.jobs if job.startswith("archive")]


def everything_sent(plan: Plan, streams: list[str]) -> Sent:
    sender = Sender(plan, Random(SEED))
    sources = {
        plan.streams[name].topic: records(plan.streams[name], SEED, lambda: datetime.now(UTC))
        for name in streams
    }
    for _ in range(round(60 * MINUTES)):
        for topic, source in sources.items():
            sender.send(topic, islice(source, AT_ONCE))
        pause(1, "some records a second: what is looked for is what they are, not how many")
    return sender.sent


def caught_up(plan: Plan) -> bool:
    admin = kafka.connect(plan)
    return all(kafka.lag(admin, plan, job) == 0 for job in archives(plan))


# -- Where records are


def archived(plan: Plan, streams: list[str]) -> Iterator[Place]:
    hdfs = Hdfs(plan)
    for stream in streams:
        found = Archive.newest(hdfs, plan, stream).places()
        twice = [place for place, times in found.items() if times > 1]
        assert not twice, f"FUZZ_SEED={SEED}: archived twice: {twice}"
        yield from ((plan.streams[stream].topic, *place) for place in found)


def dead_letters(plan: Plan) -> Iterator[Place]:
    """Each is named by the place of its record: TOPIC-PARTITION-OFFSET."""
    topic = plan.names.kafka.topics.dead_letters
    number = plan.topics[topic].partitions
    consumer = kafka.consumer(kafka.default_client(plan) | {"group.id": f"fuzz-{uuid4().hex}"})
    consumer.assign([TopicPartition(topic, p, kafka.OFFSET_BEGINNING) for p in range(number)])
    ended: set[int] = set()
    while len(ended) < number:
        message = consumer.poll(10)
        assert message is not None, f"{topic} can't be read to its end"
        if message.error():
            assert message.error().code() == kafka.KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
        else:
            name, partition, offset = message.key().decode().rsplit("-", 2)
            yield name, int(partition), int(offset)
    consumer.close()


def left_out(plan: Plan) -> Iterator[Place]:
    """What an archive went on behind, because no executor could hold it."""
    for one in skipped(plan, archives(plan)):
        yield from ((one.topic, one.partition, offset) for offset in range(one.start, one.end))


# -- What must not be restarted


def processes(plan: Plan) -> dict[str, object]:
    """When each daemon began, and which containers each worker runs: drivers and executors."""
    daemons = {
        f"{one['metric']['host']} {one['metric']['job']}": one["value"][1]
        for one in prometheus.query(plan, "process_start_time_seconds")
    }
    containers = {
        worker.name: sorted(one["id"] for one in yarn.containers(plan, worker))
        for worker in plan.hosts_of("nodemanager")
    }
    return daemons | containers
