"""A driver's executors: one at first, and the others once that works.

An executor that starts takes a core or two for some seconds. Two at once, beside their driver, kept
the driver that leads on the same laptop from its cores for 3 to 5 s, and the first one rehearses
alone.
"""

import threading
import time

from pyspark.sql import SparkSession

from millrace_jobs.spark_internals import configured, has_stopped, jvm, scala_context

SECONDS = 60.0  # on a busy machine
POLL_SECONDS = 0.2


class SparkStopped(Exception):
    """The driver's Spark has ended, and no job can run in it any more."""


class Executors:
    """``number`` of them, once they were asked for. Spark's allocation stays static: what is lost
    is replaced, and none is given back."""

    def __init__(self, spark: SparkSession, number: int) -> None:
        self.number = number
        self._context = spark.sparkContext
        self._are_wanted = False

    def complete(self) -> None:
        """Ask YARN for all executors, once."""
        if not self._are_wanted:
            self._are_wanted = True
            nowhere = jvm(self._context).PythonUtils.toScalaMap({})
            scala_context(self._context).requestTotalExecutors(self.number, 0, nowhere)

    def wait(self, over: threading.Event) -> None:
        """Until all are there, or it has taken long enough: what is missing may come later."""
        deadline = time.monotonic() + SECONDS
        while len(self.addresses()) <= self.number and time.monotonic() < deadline:
            if over.wait(POLL_SECONDS):
                break

    def verify(self) -> None:
        """Raises SparkStopped where there can be none any more."""
        if has_stopped(self._context):
            raise SparkStopped("Spark has stopped, or its JVM has ended")

    def addresses(self) -> frozenset[str]:
        """Of those that are there, and of the driver, which Spark counts, too."""
        present = scala_context(self._context).getExecutorMemoryStatus()
        return frozenset(present.keySet().mkString(" ").split())


def configured_number() -> int:
    """As many as ``spark.executor.instances``, before there is a session."""
    return int(configured("spark.executor.instances"))
