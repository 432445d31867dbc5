"""Work on threads of their own: what takes long, or hangs, holds up nobody else."""

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

Work = Callable[[], None]


class Worker:
    """Does one piece of work after the other, always on the same thread.

    Spark's JVM has a thread and a connection for each of Python's, and keeps a thread's properties,
    such as its pool. No process waits for a worker's end.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._given: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._idle = threading.Event()
        self._idle.set()

    @property
    def is_busy(self) -> bool:
        return not self._idle.is_set()

    def begin(self, work: Work) -> None:
        """Have this done next. What it raises is logged, and ends nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._idle.clear()
        self._given.put(work)

    def wait(self, seconds: float) -> bool:
        """Until it has nothing to do; False if that takes longer."""
        return self._idle.wait(seconds)

    def _run(self) -> None:
        while True:
            work = self._given.get()
            try:
                work()
            except Exception:
                log.exception("%s", self._name)
            finally:
                self._idle.set()
