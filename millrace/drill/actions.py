"""What experiments do: run a runbook's blocks, and wait while load goes on. For Chaos Toolkit.

An action that raises is reported as failed; the experiment goes on to its rollbacks.
"""

import time
from pathlib import Path
from typing import Any

from millrace.drill import blocks
from millrace.drill.runbook import RUNBOOKS, Runbook, load_runbook
from millrace.paths import stack_name, stack_state

Configuration = dict[str, Any]


def run_blocks(runbook: str, tag: str, configuration: Configuration | None = None) -> None:
    """Runs the runbook's blocks of a tag; without one there is nothing to do."""
    given = configuration or {}
    folder = Path(given.get("folder") or stack_state(stack_name()) / "drills" / "chaos" / runbook)
    blocks.run_blocks(_load(runbook, given), tag, stack_name(), folder)


def hold(runbook: str, configuration: Configuration | None = None) -> None:
    """Leaves the fault in place for as long as the runbook says."""
    time.sleep(_load(runbook, configuration or {}).about.hold)


def _load(name: str, configuration: Configuration) -> Runbook:
    return load_runbook(name, Path(configuration.get("runbooks") or RUNBOOKS))
