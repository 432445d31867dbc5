"""Models of ``configs/alerts/``: what is worth an operator's attention; a file a component."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from millrace.common.durations import parse_duration
from millrace.common.paths import CONFIGS
from millrace.config.load import read_yaml, validate
from millrace.config.model import Model

FOLDER = CONFIGS / "alerts"
RANGE = re.compile(r"\[([0-9]+[smhd])\]")
Duration = Annotated[str, Field(pattern=r"^[1-9][0-9]*[smhd]$")]
SEVERITIES = ("critical", "warning", "info")  # the worst first


class Record(Model):
    """A series that several alerts are made of."""

    record: str = Field(pattern=r"^[a-z_]+(:[a-z_0-9]+)+$")
    expr: str
    why: str = Field(min_length=10)


class Alert(Model):
    """``severity``: critical wakes somebody, a warning waits for the morning, info explains.

    ``runbook`` is the page of `runbooks/` that it opens. Rules of one name are one alert.
    ``lasts`` is how long it goes on after what it tells of has ended, since it looks back.
    ``undrilled`` is why no drill brings it about, where none does.
    """

    alert: str = Field(pattern=r"^[A-Z][A-Za-z0-9]+$")
    expr: str
    wait: Duration | None = Field(default=None, alias="for")
    lasts: Duration | None = None
    severity: Literal["critical", "warning", "info"]
    summary: str
    runbook: str = Field(pattern=r"^[a-z0-9-]+$")
    labels: dict[str, str] = Field(default_factory=dict)
    why: str = Field(min_length=10)
    source: str = Field(min_length=3)
    undrilled: str | None = Field(default=None, min_length=10)

    @property
    def wait_seconds(self) -> int:
        return parse_duration(self.wait) if self.wait else 0

    @property
    def lasts_seconds(self) -> int:
        return parse_duration(self.lasts) if self.lasts else 0

    @property
    def looks_back_seconds(self) -> int:
        """The longest range that it is judged by."""
        return max(map(parse_duration, RANGE.findall(self.expr)), default=0)


class AlertFile(Model):
    """``configs/alerts/<component>.yaml``."""

    records: list[Record] = Field(default_factory=list)
    alerts: list[Alert]


def load_alerts(folder: Path = FOLDER) -> dict[str, AlertFile]:
    """Component → its alerts. Raises OperatorError for what isn't one."""
    return {
        path.stem: validate(AlertFile, read_yaml(path), path)
        for path in sorted(folder.glob("*.yaml"))
    }
