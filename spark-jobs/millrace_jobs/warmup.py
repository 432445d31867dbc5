"""A standby's rehearsal: a job runs for a few batches on old records, with a scratch checkpoint.

Classes are loaded, code is generated and compiled, executors and connections are up afterwards, in
the driver and in the executors, so that the first real batch takes as long as any other.
"""

import logging
import threading
import time
from typing import Any

from pyspark.sql import DataFrame

from millrace_jobs.checkpoint import Checkpoint

log = logging.getLogger(__name__)

BATCHES = 2
RECORDS = 1000  # in each batch
SECONDS = 60.0  # on a busy machine; a topic without records has nothing to rehearse with
POLL_SECONDS = 0.1
IDLE = "Waiting for data to arrive"  # Spark's words: MicroBatchExecution


class Rehearsed(Exception):
    """Raised instead of a further batch. To leave one out quietly is an error for Spark, which
    wants the state of each batch to be committed; to stop the query would interrupt one."""


def rehearse(job: Any, scratch: Checkpoint) -> None:
    """Run ``job`` with ``scratch`` as its checkpoint, which is removed afterwards."""

    enough = threading.Event()

    def write_batch(frame: DataFrame, batch: int) -> None:
        if batch == BATCHES:
            enough.set()
            raise Rehearsed
        job.rehearse(frame)

    began = time.monotonic()
    query = (
        job.frame(RECORDS)
        .writeStream.outputMode(job.output_mode)
        .foreachBatch(write_batch)
        .option("checkpointLocation", scratch.location)
        .start()
    )
    try:
        while _is_under_way(query) and time.monotonic() < began + SECONDS:
            time.sleep(POLL_SECONDS)
        if (error := query.exception()) and not enough.is_set():
            raise error
    finally:
        query.stop()
        scratch.remove()
    log.info("rehearsed in %.1f s: %s", time.monotonic() - began, scratch.location)


def _is_under_way(query: Any) -> bool:
    """Until it ended or, with an idle topic, there is nothing more to run."""
    return query.isActive and query.status["message"] != IDLE
