"""Models of ``configs/names.yaml``: what several programs have to call the same."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from millrace.common.paths import CONFIGS
from millrace.config.load import read_yaml, validate
from millrace.config.model import Model, Name

TopicName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]+$", max_length=249)]
ZnodePath = Annotated[str, Field(pattern=r"^(/[a-z0-9_-]+)+$")]


class CassandraNames(Model):
    datacenter: Name
    keyspace: Name


class RedisNames(Model):
    master: Name
    live_stream: str


class TopicNames(Model):
    """The name of each topic, by the part that it plays."""

    events: TopicName
    dead_letters: TopicName
    results: TopicName
    replay_progress: TopicName


class KafkaNames(Model):
    """``topics`` are those that Millrace needs, ``stream_topics`` those of further streams."""

    topics: TopicNames
    stream_topics: dict[Name, TopicName] = {}
    group_prefix: TopicName

    @property
    def parts(self) -> dict[str, str]:
        """The name of every topic, by the part that it plays."""
        return self.topics.model_dump() | self.stream_topics

    @model_validator(mode="after")
    def _no_topic_plays_two_parts(self) -> Self:
        if twice := self.stream_topics.keys() & TopicNames.model_fields.keys():
            raise ValueError(f"stream_topics: {', '.join(sorted(twice))} stands in topics")
        names = self.parts.values()
        if len(set(names)) != len(names):
            raise ValueError("a name stands twice in topics")
        return self


class ZookeeperNames(Model):
    """Absolute paths of znodes."""

    gateway_lock: ZnodePath
    applications: ZnodePath
    jobs: ZnodePath
    upkeep: ZnodePath
    keys: ZnodePath
    doors: ZnodePath


class HdfsNames(Model):
    nameservice: Name
    user: Name


class Names(Model):
    """``configs/names.yaml``: what several programs have to call the same."""

    cassandra: CassandraNames
    redis: RedisNames
    kafka: KafkaNames
    zookeeper: ZookeeperNames
    hdfs: HdfsNames

    def consumer_group(self, job: str) -> str:
        """The consumer group of a job, and its transactional id."""
        return f"{self.kafka.group_prefix}{job}"


def load_names(configs: Path = CONFIGS) -> Names:
    path = configs / "names.yaml"
    return validate(Names, read_yaml(path), path)
