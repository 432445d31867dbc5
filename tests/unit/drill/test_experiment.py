"""A drill's experiment, run by the real Chaos Toolkit on a runbook that touches a file."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from chaoslib.experiment import ensure_experiment_is_valid

from millrace.drill import probes
from millrace.drill.command import show_command
from millrace.drill.experiment import run_experiment
from millrace.drill.runbook import Runbook, load_runbook
from millrace.status import health
from tests.unit.drill.test_runbook import text


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runbooks' folder; the cluster is healthy while there is a file called `healthy`."""
    healthy = tmp_path / "healthy"
    healthy.touch()
    state = {True: "healthy", False: "Redis: degraded"}
    monkeypatch.setattr(probes, "cluster_state", lambda: state[healthy.exists()])
    return tmp_path


def runbook(place: Path, **blocks: str) -> Runbook:
    scripts = {
        "inject": f"FAULT={place}/fault\ntouch $FAULT",
        "recover": "test -e $FAULT",
        "verify": "test -e $FAULT",
        "rollback": 'rm -f "${FAULT:-}"',
    }
    (place / "fault.md").write_text(text(**(scripts | blocks)))
    return load_runbook("fault", place)


def test_all_steps_run_in_order_and_the_fault_is_taken_back(place):
    outcome = run_experiment(runbook(place), place / "run")
    assert outcome.failures == []
    assert [mark.name for mark in outcome.marks] == [
        "inject",
        "hold",
        "recover",
        "verify",
        "rollback",
    ]
    assert all(mark.start <= mark.end for mark in outcome.marks)
    assert not (place / "fault").exists()
    assert (place / "run" / "journal.json").exists()


def test_a_failing_check_is_reported_and_the_fault_is_taken_back(place):
    outcome = run_experiment(runbook(place, verify="echo still broken\nfalse"), place / "run")
    (failure,) = outcome.failures
    assert failure.startswith("verify: ")
    assert "still broken" in failure
    assert not (place / "fault").exists()


def test_a_cluster_that_is_not_steady_is_left_alone(place):
    (place / "healthy").unlink()
    outcome = run_experiment(runbook(place), place / "run")
    assert "the steady state did not hold before the fault: Redis: degraded" in outcome.failures
    assert [mark.name for mark in outcome.marks] == ["rollback"]


def test_a_steady_state_that_is_lost_is_reported(place):
    outcome = run_experiment(runbook(place, recover=f"rm {place}/healthy"), place / "run")
    assert outcome.failures == ["the steady state did not hold after the fault: Redis: degraded"]
    assert not (place / "fault").exists()


def test_a_moment_of_trouble_is_waited_for(monkeypatch):
    answers = [["Redis: degraded"], []]
    monkeypatch.setattr(probes, "load_plan", lambda stack: stack)
    monkeypatch.setattr(probes, "ASK_EVERY_SECONDS", 0)
    monkeypatch.setattr(health, "problems", lambda plan: answers.pop(0))
    assert probes.cluster_state() == "healthy"


def test_trouble_that_stays_is_named(monkeypatch):
    monkeypatch.setattr(probes, "load_plan", lambda stack: stack)
    monkeypatch.setattr(probes, "SETTLE_SECONDS", 0)
    monkeypatch.setattr(health, "problems", lambda plan: ["Redis: degraded", "YARN: down"])
    assert probes.cluster_state() == "Redis: degraded; YARN: down"


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Interrupts, even where the suite runs in a shell's background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_takes_the_fault_back(place, ctrl_c):
    """The block interrupts this process, as a hand would during the fault."""
    interrupt = "kill -INT $PPID\nsleep 60"
    outcome = run_experiment(runbook(place, recover=interrupt), place / "run")
    assert outcome.interrupted
    assert "interrupted" in outcome.failures
    assert not (place / "fault").exists()


def test_what_is_shown_is_what_the_chaos_toolkit_runs(place, capsys):
    """It survives being written as YAML, and its arguments fit the actions."""
    show_command("driver-killed")
    shown = yaml.safe_load(capsys.readouterr().out)
    ensure_experiment_is_valid(shown)
    assert shown["title"] == "The leading Spark driver dies"
