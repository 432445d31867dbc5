"""What has ended a running job's tasks so far, as Spark knows it: in a process of its own, because
tasks are tried again only by a master that says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

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
