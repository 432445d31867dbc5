"""A standby's rehearsal: a job runs on old records, with a scratch checkpoint.

Classes are loaded, code is generated, executors and connections are up after the first two batches,
in the driver and in the executors. Those that follow let the JVMs compile what they run, so that
the first real batch takes as long as any other; they go on beside standing by.

Then a batch now and then keeps it so, for as long as the driver stands by: the JVMs drop compiled
code that nothing runs, and peers close connections that nobody uses. A driver that had stood by
idly for a quarter of an hour took four times as long to take over as one that had just rehearsed.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import PurePath
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from millrace_jobs.inputs.checkpoint import Checkpoint
from millrace_jobs.quarantine.store import in_a_line
from millrace_jobs.query.executor_deaths import killing, of_memory
from millrace_jobs.query.job import Job
from millrace_jobs.spark_internals import cancel_group

log = logging.getLogger(__name__)

READY_BATCHES = 2
WARM_BATCHES = 15  # then rarely
ROUND_BATCHES = 200  # then from the oldest record again: what the scratch state holds is bounded
AGAIN_SECONDS = 3600.0
RECORDS = 2000  # in each batch
TRIGGER = "2 seconds"
GIVE_WAY_SECONDS = 60.0  # that a batch waits at most for who needs the cores more
SECONDS = 60.0  # on a busy machine
POLL_SECONDS = 0.1
REST_POLL_SECONDS = 1.0
DEATHS_POLL_SECONDS = 5.0
# Until a rehearsal begins anew whose records have ended executors: by then the job is behind them,
# or somebody looks after it.
DEADLY_PAUSE_SECONDS = 600.0
# That find no records; one alone may be before the first trigger.
QUIET_LOOKS = 10
# Between two triggers, in Spark's words: MicroBatchExecution. The first is to be seen for 10 ms.
WAITING = ("Waiting for data to arrive", "Waiting for next trigger")


class Rehearsed(Exception):
    """Raised instead of a further batch. To leave one out quietly is an error for Spark, which
    wants the state of each batch to be committed; to stop the query would interrupt one."""


def _is_worth_telling(record: logging.LogRecord) -> bool:
    return not record.exc_info or record.exc_info[0] is not Rehearsed


# It tells of each exception that goes into the JVM. What Spark tells then, log4j2.properties drops
# by the query's name.
logging.getLogger("py4j.clientserver").addFilter(_is_worth_telling)


class Rehearsal:
    """Begins at once and goes on until it is over, in rounds: each is a query of its own."""

    def __init__(
        self,
        job: Job,
        scratch: Checkpoint,
        pause_seconds: float,
        after_batch: Callable[[], None] = lambda: None,
        when_warm: Callable[[], None] = lambda: None,
        over: threading.Event | None = None,
        batches: float = math.inf,
        gives_way: Callable[[], bool] = lambda: False,
        reading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """
        Args:
            scratch: its checkpoint, which is removed after each round.
            pause_seconds: between two batches, once the JVMs are warm.
            after_batch: what else a take-over needs, and whoever wants to know of a batch.
            when_warm: called then, and once an hour from then on, unless it is over before.
            over: set when the driver is to lead, for all its rehearsals.
            batches: after which it is over anyway; or when there are no more.
            gives_way: whether somebody else needs the cores more now; asked once it could lead.
            reading: in which a round's frame is made: it knows what the job can't read.
        """
        self._job = job
        self._scratch = scratch
        self._pause_seconds = pause_seconds
        self._after_batch = after_batch
        self._when_warm = when_warm
        self._batches = batches
        self._gives_way = gives_way
        self._reading = reading
        self._is_brief = batches < math.inf
        self._told_at = -math.inf
        self._deaths_at = 0.0  # when it is looked at next whether executors die
        self._done = 0
        self._over = over or threading.Event()
        self._round_is_over = False
        self._began = time.monotonic()
        self._query = self._start()
        threading.Thread(target=self._run, name="rehearsal", daemon=True).start()

    def wait(self) -> None:
        """Until the driver could lead with this job. Raises the job's error."""
        while not self._has_done(READY_BATCHES):
            time.sleep(POLL_SECONDS)
        if error := self._error():
            self._batches = 0  # no further round
            raise error

    def end(self) -> None:
        """The driver is to lead, and waits for nothing: a batch under way is left to end."""
        self._over.set()

    def _start(self) -> StreamingQuery:
        self._round_is_over = False
        # Of its own in each round: Spark knows an ended query's name for a moment longer.
        name = f"rehearsal of {PurePath(self._scratch.location).name} {uuid4()}"
        with self._reading():
            frame = self._job.frame(RECORDS)
        self._context = frame.sparkSession.sparkContext
        return (
            frame.writeStream.queryName(name)
            .outputMode(self._job.output_mode)
            .foreachBatch(self._write_batch)
            .option("checkpointLocation", self._scratch.location)
            .trigger(processingTime=TRIGGER)
            .start()
        )

    def _write_batch(self, frame: DataFrame, batch: int) -> None:
        if self._done >= WARM_BATCHES:
            self._over.wait(self._pause_seconds)
        self._wait_for_others()
        if batch == ROUND_BATCHES or self._is_over():
            self._round_is_over = True
            raise Rehearsed
        self._job.rehearse(frame, batch, self._scratch.location)
        self._after_batch()
        self._done += 1

    def _wait_for_others(self) -> None:
        until = time.monotonic() + GIVE_WAY_SECONDS
        while self._done >= READY_BATCHES and time.monotonic() < until and self._gives_way():
            if self._over.wait(REST_POLL_SECONDS):
                break

    def _has_done(self, batches: int) -> bool:
        """Or there is nothing to read, or it has taken long enough, or the query has failed."""
        return (
            self._done >= batches
            or time.monotonic() >= self._began + SECONDS
            or not self._query.isActive
            or _is_idle(self._query.status)
        )

    def _is_over(self) -> bool:
        return self._over.is_set() or self._done >= self._batches

    def _error(self) -> Exception | None:
        over = self._is_over() or self._round_is_over
        return None if over else self._query.exception()

    def _run(self) -> None:
        """A round that fails while the driver stands by isn't worth a driver: what it misses then
        is warmth, and the next round may do better. Kafka may have expired what it was to read."""
        finish = self._finish_round
        while True:
            try:
                finish()
            except Exception as error:  # HDFS's and ZooKeeper's, too: nobody would be told
                log.warning("rehearsal: %s", in_a_line(error))
                self._over.wait(DEADLY_PAUSE_SECONDS if of_memory(error) else self._pause_seconds)
            if self._is_over() or self._is_brief:
                break
            finish = self._do_round
        took = time.monotonic() - self._began
        log.info("rehearsal over after %d batches and %.1f s", self._done, took)

    def _do_round(self) -> None:
        self._query = self._start()
        self._finish_round()

    def _finish_round(self) -> None:
        try:
            self._see_to_its_end()
        finally:
            if self._query.isActive:
                self._query.stop()  # the next one has the same checkpoint
            self._scratch.remove()
        if error := self._error():
            raise error

    def _see_to_its_end(self) -> None:
        """Until its query has ended; one that has read all there is is ended, to begin anew.

        A brief one doesn't wait for records: where none come, it would ask for them for ever.
        """
        query, idle_since, at_start = self._query, None, self._done
        done, quiet = self._done, 0
        while query.isActive:
            status = query.status
            if status["isTriggerActive"]:
                self._end_if_deadly(query)
            self._tell_warm()
            is_idle = _is_idle(status)
            quiet = quiet + is_idle if done == self._done else 0
            done = self._done
            may_rest = is_idle and done > at_start
            idle_since = (idle_since or time.monotonic()) if may_rest else None
            rested = idle_since and time.monotonic() - idle_since >= self._pause_seconds
            is_enough = self._is_over() or (self._is_brief and quiet >= QUIET_LOOKS)
            if (is_enough or rested) and not status["isTriggerActive"]:
                self._round_is_over = True
                query.stop()
            if self._over.is_set():
                time.sleep(POLL_SECONDS)
            else:  # a look is some calls into the JVM: few, once nobody waits
                self._over.wait(REST_POLL_SECONDS if self._done >= WARM_BATCHES else POLL_SECONDS)

    def _end_if_deadly(self, query: StreamingQuery) -> None:
        """A rehearsal isn't worth an executor. Raises KillsExecutors."""
        if time.monotonic() < self._deaths_at:
            return
        self._deaths_at = time.monotonic() + DEATHS_POLL_SECONDS
        group = str(query.runId)
        if deaths := killing(self._context, group):
            cancel_group(self._context, group)
            raise deaths

    def _tell_warm(self) -> None:
        due = time.monotonic() >= self._told_at + AGAIN_SECONDS
        if due and not self._over.is_set() and self._has_done(WARM_BATCHES):
            self._when_warm()
            self._told_at = time.monotonic()


def _is_idle(status: dict[str, Any]) -> bool:
    """The last trigger found nothing to read."""
    return status["message"] in WAITING and not status["isDataAvailable"]
