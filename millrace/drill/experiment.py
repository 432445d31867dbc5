"""One run of a runbook's experiment by the Chaos Toolkit, and what its journal says."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from chaoslib.exceptions import ChaosException
from chaoslib.experiment import ensure_experiment_is_valid
from chaoslib.experiment import run_experiment as run_chaos
from chaoslib.loader import load_experiment

from millrace.drill.report import Mark
from millrace.drill.runbook import Runbook
from millrace.errors import OperatorError

Journal = dict[str, Any]
# Whatever happens to the experiment, and after Ctrl-C as well.
SETTINGS = {"runtime": {"rollbacks": {"strategy": "always"}}}


@dataclass(frozen=True)
class Outcome:
    """``marks`` are the runbook's steps in time; without ``failures`` all went as written."""

    marks: list[Mark]
    failures: list[str]
    interrupted: bool


def check_experiment(runbook: Runbook) -> Journal:
    """The runbook's experiment; OperatorError when there is none or it isn't valid."""
    if not runbook.experiment.exists():
        raise OperatorError(f"{runbook.experiment}: no such file", "a drill needs an experiment")
    try:
        experiment = load_experiment(str(runbook.experiment))
        ensure_experiment_is_valid(experiment)
    except ChaosException as error:
        raise OperatorError(f"{runbook.experiment}: {error}") from None
    return experiment


def run_experiment(runbook: Runbook, folder: Path) -> Outcome:
    """Runs the experiment to its end, rollbacks included; output and journal go to ``folder``.

    The Chaos Toolkit takes Ctrl-C as a reason to roll back, so this returns after one, too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    experiment = check_experiment(runbook)
    experiment["configuration"] = experiment.get("configuration", {}) | {
        "folder": str(folder),
        "runbooks": str(runbook.path.parent),
    }
    _log_to(folder / "chaos.log")
    journal: Journal = run_chaos(experiment, settings=SETTINGS)
    (folder / "journal.json").write_text(json.dumps(journal, indent=2, default=str))
    return Outcome(list(_marks(journal)), list(_failures(journal)), _interrupted(journal))


def _log_to(path: Path) -> None:
    """The Chaos Toolkit tells its steps to a file: the terminal shows the drill's own."""
    log = logging.getLogger("chaostoolkit")
    log.handlers = [logging.FileHandler(path)]
    log.setLevel(logging.INFO)
    log.propagate = False


def _interrupted(journal: Journal) -> bool:
    return journal["status"] == "interrupted"


def _steps(journal: Journal) -> list[Journal]:
    return [*journal["run"], *journal["rollbacks"]]


def _marks(journal: Journal) -> Iterator[Mark]:
    for step in _steps(journal):
        provider = step["activity"]["provider"]
        name = provider.get("arguments", {}).get("tag") or provider["func"]
        yield Mark(name=name, start=_unix(step["start"]), end=_unix(step["end"]))


def _failures(journal: Journal) -> Iterator[str]:
    if _interrupted(journal):
        yield "interrupted"
    for when, state in journal["steady_states"].items():
        if state and not state.get("steady_state_met"):
            yield f"the steady state did not hold {when} the fault"
    for step in _steps(journal):
        if step.get("status") != "succeeded":
            reason = "".join(step.get("exception", ["did not end"])).strip()
            yield f"{step['activity']['name']}: {reason}"


def _unix(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()
