"""Alerts: their rules and pages, and Prometheus' own tool on a cluster that is well, then not.

Each fault is let into a whole cluster that is well otherwise: before it nothing fires, while it
lasts its alert does and nothing else wakes anybody, and soon after its end it doesn't any more.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace.alerts import VALUE, rules
from millrace.common.errors import OperatorError
from millrace.config.alerts import FOLDER, load_alerts
from millrace.drill.runbook import RUNBOOKS, load_operations, load_runbooks
from millrace.plan import Plan, load_plan
from millrace.setup.promtool import ensure_promtool

CASES = yaml.safe_load((Path(__file__).parent / "alerts.yaml").read_text())
ALERTS = [alert for file in load_alerts().values() for alert in file.alerts]
BY_RULE = {(alert.alert, alert.severity, *alert.labels.values()): alert for alert in ALERTS}

SCRAPE = 15  # s, between two samples
EVALUATION = 5  # s, between two looks at all rules
BEFORE = 3  # minutes
FIRING = 'ALERTS{alertstate="firing"%s}'


@pytest.fixture(scope="module")
def plan() -> Plan:
    return load_plan("local")


@pytest.fixture
def rules_file(plan: Plan, tmp_path: Path) -> Path:
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump(rules(plan, load_alerts())))
    return path


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run([ensure_promtool(), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


# --- rules and pages ---------------------------------------------------------------------------


@pytest.mark.parametrize("environment", ["local", "dev", "prod", "static"])
def test_prometheus_takes_the_rules_of_every_environment(environment: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump(rules(load_plan(environment), load_alerts())))
    promtool("check", "rules", path)


def test_every_alert_opens_a_page() -> None:
    pages = {path.stem for path in RUNBOOKS.glob("*.md")}
    assert {alert.runbook for alert in ALERTS} <= pages


def test_every_runbook_that_names_an_alert_has_it() -> None:
    assert {book.about.alert for book in load_runbooks()} - {alert.alert for alert in ALERTS} == {
        None
    }


def test_every_runbook_but_the_floor_names_an_alert() -> None:
    assert [book.name for book in load_runbooks() if not book.about.alert] == ["no-fault"]


def test_an_alert_has_a_drill_or_says_why_it_has_none() -> None:
    drilled = {book.about.alert for book in load_runbooks()}
    for alert in ALERTS:
        assert (alert.alert in drilled) != bool(alert.undrilled), alert.alert


def test_an_alert_without_a_drill_opens_a_page_that_fits() -> None:
    """Of a drill with an alert of its own, or one that is followed by hand."""
    alerts = {book.name: book.about.alert for book in load_runbooks()}
    for alert in ALERTS:
        if not alert.undrilled:
            assert alerts[alert.runbook] == alert.alert
        else:
            assert alert.runbook in alerts or alert.runbook in load_operations()


def test_no_expression_repeats_what_the_plan_says(plan: Plan) -> None:
    units = "|".join(service.unit for service in plan.services.values())
    written = re.compile(rf'job[=!~]+"(?:[^"]*\|)?(?:{units})[|"]')
    for path in FOLDER.glob("*.yaml"):
        assert written.findall(path.read_text()) == []
    assert all(VALUE.search(alert.expr) for alert in ALERTS if 'up{job="$' in alert.expr)


def test_an_unknown_value_is_refused_by_its_file(plan: Plan) -> None:
    files = load_alerts()
    (first, *_), text = files["redis"].alerts, "up == ${redis_masters}"
    files["redis"] = files["redis"].model_copy(
        update={"alerts": [first.model_copy(update={"expr": text})]}
    )
    with pytest.raises(OperatorError, match=r"redis\.yaml: no value redis_masters in: up =="):
        rules(plan, files)


# --- faults ------------------------------------------------------------------------------------


def values(kinds: list[Any], counts: list[int]) -> str:
    """Samples in the tool's notation: so many of each kind, one kind after the other."""
    told: list[str] = []
    last: float | None = None
    for kind, count in zip(kinds, counts, strict=True):
        for _ in range(count):
            value = _value(kind, last, SCRAPE * len(told))
            told.append(
                "_" if value is last is None else "stale" if value is None else f"{value:g}"
            )
            last = value
    return " ".join(told)


def _value(kind: Any, last: float | None, now: int) -> float | None:
    if kind == "none":
        return None
    if kind == "time":
        return now
    if kind == "frozen":
        return last
    if isinstance(kind, str):
        return (last or 0) + int(kind)
    return kind


