"""``configs/support.yaml``: what a bundle takes along, and how much."""

from millrace.common.paths import CONFIGS
from millrace.config import Model, Setting, read_yaml, validate

PATH = CONFIGS / "support.yaml"


class Settings(Model):
    summary: str
    settings: dict[str, Setting]

    def __getitem__(self, key: str) -> int:
        value = self.settings[key].value
        assert isinstance(value, int)
        return value


def load_settings() -> Settings:
    return validate(Settings, read_yaml(PATH), PATH)
