"""Panels: Prometheus' own tool reads every query, and somebody tells of every metric in one."""

import re
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from millrace_api.metrics import Look, Metrics
from millrace_api.store import JobProgress, JobWork
from millrace_collector.fates import Failure, Kind
from millrace_collector.following import Following
from millrace_collector.limits import Buffer
from millrace_collector.metrics import Metrics as CollectorMetrics
from millrace_gateway.metrics import HELP
from prometheus_client import generate_latest

from millrace.cluster import annotations
from millrace.common.errors import OperatorError
from millrace.common.paths import ANSIBLE
from millrace.config.alerts import load_alerts
from millrace.config.panels import Panel, PanelFile, Query, load_panels
from millrace.panels import dashboard, page
from millrace.plan import Plan, load_plan
from millrace.setup.promtool import ensure_promtool
from millrace_shared.keys import Follower

FILE_OF_PANELS = load_panels()
ENVIRONMENTS = ["local", "dev", "prod", "static"]


@pytest.fixture(scope="module")
def plan() -> Plan:
    return load_plan("local")


def queries(content: Any) -> Iterator[str]:
    """Every `expr` of panels or a dashboard, wherever it stands."""
    if isinstance(content, dict):
        if "expr" in content:
            yield content["expr"]
        content = [*content.values()]
    if isinstance(content, list):
        for part in content:
            yield from queries(part)


def with_times(query: str) -> str:
    return query.replace("$__rate_interval", "60s").replace("$__interval", "15s")


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_prometheus_can_read_every_query(environment: str, tmp_path: Path) -> None:
    planned = load_plan(environment)
    found = [
        *queries(page(planned, FILE_OF_PANELS, load_alerts())),
        *queries(dashboard(planned, FILE_OF_PANELS)),
    ]
    assert len(found) > 50
    rules = [
        {"record": f"query:{number}", "expr": with_times(query)}
        for number, query in enumerate(found)
    ]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run(
        [ensure_promtool(), "check", "rules", path], capture_output=True, text=True
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def test_what_the_page_gets_has_each_alerts_runbook(plan: Plan) -> None:
    made = page(plan, FILE_OF_PANELS, load_alerts())
    assert made["runbooks"]["ZoneDown"] == "zone-lost"
    assert made["scrape_seconds"] == 15


def test_an_unknown_value_is_refused_by_its_file(plan: Plan) -> None:
    query = Query(legend="x", expr="up == ${masters}")
    panel = Panel(name="x", title="x", why="as an example", unit="count", queries=[query])
    group = FILE_OF_PANELS.groups[0].model_copy(update={"panels": [panel]})
    with pytest.raises(OperatorError, match=r"configs/panels\.yaml: no value masters in: up =="):
        dashboard(plan, PanelFile(groups=[group], marks=[]))


def test_two_panels_of_one_name_are_refused() -> None:
    group = FILE_OF_PANELS.groups[0]
    with pytest.raises(ValueError, match="more than one panel is called promises"):
        PanelFile(groups=[group, group], marks=[])


# --- Grafana --------------------------------------------------------------------------------------


def test_the_dashboard_has_every_panel_in_a_place_of_its_own(plan: Plan) -> None:
    made = dashboard(plan, FILE_OF_PANELS)
    shown = [panel for panel in made["panels"] if panel["type"] != "row"]
    assert [panel["title"] for panel in shown] == [panel.title for panel in FILE_OF_PANELS.panels]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in made["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len({*cells})
    assert max(x for x, _ in cells) == 23
    numbers = [panel["id"] for panel in made["panels"]]
    assert len(numbers) == len({*numbers})


def test_the_dashboard_asks_which_prometheus_and_marks_every_event(plan: Plan) -> None:
    made = dashboard(plan, FILE_OF_PANELS)
    (variable,) = made["templating"]["list"]
    assert variable["name"] == "source"
    marks = made["annotations"]["list"]
    assert [mark["name"] for mark in marks] == [mark.kind for mark in FILE_OF_PANELS.marks]
    assert all(mark["useValueForTime"] for mark in marks)
    assert not any("${" in query for query in queries(made))


# --- metrics that somebody tells of ---------------------------------------------------------------

ROLES = ANSIBLE / "roles"
# By Prometheus itself; and what every client library of its tells of its process.
PROMETHEUS = {"up", "ALERTS", "ALERTS_FOR_STATE"}
PROCESS = {"process_start_time_seconds", "process_cpu_seconds_total"}
PROCESS |= {"process_resident_memory_bytes"}
# Native endpoints of Hadoop have no list in this repository; these names were seen.
HADOOP = {"fs_namesystem_under_replicated_blocks"}
# The beginning of what each collector of the exporter tells.
COLLECTORS = {
    "meminfo": "node_memory_",
    "loadavg": "node_load",
    "filesystem": "node_filesystem_",
    "textfile": annotations.DRILL,
}
WORDS = {"and", "or", "unless", "by", "on", "ignoring", "offset", "group_left", "bool"}


def metrics(query: str) -> set[str]:
    """Names in a query: words that are no function, label or word of the language."""
    text = re.sub(r'"[^"]*"', "", query)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", text)
    text = re.sub(r"(\w+ by|\bon|\bignoring|\bgroup_left) ?\([^)]*\)", "", text)
    text = re.sub(r"\$\w+", "", text)
    return {*re.findall(r"\b[a-zA-Z_][\w:]*\b(?! ?\()", text)} - WORDS


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ('max by (a, b) (rate(x_total{job="y"}[$__interval])) > 0', {"x_total"}),
        ("time() * (x unless on (name) y offset $__interval)", {"x", "y"}),
        ("a / on () group_left () (sum(b_c))", {"a", "b_c"}),
        ('label_replace(1 - d:e:f, "volume", "$1", "g", ".*/(.+)")', {"d:e:f"}),
    ],
)
def test_metrics_of_a_query_are_found(query: str, names: set[str]) -> None:
    assert metrics(query) == names


