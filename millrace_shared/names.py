"""configs/names.yaml as programs on the hosts read it: what several of them call the same.

The toolkit checks the file (millrace.config has the rules); a deployment hands it on.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class CassandraNames:
    datacenter: str
    keyspace: str


@dataclass(frozen=True)
class RedisNames:
    master: str
    live_stream: str


@dataclass(frozen=True)
class TopicNames:
    events: str
    dead_letters: str
    results: str
    replay_progress: str


@dataclass(frozen=True)
class KafkaNames:
    """``stream_topics``: by the part that each plays, of the streams beside events."""

    topics: TopicNames
    stream_topics: dict[str, str]
    group_prefix: str


@dataclass(frozen=True)
class ZookeeperNames:
    """Absolute paths of znodes."""

    gateway_lock: str
    applications: str
    jobs: str
    upkeep: str
    keys: str
    doors: str


@dataclass(frozen=True)
class HdfsNames:
    nameservice: str
    user: str


@dataclass(frozen=True)
class Names:
    cassandra: CassandraNames
    redis: RedisNames
    kafka: KafkaNames
    zookeeper: ZookeeperNames
    hdfs: HdfsNames
