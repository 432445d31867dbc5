"""What the collector must know: one JSON file, rendered by Ansible."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

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
    deduplicate_by: str | None = None
    record_bytes: PositiveInt
    fields: dict[str, FieldRule]


class ApiKey(Model):
    """``sha256`` is the hexadecimal digest of the key, which itself is on no host."""

    name: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    events_per_second: PositiveInt


class Settings(Model):
    """Sizes are bytes. ``kafka`` are librdkafka's properties."""

    streams: dict[str, StreamRule]
    keys: list[ApiKey]
    kafka: dict[str, str | int | bool]
    metrics_port: PositiveInt
    request_bytes: PositiveInt
    buffer_bytes: PositiveInt
    receive_seconds: PositiveFloat
    burst_seconds: PositiveFloat


def load_settings() -> Settings:
    """The settings from the file that ``MILLRACE_COLLECTOR_CONFIG`` names."""
    path = Path(os.environ.get("MILLRACE_COLLECTOR_CONFIG", DEFAULT_FILE))
    return Settings.model_validate_json(path.read_bytes())
