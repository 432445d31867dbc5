"""What the collector must know: one JSON file, rendered by Ansible."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from millrace_shared.names import ZookeeperNames

DEFAULT_FILE = "/etc/millrace/collector/config.json"


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FieldRule(Model):
    """A field of configs/streams. ``ahead_seconds`` is how far a time may be ahead of now."""

    type: str
    required: bool
    minimum: int | None
    maximum: int | None
    earliest: str | None
    ahead_seconds: int | None


class StreamRule(Model):
    """A stream of configs/streams whose records are JSON, as the plan has it."""

    topic: str
    key: str
    event_time: str
    id: str | None = None  # for jobs alone
    deduplicate_by: str | None = None
    record_bytes: PositiveInt
    fields: dict[str, FieldRule]


class Settings(Model):
    """Sizes are bytes. ``kafka`` are librdkafka's properties.

    Attributes:
        host: this one's name; ``all_doors`` is how many of them run a collector.
        zookeeper: ``host:port`` of each server, with commas between them.
        keys_file: the copy of the keys, which this process writes.
    """

    host: str
    all_doors: PositiveInt
    streams: dict[str, StreamRule]
    kafka: dict[str, str | int | bool]
    zookeeper: str
    znodes: ZookeeperNames
    keys_file: Path
    keys_look_seconds: PositiveFloat
    metrics_port: PositiveInt
    request_bytes: PositiveInt
    buffer_bytes: PositiveInt
    receive_seconds: PositiveFloat
    burst_seconds: PositiveFloat
    event_bytes: PositiveInt
    addresses: PositiveInt
    threads: PositiveInt
    allowed_origins: list[str]


def load_settings() -> Settings:
    """The settings from the file that ``MILLRACE_COLLECTOR_CONFIG`` names."""
    path = Path(os.environ.get("MILLRACE_COLLECTOR_CONFIG", DEFAULT_FILE))
    return Settings.model_validate_json(path.read_bytes())
