"""Alerts: what is worth an operator's attention, in `configs/alerts`, and as Prometheus' rules.

Each file is a component's. Expressions and summaries may have `${NAME}` for a value of the plan.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError
from millrace.common.paths import CONFIGS, REPO
from millrace.config import Model, read_yaml, validate
from millrace.plan import DATA_ROOT, Plan

FOLDER = CONFIGS / "alerts"
# Each Prometheus names a place that serves the pages by its external label `pages`: a host that is
# well, since it is the one that tells.
PAGE = "{{ $externalLabels.pages }}/runbooks/%s"

VALUE = re.compile(r"\$\{(\w+)\}")  # not $value, which is Prometheus' own
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
    """Component → its alerts. OperatorError for what isn't one."""
    return {
        path.stem: validate(AlertFile, read_yaml(path), path)
        for path in sorted(folder.glob("*.yaml"))
    }


def rules(plan: Plan, files: dict[str, AlertFile]) -> dict[str, Any]:
    """A rules file of Prometheus for an environment. OperatorError for an unknown ``${NAME}``."""
    values = plan_values(plan)
    return {
        "groups": [
            {"name": component, "rules": list(_rules(component, file, values))}
            for component, file in files.items()
        ]
    }


def plan_values(plan: Plan) -> dict[str, Any]:
    """What expressions may take from the plan."""
    defaults = plan.spark.settings.defaults
    drivers = plan.services["job_gateway"].settings["gateway.json"]["drivers"]
    prometheus = plan.services["prometheus_server"].settings["prometheus.yml"]
    return {
        "data": DATA_ROOT,
        "least_free": plan.services["node_exporter"].settings["disks"]["least_free"],
        "evaluation_seconds": parse_duration(prometheus["evaluation_interval"]),
        "events_topic": plan.names.kafka.topics.events,
        "cold_seconds": plan.spark.settings.common.cold_seconds,
        "cassandra_quorum": plan.replication.cassandra // 2 + 1,
        # Of an application: every driver with its executors.
        "containers": drivers * (1 + defaults.executors),
    } | {name: service.unit for name, service in plan.services.items()}


def _rules(component: str, file: AlertFile, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    path = FOLDER / f"{component}.yaml"
    for record in file.records:
        yield {"record": record.record, "expr": filled(path, record.expr, values)}
    for alert in file.alerts:
        labels = {"severity": alert.severity, "component": component} | alert.labels
        rule = {"alert": alert.alert, "expr": filled(path, alert.expr, values)}
        yield (
            rule
            | ({"for": alert.wait} if alert.wait else {})
            | {
                "labels": labels,
                "annotations": {
                    "summary": filled(path, alert.summary, values),
                    "runbook_url": PAGE % alert.runbook,
                },
            }
        )


def filled(path: Path, text: str, values: dict[str, Any]) -> str:
    """The text of a file with the plan's values. OperatorError for an unknown ``${NAME}``."""
    if unknown := set(VALUE.findall(text)) - values.keys():
        raise OperatorError(
            f"{path.relative_to(REPO)}: no value {', '.join(sorted(unknown))} in: {text}",
            f"there are values for: {', '.join(sorted(values))}",
        )
    return VALUE.sub(lambda found: str(values[found[1]]), text)
