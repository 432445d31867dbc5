"""Models of ``configs/panels.yaml``: what is worth looking at."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from millrace.common.paths import CONFIGS
from millrace.config.load import read_yaml, validate
from millrace.config.model import Model, Name

FILE = CONFIGS / "panels.yaml"


class Query(Model):
    """``legend`` names each of its series, with ``{{label}}`` for one of their labels."""

    legend: str = Field(min_length=1)
    expr: str


class Panel(Model):
    """``strips`` show shares from 0 to 1 as colours, ``lines`` anything else."""

    name: Name
    title: str
    why: str = Field(min_length=10)
    unit: Literal["seconds", "milliseconds", "count", "per_second", "share", "bytes"]
    kind: Literal["lines", "strips"] = "lines"
    queries: list[Query] = Field(min_length=1)


class Group(Model):
    title: str
    panels: list[Panel] = Field(min_length=1)


class Mark(Model):
    """An event in every picture: a sample's value is the moment, ``text`` is as a legend."""

    kind: str = Field(pattern=r"^[a-z]+(-[a-z]+)*$")
    why: str = Field(min_length=10)
    text: str
    expr: str


class PanelFile(Model):
    """``configs/panels.yaml``."""

    groups: list[Group]
    marks: list[Mark]

    @property
    def panels(self) -> list[Panel]:
        return [panel for group in self.groups for panel in group.panels]

    @model_validator(mode="after")
    def _no_name_twice(self) -> "PanelFile":
        names = [panel.name for panel in self.panels]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"more than one panel is called {', '.join(twice)}")
        return self


def load_panels(path: Path = FILE) -> PanelFile:
    """Loads the panels. Raises OperatorError for a file that isn't one of panels."""
    return validate(PanelFile, read_yaml(path), path)
