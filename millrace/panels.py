"""Panels of `configs/panels.yaml`, for the operations page and as a dashboard of Grafana's.

Queries may have `${NAME}` for a value of the plan, as alerts do.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from millrace.alerts import filled, plan_values
from millrace.common.durations import parse_duration
from millrace.config.alerts import AlertFile
from millrace.config.panels import FILE, PanelFile
from millrace.plan import Plan

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


def page(plan: Plan, file: PanelFile, alerts: Mapping[str, AlertFile]) -> dict[str, Any]:
    """Returns what the insight API reads: queries for this environment, and each alert's runbook.

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
    """Returns all of it as one dashboard of Grafana's, which asks for its Prometheus."""
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
