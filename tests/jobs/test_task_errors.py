"""What has ended a running job's tasks so far, and whether it ends executors.

Spark is asked in a process of its own, because tasks are tried again only by a master that says so.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from millrace_jobs.query import executor_deaths
from millrace_jobs.query.executor_deaths import killing

DIED = (
    "ExecutorLostFailure (executor 9 exited caused by one of the running tasks) Reason: Container"
    " from a bad node. Exit status: 143."
)

SCRIPT = """
import sys, threading, time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from millrace_jobs.spark_internals import task_errors

over = Path(sys.argv[1])
spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", False).getOrCreate()
context = spark.sparkContext

def work(number):
    if number == 1 and TaskContext.get().attemptNumber() < 2:
        raise ValueError("on purpose")
    while not over.exists():
        time.sleep(0.1)
    return number

def run():
    context.setJobGroup("theirs", "")
    context.parallelize([0, 1], 2).map(work).collect()

job = threading.Thread(target=run)
job.start()
while len(found := task_errors(context, "theirs")) < 2:
    assert job.is_alive()
    time.sleep(0.1)
assert [number for (stage, number), error in found] == [1, 1], found
assert all("on purpose" in error for _, error in found), found
assert task_errors(context, "others") == []
over.touch()
job.join()
assert task_errors(context, "theirs") == []
"""


@pytest.mark.spark
def test_errors_of_the_tasks_of_a_group_that_runs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, tmp_path / "over"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("tasks", "kills"),
    [
        ([(3, 0), (3, 0)], True),
        ([(3, 0), (3, 1)], False),  # one executor, with two tasks
        ([(3, 0), (4, 0)], False),
        ([(3, 0)], False),
    ],
)
def test_a_batch_kills_executors_when_the_same_task_has_ended_two(
    monkeypatch: pytest.MonkeyPatch, tasks: list[tuple[int, int]], kills: bool
) -> None:
    errors = [(task, DIED) for task in tasks] + [((3, 0), "KeyError: 'x'")] * 9
    context: Any = None
    monkeypatch.setattr(
        executor_deaths, "task_errors", lambda _, group: errors if group == "run" else []
    )
    assert bool(killing(context, "run")) is kills
    assert killing(context, "another") is None
