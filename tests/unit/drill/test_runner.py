"""A drill from its steady state to its report, on a cluster that is always healthy.

Cluster, load and samplers are stand-ins; runbook, Chaos Toolkit and report are the real ones.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.drill import actions, experiment, nemesis, probes, runner, stage, standby
from millrace.drill.alerts import Expected
from millrace.drill.cluster import Cluster
from millrace.drill.options import DrillOptions
from millrace.drill.report import AlertOutcomes, Audit, Report
from millrace.drill.runbook import Runbook, load_runbook
from millrace.drill.watch import Loading, Watch
from millrace.plan import load_plan
from millrace_shared.driver_record import DriverRecord
from tests.unit.drill.test_runbook import HEAD, text
from tests.waiting import pause

PLAN = load_plan("local")
(APPLICATION,) = PLAN.applications
NOTHING_LOST = Audit(lost=0, duplicated=0, wrong=0, acknowledged=1000, failed=0, in_doubt=0)
QUIET = Console(quiet=True)


@dataclass(frozen=True)
class SteadyWatch(Watch):
    """Every plane works ten times a second, and the load never ends."""

    since: float

    def successes(self) -> dict[str, list[Any]]:
        moments = [np.arange(self.since, time.time() + 1, 0.1)]
        return dict.fromkeys(["produce", "process", "read"], moments)

    def problems(self) -> list[str]:
        return []


def options(times: int, **others: Any) -> DrillOptions:
    return DrillOptions(times=times, rate=500, floor_seconds=0.2, **others)


@dataclass(frozen=True)
class Steady(Cluster):
    """Always healthy, and it loses nothing.

    ``pair`` are the drivers that ZooKeeper lists, ``trouble`` what `status` finds, and ``alerts``
    tells what Prometheis have of those that fired; ``loads`` are what was asked for.
    """

    pair: list[DriverRecord] = field(
        default_factory=lambda: [DriverRecord("run", "worker-1", "standby", time.time() - 600)]
    )
    trouble: list[str] = field(default_factory=list)
    marks: list[tuple[str, float]] = field(default_factory=list)
    loads: list[Loading] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)  # at the drivers
    alerts: Callable[[], list[dict[str, Any]]] = list

    def problems(self) -> list[str]:
        return self.trouble

    def unhealthy(self) -> set[str]:
        return set()

    def drivers(self) -> dict[str, list[DriverRecord]]:
        self.looks.append(time.time())
        return {APPLICATION: self.pair}

    def disabled(self) -> set[str]:
        return {"sessions"}

    def firing(self, seconds: float) -> list[dict[str, Any]]:
        return self.alerts()

    def last_drill(self) -> float | None:
        return max((at for _, at in self.marks), default=None)

    def drill_began(self, name: str, at: float) -> None:
        self.marks.append((name, at))

    @contextmanager
    def watching(self, load: Loading, *_: object) -> Iterator[Watch]:
        self.loads.append(load)
        yield SteadyWatch({}, None, Path(), Path(), time.time())

    def audited(self, ledger: Path) -> Audit:
        return NOTHING_LOST


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steady:
    monkeypatch.setattr(runner, "stack_state", lambda stack: tmp_path / "state")
    monkeypatch.setattr(probes, "cluster_state", lambda: "healthy")  # Chaos Toolkit calls it
    monkeypatch.setattr(runner, "ASK_EVERY_SECONDS", 0.1)
    return Steady(PLAN)


@pytest.fixture
def runbook(tmp_path: Path) -> Runbook:
    head = HEAD.replace("goal:", "random: true\ngoal:")
    (tmp_path / "fault.md").write_text(text(head, inject=f"echo x >> {tmp_path}/faults"))
    return load_runbook("fault", tmp_path)


def test_every_run_is_measured_audited_and_kept(cluster, runbook, tmp_path):
    report = runner.run(cluster, runbook, options(2), QUIET)
    assert report.verdict == "passed", report.all_failures
    assert [set(run.gaps) for run in report.runs] == [{"produce", "process", "read"}] * 2
    assert report.audit == NOTHING_LOST
    assert report.jobs == [job for job in PLAN.jobs if job != "sessions"]
    ((marked, at),) = cluster.marks  # once, before anything is broken
    assert marked == "fault"
    assert at >= cluster.pair[0].since + 600  # now, not at some other drill's time
    assert report.standby_idle_seconds >= 600
    assert (tmp_path / "faults").read_text().split() == ["x", "x"]
    (folder,) = (tmp_path / "state" / "drills").iterdir()
    assert Report.model_validate_json((folder / "report.json").read_text()) == report
    assert "| process |" in (folder / "report.md").read_text()
    assert (folder / "gaps.svg").exists()


def test_each_run_has_a_floor_of_its_own_before_its_fault(cluster, runbook, tmp_path, monkeypatch):
    injected = []

    def wait(seconds: float) -> None:
        faults = tmp_path / "faults"
        injected.append((seconds, len(faults.read_text().split()) if faults.exists() else 0))

    monkeypatch.setattr(stage.time, "sleep", wait)
    report = runner.run(cluster, runbook, replace(options(2), floor_seconds=45), QUIET)
    assert [each for each in injected if each[0] == 45] == [(45, 0), (45, 1)]
    assert [set(run.floor) for run in report.runs] == [{"produce", "process", "read"}] * 2


def test_a_control_run_is_the_floor_and_measures_none(cluster, tmp_path):
    control = HEAD.replace("faults: [1]", "faults: []").replace("alert: LeaderDied\n", "")
    (tmp_path / "none.md").write_text(text(control))
    report = runner.run(cluster, load_runbook("none", tmp_path), options(1), QUIET)
    assert [run.floor for run in report.runs] == [None]


def test_a_run_that_fails_is_the_last(cluster, runbook, tmp_path):
    (tmp_path / "fault.md").write_text(text(verify="false"))
    report = runner.run(cluster, load_runbook("fault", tmp_path), options(3), QUIET)
    assert report.verdict == "failed"
    assert len(report.runs) == 1


def test_each_run_waits_for_a_standby_that_is_old_enough(cluster, tmp_path):
    """It is 10 minutes old, which is enough, whenever somebody looks."""
    (tmp_path / "fault.md").write_text(text(HEAD.replace("hold: 0", "hold: 1")))
    slow = load_runbook("fault", tmp_path)  # its runs' folders are named by the second
    report = runner.run(cluster, slow, options(2, standby_idle_minutes=5), QUIET)
    assert report.verdict == "passed", report.all_failures
    assert [run.standby_idle_seconds > 300 for run in report.runs] == [True, True]
    assert report.audit.acknowledged == 2 * NOTHING_LOST.acknowledged
    assert len(cluster.looks) == 4  # before each load and before each injection
    assert len(list((tmp_path / "state" / "drills").iterdir())) == 2


def test_nothing_is_broken_while_the_standby_is_too_young(cluster, runbook, tmp_path, monkeypatch):
    monkeypatch.setattr(standby, "wait_until", lambda ask, *_: ask())  # one look, no patience
    with pytest.raises(OperatorError, match="no standby driver has stood by for 60 min"):
        runner.run(cluster, runbook, options(1, standby_idle_minutes=60), QUIET)
    assert not (tmp_path / "faults").exists()


def test_without_a_standby_none_is_told(cluster, runbook):
    cluster.pair.clear()
    assert runner.run(cluster, runbook, options(1), QUIET).standby_idle_seconds is None


def test_a_cluster_that_is_soon_healthy_is_waited_for(cluster, runbook, monkeypatch):
    """Under load a single look may get no answer, and an operator would have to type again."""
    answers = [["ZooKeeper: unknown"], ["ZooKeeper: unknown"]]
    monkeypatch.setattr(Steady, "problems", lambda _: answers.pop() if answers else [])
    assert runner.run(cluster, runbook, options(1), QUIET).verdict == "passed"
    assert answers == []


def test_an_unhealthy_cluster_is_left_alone(cluster, runbook, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "STEADY_SECONDS", 0.0)
    cluster.trouble.append("Redis: down")
    with pytest.raises(OperatorError, match="Redis: down"):
        runner.run(cluster, runbook, options(1), QUIET)
    assert not (tmp_path / "faults").exists()


def test_random_faults_have_the_same_report(cluster, runbook, tmp_path):
    drill = nemesis.random_drill(PLAN, [runbook], 0.02, 1, 7)
    report = runner.perform(cluster, drill, options(1), QUIET)
    injected = len((tmp_path / "faults").read_text().split())
    assert report.verdict == "passed", report.all_failures
    assert report.title == f"{injected} random faults in 0.02 minutes (seed 7)"
    assert report.standby_idle_seconds >= 600
    (one,) = report.runs
    assert one.floor.keys() == one.gaps.keys()


def test_the_control_run_measures_and_breaks_nothing(cluster, tmp_path):
    control = load_runbook("no-fault")
    assert experiment.build_experiment(control, tmp_path)["tags"] == ["none"]
    assert [block.script for block in control.tagged("inject")] == [":\n"]


def fired(since: float, until: float) -> list[dict[str, Any]]:
    """What a Prometheus has of the runbook's alert, ten evaluations a second."""
    times = [since, *np.arange(since + 0.1, until, 0.1)]
    labels = {"alertname": "LeaderDied", "severity": "warning"}
    return [{"metric": labels, "values": [[time, "1"] for time in times]}]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each fault was held, which takes no time here."""
    wanted = Expected("LeaderDied", 700, 4000, silent=False, also=(), evaluation_seconds=0.1)
    monkeypatch.setattr(runner, "expected", lambda *_: wanted)
    times: list[float] = []
    monkeypatch.setattr(actions, "hold", lambda seconds: times.append(seconds))
    return times


def test_each_run_is_told_of_when_all_are_over(cluster, runbook, held):
    since_before = replace(cluster, alerts=lambda: fired(time.time() - 60, time.time()))
    report = runner.run(since_before, runbook, options(2), QUIET)
    assert held == [0, 0]
    assert [run.alerts.note for run in report.runs] == ["it fired already"] * 2
    assert report.verdict == "passed", report.missed


def test_a_run_knows_when_something_else_was_broken_before_it(cluster, runbook, held, monkeypatch):
    known = []

    def outcomes(wanted, found, episode, until, broken_before):
        known.append((episode.span, broken_before))
        return AlertOutcomes()

    monkeypatch.setattr(runner, "alert_outcomes", outcomes)
    cluster.marks.append(("random", 12.0))
    runner.run(cluster, runbook, options(2), QUIET)
    (first, before), (_, between) = known
    assert before == 12.0  # not this drill's own mark
    assert between == first.until


def test_a_fault_is_held_until_its_alert_is_due_which_is_waited_for(cluster, runbook, held):
    looks: list[float] = []

    def alerts() -> list[dict[str, Any]]:
        looks.append(time.time())
        return fired(looks[0], min(looks[-1], looks[0] + 1))

    console = Console(file=StringIO(), width=100)
    report = runner.run(
        replace(cluster, alerts=alerts), runbook, options(1, await_alerts=True), console
    )
    assert held == [700]
    assert report.verdict == "passed", report.missed
    assert console.file.getvalue().count("until LeaderDied has resolved") == 1
    assert report.runs[0].alerts.fired["LeaderDied"].resolved_after_seconds >= 1


@pytest.mark.parametrize(
    ("alert", "await_alerts", "late"),
    [("LeaderDied", False, True), ("LeaderDied", True, False), (None, False, False)],
)
def test_no_late_events_which_an_alert_tells_of_where_alerts_are_looked_at(
    cluster, runbook, held, monkeypatch, alert, await_alerts, late
):
    wanted = replace(runner.expected(), alert=alert)
    monkeypatch.setattr(runner, "expected", lambda *_: wanted)
    runner.run(cluster, runbook, options(1, await_alerts=await_alerts), QUIET)
    assert [load.late for load in cluster.loads] == [late]


def test_a_fault_whose_alert_should_not_fire_is_held_no_longer(cluster, runbook, held, monkeypatch):
    silent = replace(runner.expected(), silent=True)
    monkeypatch.setattr(runner, "expected", lambda *_: silent)
    report = runner.run(cluster, runbook, options(1, await_alerts=True), QUIET)
    assert held == [0]
    assert report.runs[0].alerts.note == "silent"


def test_without_a_prometheus_only_a_drill_of_alerts_fails(cluster, runbook, held):
    def nobody() -> None:
        raise OperatorError("no Prometheus answers")

    cluster = replace(cluster, alerts=nobody)
    report = runner.run(cluster, runbook, options(1), QUIET)
    assert (report.verdict, report.runs[0].alerts) == ("passed", None)
    pause(1.1, "a drill's folder is named by the second")
    report = runner.run(cluster, runbook, options(1, await_alerts=True), QUIET)
    assert report.all_failures == ["alerts: no Prometheus answers"]
