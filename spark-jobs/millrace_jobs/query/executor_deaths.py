"""How a batch is known that ends executors, one after the other: by their memory, mostly."""

import re
from collections import Counter

from pyspark import SparkContext

from millrace_jobs.spark_internals import task_errors

# How a task's error says that its executor's memory was too small. YARN kills with 143 or 137; with
# 52 Spark ends an executor whose heap was.
OF_MEMORY = re.compile(
    r"java\.lang\.OutOfMemoryError|ExecutorLostFailure|Exit status: (52|137|143)\b"
)
# A task whose executors have died so often is the reason. Spark would try it some more times, and
# each time the other jobs' tasks in that executor end with it.
DEATHS = 2


class KillsExecutors(Exception):
    """Raised instead of a batch's own error, once it is clear what the batch does."""


def killing(context: SparkContext, group: str) -> KillsExecutors | None:
    """What a running batch does, by the errors of its tasks so far.

    Args:
        group: of Spark's jobs: the identity of the query's run.
    """
    deaths: Counter[tuple[int, int]] = Counter()
    for task, error in task_errors(context, group):
        if of_memory(error):
            deaths[task] += 1
            if deaths[task] == DEATHS:
                return KillsExecutors(f"a task has ended {DEATHS} executors: {error}")
    return None


def of_memory(error: Exception | str) -> bool:
    """Whether an executor's memory was too small."""
    return isinstance(error, KillsExecutors) or OF_MEMORY.search(str(error)) is not None