def group(
    name: str, shows: dict[str, Any], minutes: tuple[int, int], checks: Iterator[dict[str, Any]]
) -> Any:
    """A test of the tool's: the cluster that is well, but for what shows in the middle.

    ``minutes``: how long it shows, and how long it goes on after that.
    """
    counts = [60 * length // SCRAPE for length in (BEFORE, *minutes)]
    series = []
    for one in CASES["steady"] | shows:
        well = CASES["steady"].get(one, "none")
        faulty = shows.get(one, well)
        during, after = faulty if isinstance(faulty, list) else (faulty, well)
        series.append({"series": one, "values": values([well, during, after], counts)})
    return {
        "name": name,
        "interval": f"{SCRAPE}s",
        "input_series": series,
        "promql_expr_test": list(checks),
    }


def check(what: str, seconds: int, expected: int) -> dict[str, Any]:
    return {
        "expr": what,
        "eval_time": f"{seconds}s",
        "exp_samples": [{"labels": "{}", "value": expected}],
    }


def firing(matchers: str) -> str:
    return f"count({FIRING % matchers}) or vector(0)"


def fault_checks(fault: dict[str, Any], minutes: int) -> Iterator[dict[str, Any]]:
    rule = rule_of(fault)
    labels = {"alertname": rule.alert, "severity": rule.severity} | rule.labels
    mine = "".join(f',{name}="{value}"' for name, value in labels.items())
    # What its summary tells of must be there to be told.
    mine += "".join(f',{name}!=""' for name in re.findall(r"\$labels\.(\w+)", rule.summary))
    begin, end = 60 * BEFORE, 60 * (BEFORE + minutes)
    others = "|".join({rule.alert, *fault.get("also", [])})
    yield check(firing(""), begin - SCRAPE, 0)
    yield check(f"({firing(mine)}) > bool 0", end - SCRAPE, 1)
    yield check(firing(f',severity="critical",alertname!~"{others}"'), end - SCRAPE, 0)
    yield check(firing(mine), end + resolved_within(rule), 0)


def resolved_within(rule: Any) -> int:
    """Seconds after a fault's end."""
    return 60 + rule.lasts_seconds


def rule_of(fault: dict[str, Any]) -> Any:
    wanted = fault.get("labels", {})
    found = [
        alert
        for alert in ALERTS
        if alert.alert == fault["alert"]
        and alert.labels == wanted
        and fault.get("severity", alert.severity) == alert.severity
    ]
    (rule,) = found
    return rule


def test_every_rule_has_its_fault() -> None:
    tried = {id(rule_of(fault)) for fault in CASES["faults"]}
    assert [alert.alert for alert in ALERTS if id(alert) not in tried] == []


def test_faults_fire_their_alert_and_resolve_it(rules_file: Path) -> None:
    tests = []
    for fault in CASES["faults"]:
        lasts, after = fault.get("minutes", 3), resolved_within(rule_of(fault)) // 60 + 1
        checks = fault_checks(fault, lasts)
        tests.append(group(fault["alert"], fault["shows"], (lasts, after), checks))
    run_tests(rules_file, tests)


def test_what_is_as_it_should_be_is_silent(rules_file: Path) -> None:
    run_tests(
        rules_file,
        [
            group(name, shows, (10, 3), (check(firing(""), 60 * at, 0) for at in (1, 3, 8, 12, 14)))
            for name, shows in CASES["quiet"].items()
        ],
    )


REFUSALS = [("none", "429"), ("/v1/late", "503"), ("/v1/late", "422"), ("none", "404")]


@pytest.mark.parametrize(("route", "status"), REFUSALS)
def test_who_is_refused_calls_nobody(rules_file: Path, route: str, status: str) -> None:
    """However many, and however long each takes to be refused: anybody outside can ask for it."""
    labels = f'route="{route}",status="{status}",host="edge-1"'
    shows = {
        f"millrace_api_request_seconds_count{{{labels}}}": ["+30000", "frozen"],
        f'millrace_api_request_seconds_bucket{{{labels},le="1"}}': ["0", "0"],
        f'millrace_api_request_seconds_bucket{{{labels},le="+Inf"}}': ["+30000", "frozen"],
    }
    checks = (check(firing(',severity!="info"'), 60 * at, 0) for at in (4, 6, 9, 12))
    run_tests(rules_file, [group("refused", shows, (8, 3), checks)])


def test_a_disabled_job_is_not_missed_between_two_drivers(rules_file: Path) -> None:
    """The one that leads tells which are disabled. If none does for two minutes, nobody knows."""
    archive = {
        'millrace_job_state{name="archive",state="disabled",host="edge-1"}': [1, "none"],
        'millrace_job_updated_timestamp_seconds{name="archive",host="edge-1"}': ["frozen"] * 2,
    }
    untold = 60 * (BEFORE + 5)
    checks = (
        check("min(millrace:fresh:ok)", untold + after, fresh)
        for after, fresh in ((0, 1), (90, 1), (150, 0))
    )
    run_tests(rules_file, [group("between", archive, (5, 3), checks)])


@pytest.mark.parametrize(("removed", "fresh"), [(["archive"], 1), (["archive", "traffic"], 0)])
def test_a_job_is_missed_until_a_gateway_tells_of_others_alone(
    rules_file: Path, removed: list[str], fresh: int
) -> None:
    """Gateways that tell of none at all are away: what was deployed is still missed then."""
    shows: dict[str, Any] = {
        f'millrace_job_epoch_given{{name="{job}",host="edge-1"}}': "none" for job in removed
    }
    shows['millrace_job_updated_timestamp_seconds{name="archive",host="edge-1"}'] = "frozen"
    checks = iter([check("min(millrace:fresh:ok)", 60 * BEFORE + 90, fresh)])
    run_tests(rules_file, [group("removed", shows, (5, 1), checks)])


def test_a_prometheus_that_is_new_on_its_host_is_silent(rules_file: Path) -> None:
    """It evaluates before its first scrapes, and those may come before the host's own services."""
    one = group("new", {}, (10, 3), (check(firing(""), at, 0) for at in (15, 30, 60, 120, 480)))
    for series in one["input_series"]:
        comes_first = re.match(r'up\{.*host="edge-1"', series["series"])
        series["values"] = f"{'0' if comes_first else '_'} {series['values']}"
    run_tests(rules_file, [one])


def run_tests(rules_file: Path, tests: list[dict[str, Any]]) -> None:
    path = rules_file.with_name("tests.yml")
    content = {"rule_files": [rules_file.name], "evaluation_interval": f"{EVALUATION}s"}
    content["tests"] = tests
    path.write_text(yaml.safe_dump(content, width=1_000_000))
    promtool("test", "rules", path)
