"""A driver of a job in real time, to be killed: the real job and query, and of all else only Kafka.

Its one argument is JSON: config (what a deployment ships), brokers, folder, spark (settings).
"""

import json
import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from millrace_jobs import config
from millrace_jobs.inputs.checkpoint import Checkpoint
from millrace_jobs.kinds import kind_of
from millrace_jobs.leader import supervisor
from millrace_jobs.leader.running import AnyJob, StoppedJob
from millrace_jobs.query.context import JobContext
from millrace_jobs.standby import ready
from pyspark.sql import SparkSession

PLACES = 4  # more than the topic's partitions
POLL_SECONDS = 0.2


def main(asked: dict[str, Any]) -> None:
    settled = replace(
        config.parse(asked["config"]), kafka=asked["brokers"], checkpoints=asked["folder"]
    )
    [job] = settled.jobs
    builder = SparkSession.builder.master(f"local[{PLACES}]").config(map=asked["spark"])
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    tables: Any = SimpleNamespace(
        select_one=lambda *_: None, select=lambda *_: [], upsert=lambda *_, **__: None
    )
    settings = settled.settings[job]
    checkpoint = Checkpoint(spark, f"{settled.checkpoints}/{settings.checkpoint}")
    lease: Any = None
    context = JobContext(job, settled, spark, tables, checkpoint, lease)
    program = kind_of(job, settings.trigger).load()(context)
    prepared = ready.ReadyJob(context, program, program.frame())
    coordination: Any = SimpleNamespace(
        kept_checkpoint=lambda _: None,
        take_epoch=lambda *_, **__: 1,
        put_contract=lambda *_: None,
        is_disabled=lambda _: False,
        question=lambda *_: None,
        forget_hand_over=lambda _: None,
    )
    job_now: AnyJob = StoppedJob(prepared)
    while True:
        job_now = supervisor.reconcile(job_now, coordination)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
