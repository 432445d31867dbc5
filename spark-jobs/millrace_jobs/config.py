"""An application's configuration: the JSON file that a deployment ships with it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Kafka:
    bootstrap: str
    events: str
    results: str
    dead_letter: str


@dataclass(frozen=True)
class Cassandra:
    hosts: list[str]
    port: int
    datacenter: str
    keyspace: str


@dataclass(frozen=True)
class Redis:
    sentinels: list[str]
    master: str
    stream: str


@dataclass(frozen=True)
class Limits:
    """What a valid event may be; see the dead letters' reasons in `transforms.parse`."""

    event_bytes: int
    event_time_earliest: str
    event_time_ahead_seconds: int


@dataclass(frozen=True)
class Config:
    """``jobs`` maps each job this application hosts to its settings."""

    application: str
    version: str
    zookeeper: str
    checkpoints: str
    archive: str
    kafka: Kafka
    cassandra: Cassandra
    redis: Redis
    limits: Limits
    jobs: dict[str, dict[str, Any]]


def load(path: Path) -> Config:
    content = json.loads(path.read_text())
    sections = {"kafka": Kafka, "cassandra": Cassandra, "redis": Redis, "limits": Limits}
    return Config(**content | {name: cls(**content[name]) for name, cls in sections.items()})
