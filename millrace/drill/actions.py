"""What experiments do: run a runbook's blocks, and wait while load goes on. For Chaos Toolkit.

An action that raises is reported as failed; the experiment goes on to its rollbacks.
"""

import time
from pathlib import Path

from millrace.common.paths import stack_name
from millrace.drill import blocks
from millrace.drill.runbook import parse_runbook


def run_blocks(runbook: str, tag: str, folder: str) -> None:
    """Runs the blocks of a tag out of the file ``runbook``; without one there is nothing to do.

    Variables and output are kept in ``folder``. Raises BlockFailed.
    """
    path = Path(runbook)
    blocks.run_blocks(parse_runbook(path.read_text(), path), tag, stack_name(), Path(folder))


def hold(seconds: float) -> None:
    """Leaves the fault in place."""
    time.sleep(seconds)
