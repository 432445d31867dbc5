"""What the API must know of the cluster: one JSON file, rendered by Ansible."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from millrace_shared.keys import SCOPES
from millrace_shared.names import ZookeeperNames

Endpoint = tuple[str, PositiveInt]  # host and port
DEFAULT_FILE = "/etc/millrace/insight-api/config.json"


def _known(scope: str) -> str:
    if scope not in SCOPES:
        raise ValueError(f"{scope!r} is no scope; there are {', '.join(SCOPES)}")
    return scope


Scope = Annotated[str, AfterValidator(_known)]


class OidcScopes(BaseModel):
    """What people may read: ``everybody``, and who is in one of the ``groups`` that the claim of
    the identity provider lists."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    everybody: list[Scope]
    groups: dict[str, list[Scope]]
    groups_claim: str


class Oidc(BaseModel):
    """The load balancer that authenticates people: its region, its ARN, and what they may read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    region: str = Field(pattern=r"^[a-z0-9-]+$")
    balancer: str = Field(pattern=r"^arn:")
    scopes: OidcScopes


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    cluster: str
    host: str
    doors: PositiveInt  # hosts with an API
    data: Path
    zookeeper: list[Endpoint] = Field(min_length=1)
    znodes: ZookeeperNames
    keys_look_seconds: PositiveFloat
    oidc: Oidc | None
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
