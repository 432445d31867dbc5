"""The collector on the edge hosts."""

import uuid
from datetime import UTC, datetime

import pytest

from millrace.cluster import doors, kafka
from millrace.cluster.keys import registry
from millrace.cluster.zookeeper import retrying_client
from tests.waiting import PATIENCE_SECONDS, wait_until


@pytest.fixture(scope="module")
def collectors(plan, through):
    return [through(host.name, doors.OWN_INTAKE) for host in plan.hosts_of("collector")]


def impression():
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"impression_id": str(uuid.uuid4()), "campaign": "none", "event_time": now}


def test_every_edge_host_reaches_kafka(collectors):
    for collector in collectors:
        assert collector.get("/readyz").json() == {"status": "ok"}


def test_what_is_acknowledged_is_in_the_topic(plan, collectors):
    stream = plan.streams["impressions"]
    partitions = plan.topics[stream.topic].partitions
    admin = kafka.connect(plan)
    before = sum(kafka.topic_ends(admin, stream.topic, partitions))
    for collector in collectors:
        records = [impression() for _ in range(10)]
        answer = collector.post("/v1/impressions", json=records)
        assert answer.json() == {"written": 10}
    ends = sum(kafka.topic_ends(admin, stream.topic, partitions))
    assert ends - before == 10 * len(collectors)


def test_without_a_key_nothing_is_taken(collectors):
    for collector in collectors:
        nobody = {"Authorization": ""}
        answer = collector.post("/v1/impressions", json=impression(), headers=nobody)
        assert answer.status_code == 401


def test_the_key_is_not_with_the_collector(plan, hosts_of):
    key = doors.credentials(plan).key
    folders = "/etc/millrace/collector /var/lib/millrace/collector"
    for edge in hosts_of("collector").values():
        assert edge.run(f"grep -rF %s {folders}", key).rc == 1


def test_every_collector_is_a_door_and_has_a_copy_of_the_keys(plan, hosts_of):
    with retrying_client(plan) as client:
        doors = client.get_children(f"{plan.names.zookeeper.doors}/collector")
    assert set(doors) == set(hosts_of("collector"))
    for edge in hosts_of("collector").values():
        assert edge.file("/var/lib/millrace/collector/keys.json").mode == 0o600


def test_a_use_is_noted(plan, collectors):
    for collector in collectors:
        collector.post("/v1/impressions", json=[])

    def noted():
        with registry(plan) as known:
            return known.used().get("operator")

    use = wait_until(noted, PATIENCE_SECONDS, "the use is noted")
    assert use.door.startswith(("collector-", "insight-api-"))


def test_resident_memory_is_within_the_plan(plan, hosts_of):
    planned = plan.services["collector"].memory.total
    user = plan.services["collector"].user
    for edge in hosts_of("collector").values():
        assert sum(p.rss for p in edge.process.filter(user=user)) / 1024 <= planned
