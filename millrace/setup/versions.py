"""``configs/versions.yaml``: what is pinned, and at which version."""

from typing import Annotated

from pydantic import Field

from millrace.common.paths import CONFIGS
from millrace.config import Model, read_yaml, validate

VERSIONS = CONFIGS / "versions.yaml"
Coordinates = Annotated[str, Field(pattern=r"^[^:\s]+:[^:\s]+:[^:\s]+(:[^:\s]+)?$")]


class Unpack(Model):
    """A folder taken out of a jar into the distribution's ``share/``."""

    jar: Coordinates
    path: str


class Distribution(Model):
    """What is built into one tarball: jars, a Python environment, or both; or Debian's programs."""

    version: str
    jars: list[Coordinates] = Field(default_factory=list)
    transitive: bool = True
    exclude: list[str] = Field(default_factory=list)
    unpack: list[Unpack] = Field(default_factory=list)
    python: str | None = None
    debian: list[str] = Field(default_factory=list)


class Versions(Model):
    pulumi: str
    distributions: dict[str, Distribution]


def load_versions() -> Versions:
    return validate(Versions, read_yaml(VERSIONS), VERSIONS)
