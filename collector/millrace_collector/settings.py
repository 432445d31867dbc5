"""What the collector must know: one JSON file, rendered by Ansible."""

import hashlib
import os
from collections import Counter
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator

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

    @field_validator("sha256")
    @classmethod
    def _of_something(cls, sha256: str) -> str:
        if sha256 == hashlib.sha256(b"").hexdigest():
            raise ValueError("is the digest of an empty secret: put one into its file")
        return sha256


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
    event_bytes: PositiveInt
    threads: PositiveInt
    allowed_origins: list[str]

    @field_validator("keys")
    @classmethod
    def _each_of_its_own(cls, keys: list[ApiKey]) -> list[ApiKey]:
        for what in ("name", "sha256"):
            counted = Counter(getattr(key, what) for key in keys)
            if alike := [key.name for key in keys if counted[getattr(key, what)] > 1]:
                raise ValueError(f"{' and '.join(alike)} have one {what}: give each its own secret")
        return keys


def load_settings() -> Settings:
    """The settings from the file that ``MILLRACE_COLLECTOR_CONFIG`` names."""
    path = Path(os.environ.get("MILLRACE_COLLECTOR_CONFIG", DEFAULT_FILE))
    return Settings.model_validate_json(path.read_bytes())
