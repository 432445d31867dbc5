"""A driver stands by for months: what it does again and again leaves nothing behind."""

import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.config import Config
from millrace_jobs.kinds import kind_of
from millrace_jobs.query.context import JobContext
from millrace_jobs.standby import rehearsal as module
from millrace_jobs.standby.rehearsal import Rehearsal

from tests.jobs.world import CONFIG
from tests.waiting import PATIENCE_SECONDS, wait_until

TIMES = 50


def threads() -> int:
    """Of this process, those of C libraries included."""
    return len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("name", ["traffic", "archive"])
def test_a_job_that_is_made_has_no_threads(name: str) -> None:
    lease: Any = SimpleNamespace(verify=lambda: None)
    context = JobContext(name, reachable(CONFIG), *[None] * 3, lease)  # type: ignore[arg-type]
    before = threads()
    made = [kind_of(name).load()(context) for _ in range(TIMES)]
    assert len(made) == TIMES
    assert threads() <= before


def reachable(config: Config) -> Config:
    """With addresses that a client could be made for."""
    facts: dict[str, Any] = vars(config) | {"kafka": "127.0.0.1:1", "sentinels": [("127.0.0.1", 1)]}
    return Config(**facts)


class Query:
    """Spark's execution of a rehearsal: batches until one raises."""

    lastProgress = None

    def __init__(self, write: Any) -> None:
        self.status = {"isTriggerActive": False, "message": "", "isDataAvailable": True}
        self._error: Exception | None = None
        self.isActive = True
        threading.Thread(target=self._run, args=(write,), name="query", daemon=True).start()

    def _run(self, write: Any) -> None:
        try:
            for batch in range(module.ROUND_BATCHES):
                write(None, batch)
        except Exception as error:
            self._error = error
        self.isActive = False

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self.isActive = False


class Frame:
    sparkSession = SimpleNamespace(sparkContext=None)

    def same(self, *_: Any, **__: Any) -> "Frame":
        return self

    queryName = outputMode = option = trigger = same

    @property
    def writeStream(self) -> "Frame":
        return self

    def foreachBatch(self, write: Any) -> "Frame":
        self._write = write
        return self

    def start(self) -> Query:
        return Query(self._write)


@pytest.mark.parametrize("fails", [False, True])
def test_rehearsals_leave_no_threads_and_no_folders(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.001)
    folders: set[str] = set()

    def rehearse(_: Any, __: int, scratch: str) -> None:
        folders.add(scratch)
        if fails:
            raise RuntimeError("no such table")

    job: Any = SimpleNamespace(output_mode="update", frame=lambda _: Frame(), rehearse=rehearse)
    before = threading.active_count()
    for number in range(TIMES):
        scratch: Any = SimpleNamespace(location=f"/scratch/{number}")
        scratch.remove = lambda place=scratch.location: folders.discard(place)
        one = Rehearsal(job, scratch, 0.0, batches=module.READY_BATCHES)
        try:
            one.wait()
        except RuntimeError:
            assert fails
    wait_until(
        lambda: threading.active_count() <= before and not folders,
        PATIENCE_SECONDS,
        "all rehearsals are over",
        every=0.01,
    )
