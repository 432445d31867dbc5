#!/usr/bin/python
"""Ansible module: Kafka has the topics it should have."""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

DOCUMENTATION = """
module: kafka_topics
short_description: Kafka has the topics it should have
description:
  - Creates topics, adds partitions and corrects configuration.
  - Removes neither topics nor partitions; a topic with more partitions than are wanted keeps them.
  - Settings that were made on a topic but aren't wanted go back to the brokers' default.
options:
  brokers:
    description: Addresses with port. All of them must be there before topics are placed on them.
    type: list
    elements: str
    required: true
  topics:
    description: Topic name to C(partitions), C(replication) and C(config).
    type: dict
    required: true
  timeout:
    description: Seconds to wait for the brokers.
    type: int
    default: 120
"""

EXAMPLES = """
- name: Have the topic `events`
  kafka_topics:
    brokers: [198.18.0.21:9095]
    topics:
      events: {partitions: 6, replication: 3, config: {min.insync.replicas: "2"}}
"""

REQUEST_TIMEOUT = 30  # s
Topics = dict[str, dict[str, Any]]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "brokers": {"type": "list", "elements": "str", "required": True},
            "topics": {"type": "dict", "required": True},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    brokers, wanted = module.params["brokers"], module.params["topics"]
    client = AdminClient({"bootstrap.servers": ",".join(brokers), "log_level": 0})
    try:
        wait_for_brokers(client, len(brokers), module.params["timeout"])
        found = read_topics(client, set(wanted))
        changes = compare(wanted, found)
        for line in surplus(wanted, found):
            module.warn(line)
        if changes and not module.check_mode:
            apply(client, wanted, found)
    except (KafkaException, TimeoutError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=bool(changes), diff=[{"prepared": "\n".join(changes) + "\n"}] * bool(changes)
    )


def wait_for_brokers(client: AdminClient, count: int, timeout: float) -> None:
    """A topic made while a broker is away gets no replica there."""
    deadline = time.monotonic() + timeout
    present = 0
    while time.monotonic() < deadline:
        try:
            present = len(client.list_topics(timeout=5).brokers)
        except KafkaException:
            present = 0
        if present >= count:
            return
        time.sleep(1)
    raise TimeoutError(f"{present} of {count} brokers answer after {timeout} s")


def read_topics(client: AdminClient, names: set[str]) -> Topics:
    """Those of the named topics that exist; ``config`` is what was set on the topic itself."""
    metadata = client.list_topics(timeout=REQUEST_TIMEOUT).topics
    present = names & metadata.keys()
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in present]
    answers = client.describe_configs(resources) if resources else {}
    configs = {resource.name: future.result() for resource, future in answers.items()}
    return {
        name: {
            "partitions": len(metadata[name].partitions),
            "replication": len(metadata[name].partitions[0].replicas),
            "config": {
                entry.name: entry.value
                for entry in configs[name].values()
                if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
            },
        }
        for name in present
    }


def compare(wanted: Topics, found: Topics) -> list[str]:
    """What has to change, a line each; ValueError if this module can't change it."""
    changes = []
    for name, topic in wanted.items():
        if name not in found:
            changes.append(f"create {name}: {topic['partitions']} partitions")
            continue
        have = found[name]
        if topic["replication"] != have["replication"]:
            raise ValueError(
                f"topic {name} has {have['replication']} replicas, not {topic['replication']}: "
                "move it with kafka-reassign-partitions"
            )
        if topic["partitions"] > have["partitions"]:
            changes.append(f"{name}: {have['partitions']} -> {topic['partitions']} partitions")
        for key in sorted(topic["config"].keys() | have["config"].keys()):
            old, new = have["config"].get(key, "default"), topic["config"].get(key, "default")
            if old != new:
                changes.append(f"{name}: {key} {old} -> {new}")
    return changes


def surplus(wanted: Topics, found: Topics) -> list[str]:
    """Which topics have more partitions than are wanted, a line each. None can be removed without
    losing events and the order of keys."""
    return [
        f"topic {name} keeps its {have['partitions']} partitions, where a new one has "
        f"{wanted[name]['partitions']}: each holds as many bytes as one of those"
        for name, have in found.items()
        if have["partitions"] > wanted[name]["partitions"]
    ]


def apply(client: AdminClient, wanted: Topics, found: Topics) -> None:
    futures: dict[Any, Any] = {}
    if new := [name for name in wanted if name not in found]:
        futures |= client.create_topics([_new_topic(name, wanted[name]) for name in new])
    if more := [n for n in found if wanted[n]["partitions"] > found[n]["partitions"]]:
        futures |= client.create_partitions(
            [NewPartitions(name, wanted[name]["partitions"]) for name in more]
        )
    if other := [n for n in found if wanted[n]["config"] != found[n]["config"]]:
        futures |= client.incremental_alter_configs(
            [_corrected(name, wanted[name]["config"], found[name]["config"]) for name in other]
        )
    for future in futures.values():
        future.result()


def _new_topic(name: str, topic: dict[str, Any]) -> NewTopic:
    return NewTopic(
        name,
        num_partitions=topic["partitions"],
        replication_factor=topic["replication"],
        config=topic["config"],
    )


def _corrected(name: str, wanted: dict[str, str], found: dict[str, str]) -> ConfigResource:
    set_ = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in wanted.items()
        if found.get(key) != value
    ]
    unset = [
        ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
        for key in found.keys() - wanted.keys()
    ]
    return ConfigResource(ResourceType.TOPIC, name, incremental_configs=set_ + unset)


if __name__ == "__main__":
    main()
