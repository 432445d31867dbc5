"""What the API must know of the cluster: one JSON file, rendered by Ansible."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

Endpoint = tuple[str, PositiveInt]  # host and port

DEFAULT_FILE = "/etc/millrace/insight-api/config.json"


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    cluster: str
    cassandra: list[Endpoint] = Field(min_length=1)
    datacenter: str
    keyspace: str
    sentinels: list[Endpoint]
    redis_master: str
    stream: str
    kafka: list[Endpoint]
    metrics_port: PositiveInt
    runbooks: Path
    panels: Path
    prometheus: list[Endpoint]
    prometheus_timeout_seconds: PositiveFloat
    prometheus_places: PositiveInt
    request_timeout_seconds: float
    speculate_after_seconds: float
    light_windows: PositiveInt
    light_places: PositiveInt
    light_queue: PositiveInt
    heavy_places: PositiveInt
    heavy_queue: PositiveInt
    lane_wait_seconds: PositiveFloat
    client_requests_per_second: PositiveFloat
    client_burst: PositiveInt
    client_pause_seconds: PositiveFloat
    client_heavy: PositiveInt
    client_streams: PositiveInt
    max_streams: PositiveInt
    kept_days: PositiveInt
    kept_days_of_hours: PositiveInt
    kept_pages: PositiveInt
    kept_seconds: PositiveFloat
    session_rows: PositiveInt
    looked_at_rows: PositiveInt
    allowed_origins: list[str]


def load_settings() -> Settings:
    """The settings from the file that ``MILLRACE_API_CONFIG`` names."""
    path = Path(os.environ.get("MILLRACE_API_CONFIG", DEFAULT_FILE))
    return Settings.model_validate_json(path.read_bytes())
