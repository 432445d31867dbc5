"""The upkeep is done once a day, by whichever gateway looks first."""

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_gateway import upkeep
from millrace_gateway.submit import Deployment
from millrace_gateway.upkeep import Record
from millrace_gateway.yarn import Unreachable

from tests.gateway.fakes import ONE, RUNNING_V2, TWO, Registry
from tests.waiting import PATIENCE_SECONDS

HOUR = 3600.0
MIDNIGHT = 20_000 * 24 * HOUR


@given(st.floats(0, 1e9), st.lists(st.floats(1, 1e5), max_size=50), st.integers(0, 23))
def test_an_upkeep_is_due_once_a_day_however_often_somebody_looks(start, pauses, hour):
    done, now, nights = start, start, 0
    for pause in pauses:
        now += pause
        if upkeep.is_due(done, now, hour):
            done, nights = now, nights + 1
    days = (now - start) / 86_400
    assert nights <= days + 1
    assert not upkeep.is_due(done, now, hour)
    assert upkeep.is_due(done, done + 86_400, hour)


def test_a_look_at_night_does_it_once(settings):
    registry, done = Registry(RUNNING_V2), []

    def look(hours: float) -> str:
        clock = lambda: MIDNIGHT + hours * HOUR  # noqa: E731
        return upkeep.look(registry, settings, lambda what: done.append(what.version), clock)

    assert look(1) == "looked for the first time: nothing is due yet"
    assert look(2.5) == "done already"
    assert look(3.5) == "done"
    assert look(4.5) == "done already"
    assert done == ["v2"]
    assert registry.record == Record(MIDNIGHT + 3.5 * HOUR, "edge-1")
    registry.record = upkeep.due(registry.record, MIDNIGHT + 5 * HOUR)
    assert look(5) == "done"
    assert look(26) == "done already"
    assert look(27) == "done"


def test_it_waits_some_hours_while_a_job_is_behind(settings):
    registry, done = Registry(RUNNING_V2), []
    registry.record = Record(MIDNIGHT - HOUR, "edge-2")
    registry.told = [{"run": ONE, "state": "leading", "behind_since": {"traffic": MIDNIGHT}}]

    def look(hours: float) -> str:
        clock = lambda: MIDNIGHT + hours * HOUR  # noqa: E731
        return upkeep.look(registry, settings, lambda what: done.append(what.version), clock)

    assert look(3.5) == look(4.5) == "due, but traffic is behind: the next look"
    assert registry.record == Record(MIDNIGHT - HOUR, "edge-2")
    assert look(6) == "done"
    assert done == ["v2"]


def test_one_that_fails_is_told_and_done_by_the_next_look(settings):
    registry = Registry(RUNNING_V2)
    registry.record = Record(MIDNIGHT - HOUR, "edge-2")

    def unreachable(_: Deployment) -> None:
        raise Unreachable("no active ResourceManager")

    clock = lambda: MIDNIGHT + 4 * HOUR  # noqa: E731
    with pytest.raises(upkeep.Failed, match="no active ResourceManager"):
        upkeep.look(registry, settings, unreachable, clock)
    failed = Record(MIDNIGHT - HOUR, "edge-1", "no active ResourceManager")
    assert registry.record == failed
    assert upkeep.look(registry, settings, lambda _: None, clock) == "done"
    assert registry.record.error == ""


def deployed_upkeep(deployments: Path, code: str) -> Deployment:
    with zipfile.ZipFile(deployments / "insights-v2" / "millrace_jobs.zip", "w") as package:
        package.writestr("millrace_jobs/__init__.py", "")
        package.writestr("millrace_jobs/upkeep.py", code)
    return Deployment("insights", "v2", deployments / "insights-v2")


def test_the_versions_own_code_does_it_with_a_spark_of_its_own(settings, deployments, tmp_path):
    code = "import os, sys; print(*sys.argv[1:], os.environ['PYSPARK_SUBMIT_ARGS'])"
    upkeep.cut_back(deployed_upkeep(deployments, code), settings, [ONE, TWO])
    told = (tmp_path / "upkeep-insights.log").read_text()
    assert f"--logs /logs --left-days 7 --running {ONE} {TWO} --master local[1]" in told
    assert "spark.driver.memory=512m" in told
    assert "spark.ui.enabled=false" in told  # or it listens where no plan says


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise OSError('no space')", "OSError: no space"),
        ("import time; time.sleep(3600)", "not done"),
    ],
)
def test_one_that_fails_or_hangs_says_why_and_where_to_read_more(settings, deployments, code, told):
    hangs = "sleep" in code
    patience = replace(settings.upkeep, timeout_seconds=1 if hangs else PATIENCE_SECONDS)
    brief = replace(settings, upkeep=patience)
    with pytest.raises(upkeep.Failed, match=rf"{told}.*upkeep-insights\.log"):
        upkeep.cut_back(deployed_upkeep(deployments, code), brief, [])
