"""``configs/policy.yaml``: the data of the rules."""

from functools import cache

from pydantic import Field, PositiveInt

from millrace.common.paths import CONFIGS
from millrace.config import Model, read_yaml, validate


class Tags(Model):
    everywhere: list[str] = Field(min_length=1)
    hosts: list[str]
    group: str


class Replication(Model):
    kafka: PositiveInt
    min_insync: PositiveInt
    cassandra: PositiveInt
    hdfs: PositiveInt


class Settings(Model):
    summary: str
    tags: Tags
    tagged: list[str]
    protected: list[str]
    metadata_hop_limit: PositiveInt
    doors: list[PositiveInt]
    zones: PositiveInt
    replication: Replication


@cache
def load_settings() -> Settings:
    path = CONFIGS / "policy.yaml"
    return validate(Settings, read_yaml(path), path)
