"""A runbook as a Chaos Toolkit experiment, a run of it, and what the run's journal says."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from chaoslib.experiment import run_experiment as run_chaos

from millrace.drill.runbook import Runbook
from millrace.drill.timeline import Mark
from millrace.status.verdict import HEALTHY

Journal = dict[str, Any]
# Whatever happens to the experiment, and after Ctrl-C as well.
SETTINGS = {"runtime": {"rollbacks": {"strategy": "always"}}}


@dataclass(frozen=True)
class Outcome:
    """``marks`` are the runbook's steps in time; without ``failures`` all went as written."""

    marks: list[Mark]
    failures: list[str]
    interrupted: bool


def build_experiment(runbook: Runbook, folder: Path) -> Journal:
    """The Chaos Toolkit experiment that runs the runbook's blocks.

    The blocks' variables and output are kept in ``folder``.
    """

    def blocks(tag: str) -> Journal:
        arguments = {"runbook": str(runbook.path), "tag": tag, "folder": str(folder)}
        return _action(tag, "run_blocks", arguments)

    about = runbook.about
    return {
        "version": "1.0.0",
        "title": about.title,
        "description": f"The blocks of {runbook.path.name}; blast radius: {about.blast_radius}.",
        "tags": [about.component, *(f"fault-{fault}" for fault in about.faults)],
        "steady-state-hypothesis": {
            "title": "The cluster is healthy and every job keeps up",
            "probes": [
                {
                    "type": "probe",
                    "name": "cluster-state",
                    "tolerance": HEALTHY,
                    "provider": _python("probes", "cluster_state", {}),
                }
            ],
        },
        "method": [
            blocks("inject"),
            _action("hold", "hold", {"seconds": about.hold}),
            blocks("recover"),
            blocks("verify"),
        ],
        "rollbacks": [blocks("rollback")],
    }


def _action(name: str, function: str, arguments: Journal) -> Journal:
    return {"type": "action", "name": name, "provider": _python("actions", function, arguments)}


def _python(module: str, function: str, arguments: Journal) -> Journal:
    return {
        "type": "python",
        "module": f"millrace.drill.{module}",
        "func": function,
        "arguments": arguments,
    }


def run_experiment(runbook: Runbook, folder: Path) -> Outcome:
    """Runs the experiment to its end, rollbacks included; output and journal go to ``folder``.

    The Chaos Toolkit takes Ctrl-C as a reason to roll back, so this returns after one, too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _log_to(folder / "chaos.log")
    journal: Journal = run_chaos(build_experiment(runbook, folder), settings=SETTINGS)
    (folder / "journal.json").write_text(json.dumps(journal, indent=2, default=str))
    return Outcome(list(_marks(journal)), list(_failures(journal)), _interrupted(journal))


def _log_to(path: Path) -> None:
    """The Chaos Toolkit tells its steps to a file: the terminal shows the drill's own."""
    log = logging.getLogger("chaostoolkit")
    log.handlers = [logging.FileHandler(path)]
    log.setLevel(logging.INFO)
    log.propagate = False


def _interrupted(journal: Journal) -> bool:
    return bool(journal["status"] == "interrupted")


def _steps(journal: Journal) -> list[Journal]:
    return [*journal["run"], *journal["rollbacks"]]


def _marks(journal: Journal) -> Iterator[Mark]:
    for step in _steps(journal):
        name = step["activity"]["name"]
        yield Mark(name=name, start=_unix(step["start"]), end=_unix(step["end"]))


def _failures(journal: Journal) -> Iterator[str]:
    if _interrupted(journal):
        yield "interrupted"
    for when, state in journal["steady_states"].items():
        if state and not state.get("steady_state_met"):
            said = "; ".join(str(probe.get("output")) for probe in state["probes"])
            yield f"the steady state did not hold {when} the fault: {said}"
    for step in _steps(journal):
        if step.get("status") != "succeeded":
            reason = "".join(step.get("exception", ["did not end"])).strip()
            yield f"{step['activity']['name']}: {reason}"


def _unix(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()
