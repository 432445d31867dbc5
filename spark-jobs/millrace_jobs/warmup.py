"""A standby's rehearsal: a job runs for a few batches on old records, with a scratch checkpoint.

Classes are loaded, code is generated, executors and connections are up after the first two, in the
driver and in the executors. The others let the JVMs compile what they run, so that the first real
batch takes as long as any other; they go on beside standing by, with pauses, to take few cores.
"""

import logging
import threading
import time
from typing import Any

from pyspark.sql import DataFrame

from millrace_jobs.checkpoint import Checkpoint

log = logging.getLogger(__name__)

READY_BATCHES = 2
BATCHES = 15
RECORDS = 2000  # in each batch
TRIGGER = "2 seconds"
SECONDS = 60.0  # on a busy machine
POLL_SECONDS = 0.1
IDLE = "Waiting for data to arrive"  # Spark's words: MicroBatchExecution


class Rehearsed(Exception):
    """Raised instead of a further batch. To leave one out quietly is an error for Spark, which
    wants the state of each batch to be committed; to stop the query would interrupt one."""


class Rehearsal:
    """Begins at once. With an idle topic it goes on until there were records, or it is ended."""

    def __init__(self, job: Any, scratch: Checkpoint) -> None:
        """``scratch`` is its checkpoint, which is removed afterwards."""
        self._job = job
        self._scratch = scratch
        self._done = 0
        self._over = threading.Event()
        self._began = time.monotonic()
        self._query = (
            job.frame(RECORDS)
            .writeStream.outputMode(job.output_mode)
            .foreachBatch(self._write_batch)
            .option("checkpointLocation", scratch.location)
            .trigger(processingTime=TRIGGER)
            .start()
        )
        threading.Thread(target=self._clean_up, name="rehearsal", daemon=True).start()

    def wait(self) -> None:
        """Until the driver may stand by: as good as ready, or with nothing to read, or for long
        enough. Raises the job's error."""
        while (
            self._done < READY_BATCHES
            and self._is_under_way()
            and time.monotonic() < self._began + SECONDS
        ):
            time.sleep(POLL_SECONDS)
        if error := self._error():
            raise error

    def end(self) -> None:
        """The driver is to lead, and waits for nothing: a batch under way is left to end."""
        self._over.set()

    def _write_batch(self, frame: DataFrame, batch: int) -> None:
        if batch == BATCHES or self._over.is_set():
            self._over.set()
            raise Rehearsed
        self._job.rehearse(frame)
        self._done += 1

    def _is_under_way(self) -> bool:
        return self._query.isActive and self._query.status["message"] != IDLE

    def _error(self) -> Exception | None:
        return None if self._over.is_set() else self._query.exception()

    def _clean_up(self) -> None:
        query = self._query
        while query.isActive:
            if self._over.is_set() and not query.status["isTriggerActive"]:
                query.stop()
            time.sleep(POLL_SECONDS)
        self._scratch.remove()
        took = time.monotonic() - self._began
        log.info("rehearsal over after %.1f s: %s", took, self._error() or "all is well")
