"""An application's configuration: the JSON file that a deployment ships with it.

It holds parts of the plan as they are (endpoints, limits, tuned settings); what the jobs need of
them is picked here, and nowhere else.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What everything of Millrace calls the same.
KEYSPACE = "millrace"
DATACENTER = "millrace"
REDIS_MASTER = "millrace"
LIVE_STREAM = "millrace:traffic"
EVENTS_TOPIC = "events"
RESULTS_TOPIC = "results"
DEAD_LETTER_TOPIC = "dead-letter"

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Limits:
    """What a valid event may be; see the dead letters' reasons in `transforms.parse`."""

    event_bytes: int
    event_time_earliest: str
    event_time_ahead_seconds: int


@dataclass(frozen=True)
class Config:
    """``settings`` has a group for each job, which includes what all jobs share."""

    application: str
    version: str
    jobs: list[str]
    zookeeper: str
    kafka: str
    cassandra: list[str]
    cassandra_port: int
    sentinels: list[tuple[str, int]]
    lease_seconds: float
    catch_up_seconds: float
    checkpoints: str
    archive: str
    limits: Limits
    settings: dict[str, dict[str, Any]]


def load(path: Path) -> Config:
    return parse(json.loads(path.read_text()))


def parse(content: dict[str, Any]) -> Config:
    endpoints, limits, settings = content["endpoints"], content["limits"], content["settings"]
    common = settings["common"]
    return Config(
        application=content["application"],
        version=content["version"],
        jobs=content["jobs"],
        zookeeper=endpoints["zookeeper"],
        kafka=endpoints["kafka"],
        cassandra=endpoints["cassandra"],
        cassandra_port=endpoints["cassandra_port"],
        sentinels=[_host_and_port(address) for address in endpoints["sentinels"]],
        lease_seconds=common["lease_seconds"],
        catch_up_seconds=common["catch_up_seconds"],
        checkpoints=common["checkpoints"],
        archive=common["archive"],
        limits=Limits(
            event_bytes=common["event_bytes"],
            event_time_earliest=limits["event_time_earliest"],
            event_time_ahead_seconds=_seconds(limits["event_time_ahead"]),
        ),
        settings={job: common | settings[job] for job in content["jobs"]},
    )


def _host_and_port(address: str) -> tuple[str, int]:
    host, port = address.rsplit(":", 1)
    return host, int(port)


def _seconds(duration: str) -> int:
    """``1h`` as seconds."""
    match = re.fullmatch(r"(\d+)([smhd])", duration)
    if match is None:
        raise ValueError(f"'{duration}' is not a duration such as 90s, 15m or 24h")
    return int(match[1]) * SECONDS[match[2]]
