"""Has an executor that joins while this driver leads rehearse the jobs, beside them.

One that replaces a lost one is new to them: where tasks take 0.4 s elsewhere, its first ones take
5 to 10 s, of loading classes and compiling. A batch of a single task goes where the state is, so it
stays new for weeks; results stood still for 18 s when it became the only one.
"""

import logging
import threading
import time
from collections.abc import Iterable

from millrace_jobs.standby.executors import Executors
from millrace_jobs.standby.ready import ReadyJob
from millrace_jobs.standby.wait import rehearse_on_all

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0  # between two looks, each of some calls into the JVM


class ExecutorWarmup:
    """Rehearses on a thread of its own; who joins meanwhile has to wait."""

    def __init__(self, workers: Executors) -> None:
        self._workers = workers
        self._known = workers.addresses()
        self._next_look = 0.0
        self._over = threading.Event()
        self._rehearsal: threading.Thread | None = None

    def look(self, jobs: Iterable[ReadyJob]) -> None:
        """Begin if somebody is new.

        Args:
            jobs: those that run, in the order in which they started.
        """
        if time.monotonic() < self._next_look or (self._rehearsal and self._rehearsal.is_alive()):
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        present = self._workers.addresses()
        new, self._known = present - self._known, present
        if new:
            self._rehearsal = threading.Thread(
                target=self._rehearse, args=(new, list(jobs)), name="newcomers", daemon=True
            )
            self._rehearsal.start()

    def end(self) -> None:
        """No further batch begins; one under way is left to end."""
        self._over.set()

    def _rehearse(self, new: frozenset[str], jobs: list[ReadyJob]) -> None:
        log.info("executors that are new rehearse: %s", ", ".join(sorted(new)))
        for job in jobs:
            if not self._over.is_set():
                rehearse_on_all(job, self._workers.number, self._over)
