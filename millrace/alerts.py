"""Alerts as Prometheus' rules: `configs/alerts` with the plan's values.

Expressions and summaries may have `${NAME}` for a value of the plan.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError
from millrace.common.paths import REPO
from millrace.config.alerts import FOLDER, AlertFile
from millrace.plan import DATA_ROOT, Plan

# Each Prometheus names a place that serves the pages by its external label `pages`: a host that is
# well, since it is the one that tells.
PAGE = "{{ $externalLabels.pages }}/runbooks/%s"
VALUE = re.compile(r"\$\{(\w+)\}")  # not $value, which is Prometheus' own


def rules(plan: Plan, files: dict[str, AlertFile]) -> dict[str, Any]:
    """A rules file of Prometheus for an environment. Raises OperatorError for an unknown
    ``${NAME}``."""
    values = plan_values(plan)
    return {
        "groups": [
            {"name": component, "rules": list(_rules(component, file, values))}
            for component, file in files.items()
        ]
    }


def plan_values(plan: Plan) -> dict[str, Any]:
    """Returns the values of the plan that expressions may name."""
    defaults = plan.spark.settings.defaults
    drivers = plan.services["job_gateway"].settings["gateway.json"]["drivers"]
    prometheus = plan.services["prometheus_server"].settings["prometheus.yml"]
    return {
        "data": DATA_ROOT,
        "least_free": plan.services["node_exporter"].settings["disks"]["least_free"],
        "evaluation_seconds": parse_duration(prometheus["evaluation_interval"]),
        "renew_days": plan.services["edge_proxy"].settings["certificates"]["renew_days"],
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
    """The text of a file with the plan's values. Raises OperatorError for an unknown
    ``${NAME}``."""
    if unknown := set(VALUE.findall(text)) - values.keys():
        raise OperatorError(
            f"{path.relative_to(REPO)}: no value {', '.join(sorted(unknown))} in: {text}",
            f"there are values for: {', '.join(sorted(values))}",
        )
    return VALUE.sub(lambda found: str(values[found[1]]), text)
