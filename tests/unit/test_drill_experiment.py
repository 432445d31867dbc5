"""A drill's experiment, run by the real Chaos Toolkit on a runbook that touches a file."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from millrace.drill.experiment import check_experiment, run_experiment
from millrace.drill.runbook import Runbook, load_runbook
from millrace.errors import OperatorError
from tests.unit.test_drill_runbook import text


def step(tag: str) -> dict:
    arguments = {"runbook": "fault", "tag": tag}
    provider = {"type": "python", "module": "millrace.drill.actions", "func": "run_blocks"}
    return {"type": "action", "name": tag, "provider": provider | {"arguments": arguments}}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Runbooks' folder; its experiment holds while there is a file called `healthy`."""
    (tmp_path / "healthy").touch()
    arguments = {"path": str(tmp_path / "healthy")}
    probe = {"type": "python", "module": "os.path", "func": "exists", "arguments": arguments}
    hold = {"type": "python", "module": "millrace.drill.actions", "func": "hold"}
    hypothesis = {"type": "probe", "name": "healthy", "tolerance": True, "provider": probe}
    experiment = {
        "version": "1.0.0",
        "title": "A fault",
        "description": "For tests.",
        "steady-state-hypothesis": {"title": "healthy", "probes": [hypothesis]},
        "method": [
            step("inject"),
            {
                "type": "action",
                "name": "hold",
                "provider": hold | {"arguments": {"runbook": "fault"}},
            },
            step("recover"),
            step("verify"),
        ],
        "rollbacks": [step("rollback")],
    }
    (tmp_path / "drills").mkdir()
    (tmp_path / "drills" / "fault.yaml").write_text(yaml.safe_dump(experiment))
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
    assert "the steady state did not hold before the fault" in outcome.failures
    assert [mark.name for mark in outcome.marks] == ["rollback"]


def test_a_steady_state_that_is_lost_is_reported(place):
    outcome = run_experiment(runbook(place, recover=f"rm {place}/healthy"), place / "run")
    assert outcome.failures == ["the steady state did not hold after the fault"]
    assert not (place / "fault").exists()


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


def test_a_runbook_without_a_valid_experiment_has_no_drill(place):
    (place / "drills" / "fault.yaml").write_text("title: nothing else\n")
    with pytest.raises(OperatorError, match=r"fault\.yaml"):
        check_experiment(runbook(place))
    (place / "drills" / "fault.yaml").unlink()
    with pytest.raises(OperatorError, match="no such file"):
        check_experiment(runbook(place))
