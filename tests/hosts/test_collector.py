"""The collector on the edge hosts."""

import uuid
from datetime import UTC, datetime

import httpx
import pytest

from millrace.cluster import kafka, operator_key
from millrace.cluster.keys import registry
from millrace.cluster.zookeeper import retrying_client
from tests.waiting import PATIENCE_SECONDS, wait_until


@pytest.fixture(scope="module")
def urls(plan):
    return [f"http://{address}" for address in plan.addresses("collector", "http")]


@pytest.fixture(scope="module")
def key(plan):
    return operator_key.secret_of(plan)


def impression():
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"impression_id": str(uuid.uuid4()), "campaign": "none", "event_time": now}


def test_every_edge_host_reaches_kafka(urls):
    for url in urls:
        assert httpx.get(f"{url}/readyz", timeout=PATIENCE_SECONDS).json() == {"status": "ok"}


def test_what_is_acknowledged_is_in_the_topic(plan, urls, key):
    stream = plan.streams["impressions"]
    partitions = plan.topics[stream.topic].partitions
    admin = kafka.connect(plan)
    before = sum(kafka.topic_ends(admin, stream.topic, partitions))
    for url in urls:
        records = [impression() for _ in range(10)]
        answer = httpx.post(
            f"{url}/v1/impressions",
            json=records,
            headers={"Authorization": f"Bearer {key}"},
            timeout=PATIENCE_SECONDS,
        )
        assert answer.json() == {"written": 10}
    assert sum(kafka.topic_ends(admin, stream.topic, partitions)) - before == 10 * len(urls)


def test_without_a_key_nothing_is_taken(urls):
    for url in urls:
        answer = httpx.post(f"{url}/v1/impressions", json=impression(), timeout=PATIENCE_SECONDS)
        assert answer.status_code == 401


def test_the_key_is_on_no_host(hosts_of, key):
    folders = "/etc/millrace/collector /var/lib/millrace/collector"
    for edge in hosts_of("collector").values():
        assert edge.run(f"grep -rF %s {folders}", key).rc == 1


def test_every_collector_is_a_door_and_has_a_copy_of_the_keys(plan, hosts_of):
    with retrying_client(plan) as client:
        doors = client.get_children(f"{plan.names.zookeeper.doors}/collector")
    assert set(doors) == set(hosts_of("collector"))
    for edge in hosts_of("collector").values():
        assert edge.file("/var/lib/millrace/collector/keys.json").mode == 0o600


def test_a_use_is_noted(plan, urls, key):
    for url in urls:
        httpx.post(
            f"{url}/v1/impressions",
            json=[],
            headers={"Authorization": f"Bearer {key}"},
            timeout=PATIENCE_SECONDS,
        )

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
