"""``configs/support.yaml``: what a bundle takes along."""

from pydantic import Field

from millrace.common.paths import CONFIGS
from millrace.config import Model, Name, Setting, read_yaml, validate

PATH = CONFIGS / "support.yaml"


class Query(Model):
    """In Prometheus' language; answered as a range."""

    query: str
    why: str = Field(min_length=10)


class Settings(Model):
    summary: str
    settings: dict[str, Setting]
    queries: dict[Name, Query] = Field(min_length=1)

    def __getitem__(self, key: str) -> int:
        value = self.settings[key].value
        assert isinstance(value, int)
        return value


def load_settings() -> Settings:
    return validate(Settings, read_yaml(PATH), PATH)
