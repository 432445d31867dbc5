"""An application's configuration: the JSON file that a deployment ships with it.

It holds parts of the plan as they are (endpoints, streams, tuned settings); what the jobs need of
them is picked here, and nowhere else.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace_jobs.kinds import read_settings
from millrace_jobs.lookup import Lookup
from millrace_jobs.settings import ApplicationSettings, JobSettings
from millrace_jobs.stream import Stream
from millrace_shared.names import Names
from millrace_shared.strict import read, read_known

Endpoint = tuple[str, int]


@dataclass(frozen=True)
class Endpoints:
    """Host and port of each server."""

    zookeeper: list[Endpoint]
    kafka: list[Endpoint]
    kafka_controllers: list[Endpoint]
    cassandra: list[Endpoint]
    sentinels: list[Endpoint]
    resourcemanagers: list[Endpoint]
    namenodes: list[Endpoint]


@dataclass(frozen=True)
class Config:
    """``settings`` are those of each job, which include what all jobs share."""

    application: str
    version: str
    jobs: list[str]
    names: Names
    zookeeper: str
    kafka: str
    cassandra: list[str]
    cassandra_port: int
    sentinels: list[Endpoint]
    lease_seconds: float
    catch_up_seconds: float
    web_port: int
    checkpoints: str
    archives: str
    streams: dict[str, Stream]
    lookups: dict[str, Lookup]
    settings: dict[str, JobSettings]

    def archive_of(self, stream: Stream) -> str:
        """The folder of a stream's Delta table."""
        return f"{self.archives}/{stream.name}"


def load(path: Path) -> Config:
    return parse(json.loads(path.read_text()))


def parse(content: dict[str, Any]) -> Config:
    endpoints, settings = read(Endpoints, content["endpoints"]), content["settings"]
    common = settings["common"]
    shared = read_known(ApplicationSettings, common)
    names = read(Names, content["names"])
    hdfs = f"hdfs://{names.hdfs.nameservice}"
    return Config(
        application=content["application"],
        version=content["version"],
        jobs=content["jobs"],
        names=names,
        zookeeper=_joined(endpoints.zookeeper),
        kafka=_joined(endpoints.kafka),
        cassandra=[host for host, _ in endpoints.cassandra],
        cassandra_port=endpoints.cassandra[0][1],
        sentinels=endpoints.sentinels,
        lease_seconds=shared.lease_seconds,
        catch_up_seconds=shared.catch_up_seconds,
        web_port=shared.web_port,
        checkpoints=hdfs + shared.checkpoints,
        archives=hdfs + shared.archives,
        streams={name: Stream.of(name, part) for name, part in content["streams"].items()},
        lookups={name: Lookup.of(name, part) for name, part in content["tables"].items()},
        settings={job: read_settings(job, common | settings[job]) for job in content["jobs"]},
    )


def _joined(endpoints: list[Endpoint]) -> str:
    return ",".join(f"{host}:{port}" for host, port in endpoints)
