"""What measures goes before what it measures.

Where hosts are containers, load and probes share their cores. While those hosts start something
they would be served last, and a drill would report how long its own clients waited for a core. Real
clients have cores of their own.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

NICE = -10  # weighs as much as nine processes at 0: sched(7)
# The kernel weighs whole sessions first (sched(7), autogroup), then processes by their nice value.
SESSION = "/proc/{process}/autogroup"


@contextlib.contextmanager
def ahead() -> Iterator[None]:
    """This process, and its terminal's session, while the context runs."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    prefer(os.getpid(), NICE)
    try:
        yield
    finally:
        prefer(os.getpid(), before)


def prefer(process: int, nice: int = NICE) -> None:
    """Does nothing where that isn't allowed: the drill runs all the same, and measures more."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process, nice)
        session = Path(SESSION.format(process=process))
        if session.exists():
            session.write_text(f"{nice}\n")
