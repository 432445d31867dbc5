"""Panels: what is worth looking at, in `configs/panels.yaml`, for the operations page and Grafana.

Queries may have `${NAME}` for a value of the plan, as alerts do.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from millrace.alerts import AlertFile, filled, plan_values
from millrace.common.durations import parse_duration
from millrace.common.paths import CONFIGS
from millrace.config import Model, Name, read_yaml, validate
from millrace.plan import Plan

FILE = CONFIGS / "panels.yaml"

# Grafana's names of our units.
UNITS = {
    "seconds": "s",
    "milliseconds": "ms",
    "count": "short",
    "per_second": "ops",
    "share": "percentunit",
    "bytes": "bytes",
}
# Its grid has 24 columns; a panel is this wide and high.
WIDTH, HEIGHT = 12, 8
GRID = 24
SOURCE = {"type": "prometheus", "uid": "${source}"}


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
    """OperatorError for what isn't one."""
    return validate(PanelFile, read_yaml(path), path)


def page(plan: Plan, file: PanelFile, alerts: Mapping[str, AlertFile]) -> dict[str, Any]:
    """What the insight API reads: queries for this environment, and each alert's runbook.

    OperatorError for an unknown ``${NAME}``.
    """
    runbooks = {alert.alert: alert.runbook for each in alerts.values() for alert in each.alerts}
    return {"scrape_seconds": scrape_seconds(plan), "runbooks": runbooks} | _for_plan(plan, file)


def scrape_seconds(plan: Plan) -> int:
    settings = plan.services["prometheus_server"].settings["prometheus.yml"]
    return int(parse_duration(settings["scrape_interval"]))


def _for_plan(plan: Plan, file: PanelFile) -> dict[str, Any]:
    """The file with the plan's values in its queries."""
    values = plan_values(plan)

    def of_plan(part: Any) -> Any:
        if isinstance(part, list):
            return [of_plan(each) for each in part]
        if isinstance(part, dict):
            return {
                key: filled(FILE, value, values) if key == "expr" else of_plan(value)
                for key, value in part.items()
            }
        return part

    return of_plan(file.model_dump())


def dashboard(plan: Plan, file: PanelFile) -> dict[str, Any]:
    """All of it as one dashboard of Grafana's, which asks for its Prometheus."""
    content = _for_plan(plan, file)
    return {
        "title": f"Millrace: {plan.cluster}",
        "uid": plan.cluster,
        "schemaVersion": 38,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "utc",
        "templating": {
            "list": [
                {
                    "name": "source",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                }
            ]
        },
        "annotations": {"list": [_annotation(mark) for mark in content["marks"]]},
        "panels": list(_grid(content["groups"], scrape_seconds(plan))),
    }


def _annotation(mark: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": mark["kind"],
        "datasource": SOURCE,
        "enable": True,
        "expr": f"1000 * ({mark['expr']})",  # Grafana takes milliseconds
        "useValueForTime": True,
        "titleFormat": mark["kind"],
        "textFormat": mark["text"],
    }


def _grid(groups: list[dict[str, Any]], scrape: int) -> Iterator[dict[str, Any]]:
    """A row for each group, and its panels beneath it from left to right."""
    number, top = 0, 0
    for group in groups:
        number += 1
        place = {"x": 0, "y": top, "w": GRID, "h": 1}
        yield {"id": number, "type": "row", "title": group["title"], "gridPos": place, "panels": []}
        top += 1
        for index, panel in enumerate(group["panels"]):
            number += 1
            row, column = divmod(index, GRID // WIDTH)
            place = {"x": column * WIDTH, "y": top + row * HEIGHT, "w": WIDTH, "h": HEIGHT}
            yield _grafana_panel(panel, scrape) | {"id": number, "gridPos": place}
        top += HEIGHT * (1 + (len(group["panels"]) - 1) // (GRID // WIDTH))


def _grafana_panel(panel: dict[str, Any], scrape: int) -> dict[str, Any]:
    strips = panel["kind"] == "strips"
    steps = [("red", None), ("orange", 0.001), ("green", 0.999)] if strips else [("green", None)]
    thresholds = [{"color": color, "value": value} for color, value in steps]
    return {
        "type": "state-timeline" if strips else "timeseries",
        "title": panel["title"],
        "description": panel["why"],
        "datasource": SOURCE,
        "interval": f"{scrape}s",
        "fieldConfig": {
            "defaults": {
                "unit": UNITS[panel["unit"]],
                "color": {"mode": "thresholds" if strips else "palette-classic"},
                "thresholds": {"mode": "absolute", "steps": thresholds},
            },
            "overrides": [],
        },
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": query["expr"],
                "legendFormat": query["legend"],
                "range": True,
            }
            for index, query in enumerate(panel["queries"])
        ],
    }
