"""A quorum of controllers, brokers in their zones, and topics that outlive any one of them."""

import re
import uuid

import pytest
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from millrace.cluster import kafka
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture(scope="module")
def admin(plan):
    return kafka.connect(plan)


@pytest.fixture(scope="module")
def broker(hosts_of):
    """A broker's host, for the tools on it."""
    return next(iter(hosts_of("kafka_broker").values()))


@pytest.fixture(scope="module")
def topics(admin):
    return admin.list_topics(timeout=PATIENCE_SECONDS).topics


def test_one_controller_leads_and_all_voters_have_caught_up(plan, broker):
    table = broker.check_output("kafka-metadata-quorum describe --replication").splitlines()
    rows = [row.split() for row in table[1:]]
    voters = {int(row[0]): row[-1] for row in rows if row[-1] in ("Leader", "Follower")}
    controllers = len(plan.hosts_of("kafka_controller"))
    assert sorted(voters.values()) == ["Follower"] * (controllers - 1) + ["Leader"]
    observers = {int(row[0]) for row in rows if row[-1] == "Observer"}
    assert observers == {host.index for host in plan.hosts_of("kafka_broker")}


def test_every_broker_stands_in_the_rack_of_its_zone(plan, admin):
    nodes = admin.describe_cluster().result(timeout=PATIENCE_SECONDS).nodes
    racks = {node.id: (node.host, node.rack) for node in nodes}
    assert racks == {
        host.index: (plan.reached_at(host.address), host.zone)
        for host in plan.hosts_of("kafka_broker")
    }


def test_topics_are_those_of_the_plan(plan, topics):
    for name, planned in plan.topics.items():
        partitions = topics[name].partitions.values()
        assert len(partitions) == planned.partitions
        assert {len(partition.replicas) for partition in partitions} == {planned.replication}


def test_topics_are_configured_as_the_plan_says(plan, admin):
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in plan.topics]
    for resource, answer in admin.describe_configs(resources).items():
        found = answer.result(timeout=PATIENCE_SECONDS)
        wanted = plan.topics[resource.name].config
        assert {key: found[key].value for key in wanted} == wanted


def test_every_partition_has_its_replicas_in_sync_and_in_different_zones(plan, topics):
    zones = {host.index: host.zone for host in plan.hosts_of("kafka_broker")}
    for name, topic in topics.items():
        for number, partition in topic.partitions.items():
            where = f"{name}-{number}"
            assert sorted(partition.isrs) == sorted(partition.replicas), where
            replicas = len(partition.replicas)
            assert len({zones[broker] for broker in partition.replicas}) == replicas, where


def test_a_fault_can_not_lose_what_was_acknowledged(plan, admin):
    for host in plan.hosts_of("kafka_broker"):
        broker = ConfigResource(ResourceType.BROKER, str(host.index))
        found = admin.describe_configs([broker])[broker].result(timeout=PATIENCE_SECONDS)
        assert found["unclean.leader.election.enable"].value == "false"
        assert found["auto.create.topics.enable"].value == "false"
        assert found["default.replication.factor"].value == str(plan.replication.kafka.factor)


@pytest.fixture
def topic(plan, admin):
    """A topic of its own, configured like `dead-letter`."""
    name = f"test-{uuid.uuid4().hex}"
    planned = plan.topics["dead-letter"]
    new = NewTopic(name, 1, planned.replication, config=planned.config)
    admin.create_topics([new], operation_timeout=PATIENCE_SECONDS)[name].result()
    yield name
    admin.delete_topics([name], operation_timeout=PATIENCE_SECONDS)[name].result()


def test_a_line_of_ten_megabytes_is_taken_and_given_back(plan, topic):
    line = uuid.uuid4().bytes * (10 * 2**20 // 16)
    sent = []
    limit = int(plan.topics["dead-letter"].config["max.message.bytes"])
    producer = kafka.producer(kafka.default_client(plan) | {"message.max.bytes": limit})
    producer.produce(topic, line, key="test", on_delivery=lambda error, _: sent.append(error))
    producer.flush(PATIENCE_SECONDS)
    assert sent == [None]
    consumer = kafka.consumer(kafka.default_client(plan) | {"group.id": topic})
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    read = consumer.poll(PATIENCE_SECONDS).value()
    consumer.close()
    assert read == line


@pytest.mark.parametrize("service", ["kafka_broker", "kafka_controller"])
def test_operators_have_kafkas_tools_without_saying_where_the_cluster_is(plan, hosts_of, service):
    connection = next(iter(hosts_of(service).values()))
    listed = connection.check_output("kafka-topics --list").splitlines()
    assert plan.topics.keys() <= set(listed)
    offsets = connection.check_output("kafka-get-offsets --topic events").splitlines()
    assert len([line for line in offsets if re.match(r"events:\d+:\d+$", line)]) == (
        plan.topics["events"].partitions
    )