def of_the_api() -> set[str]:
    """With everything in a look that there can be, a request answered, and errors counted."""
    now = datetime(2026, 5, 17, tzinfo=UTC)
    told = Metrics()
    told.tell_of(Follower(None, None, 1, time.time))  # type: ignore[arg-type]
    told.look = Look(
        jobs=[JobProgress("traffic", 1, 1, now, now, now, 1.0, "v1", "a")],
        work=[JobWork("traffic", 1, 1.0, 1)],
        quarantined={"traffic": 1},
        dead_letters={"not JSON": 1},
    )
    told.answered({"route": None}, 200, 0.1)
    told.expect("requests")
    text = generate_latest(told.registry).decode()
    return {*re.findall(r"^(\w+)", text, re.MULTILINE)}


def of_the_collector() -> set[str]:
    """With a request refused, and one whose records were looked at."""
    delivery = SimpleNamespace(producers=1)
    keys = Follower(None, None, 1, time.time)  # type: ignore[arg-type]
    following = Following(keys, 1.0, time.time)
    told = CollectorMetrics({"events"}, Buffer(1), delivery, keys, following)  # type: ignore[arg-type]
    told.refused("/v1/events", "No such key")
    told.became("events", "shop", [(0, 1), Failure(Kind.REFUSED, "no JSON")])
    told.answered("/v1/events", 200, 0.1)
    text = generate_latest(told.registry).decode()
    return {*re.findall(r"^(\w+)", text, re.MULTILINE)}


def of_the_agent() -> Iterator[re.Pattern[str]]:
    """What a whitelist lets through, as the rules beside it name it."""
    for path in (ROLES / "jmx_agent" / "files").glob("*.yaml"):
        for mbean in yaml.safe_load(path.read_text())["includeObjectNames"]:
            domain, _, keys = mbean.partition(":")
            parts = dict(pair.split("=") for pair in keys.split(",") if "=" in pair)
            names = [parts["type"], parts.get("name", "").removesuffix("PerSec")]
            program = "cassandra" if "cassandra" in domain else domain.replace(".", "_")
            pattern = "_".join([program, *filter(None, names)]).lower()
            pattern = pattern.replace("-", "_").replace("*", "")
            yield re.compile(rf"{pattern}\w*" if "*" in keys else rf"{pattern}(_\w+)?")


def of_the_exporter() -> Iterator[re.Pattern[str]]:
    tasks = (ROLES / "node_exporter" / "tasks" / "main.yml").read_text()
    for collector, prefix in COLLECTORS.items():
        if f"--collector.{collector} " in tasks.replace("\n", " "):
            yield re.compile(rf"{prefix}\w*")


def is_told(name: str) -> bool:
    records = {record.record for file in load_alerts().values() for record in file.records}
    named = PROMETHEUS | PROCESS | HADOOP | records | HELP.keys()
    named |= of_the_api() | of_the_collector()
    patterns = [*of_the_agent(), *of_the_exporter()]
    return name in named or any(pattern.fullmatch(name) for pattern in patterns)


def test_somebody_tells_of_every_metric() -> None:
    used = {name for query in queries(FILE_OF_PANELS.model_dump()) for name in metrics(query)}
    assert len(used) > 25
    assert sorted(name for name in used if not is_told(name)) == []


@pytest.mark.parametrize(
    "name",
    ["millrace_job_lag", "kafka_server_replicas", "node_cpu_seconds_total", "cassandra_read", "x"],
)
def test_a_metric_of_nobodys_is_noticed(name: str) -> None:
    assert not is_told(name)
