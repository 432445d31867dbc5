"""What an event costs the product's jobs as URLs, partitions, state and jobs grow.

    python -m bench.growth --record
    python -m bench.growth --events 20000 --batch 5000 --repetitions 1 --only partitions --noisy

The broker is one of its own; no cluster is needed. Sizes take turns in one JVM, which is warm.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.engine import HEAP, JAVA, answering, job_settings, spark_environment, spark_settings
from bench.engines.__main__ import gate
from bench.engines.broker import Broker, broker
from bench.growth.sizes import DIMENSIONS, HOUR, Size, Truth, right, truth
from bench.load import addresses
from bench.pool import Pool
from bench.program import console, publish, run_program
from bench.record import new_record
from bench.sender import send_all
from millrace.common.errors import OperatorError
from millrace.ledger.spec import Spec
from millrace.plan import load_plan

PROGRAM = Path(__file__).with_name("spark_growth.py")
CORES = 2
OWN = {
    "spark.scheduler.mode": "FAIR",  # as jobs share the product's executors
    "spark.sql.streaming.numRecentProgressUpdates": "10000",  # of all batches of a run
}


def fill(one: Broker, spec: Spec, count: int) -> None:
    console.print(f"filling topic {spec.topic} with {count:,} events")
    one.create(spec.topic, spec.partitions)
    pool = Pool(spec)
    pool.start(spec.started_ms)
    send_all(addresses(one.address), spec.topic, spec.partitions, pool.batches(0, count))


@contextmanager
def jobs(one: Broker, batch: int) -> Iterator[Any]:
    """Runs a size, and says what came of it."""
    plan = load_plan("local")
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        asked = {
            "brokers": one.address,
            "folder": folder,
            "settings": spark_settings(Path(folder), OWN),
            "jobs": job_settings(plan.spark.rendered()["settings"], ["traffic", "sessions"]),
            "stream": plan.streams["events"].model_dump(),
            "max_offsets": batch,
        }
        command = [sys.executable, str(PROGRAM), json.dumps(asked)]
        with answering(command, Path(folder) / "log", spark_environment()) as answer:
            yield answer


def measured(size: Size, count: int, found: dict[str, Any], expected: Truth) -> dict[str, Any]:
    return {
        "core_us_per_event": 1e6 * found["core_seconds"] / (count * size.jobs),
        "correct": right(size, count, found, expected),
        "urls": expected.urls,
    } | {key: found[key] for key in ("batch_ms", "state_rows", "state_bytes")}


def in_turns(one: Broker, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Each repetition of each value of each dimension; what two of them begin with is measured once
    for both."""
    dimensions = {name: DIMENSIONS[name] for name in asked.only or DIMENSIONS}
    every = list(dict.fromkeys(size for own in dimensions.values() for size in own.values()))
    ended_ms = int(time.time()) * 1000 // HOUR * HOUR
    topics = {size.topic: size.spec(asked.events, ended_ms) for size in every}
    for spec in topics.values():
        fill(one, spec, asked.events)
    expected = {topic: truth(spec, asked.events) for topic, spec in topics.items()}
    runs: list[dict[str, Any]] = []
    with jobs(one, asked.batch) as answer:
        for number in range(-asked.warm_up, asked.repetitions):
            found = {}
            for size in every:
                told = asdict(size) | {"topic": size.topic}
                found[size] = measured(size, asked.events, answer(told), expected[size.topic])
                console.print(said(number, asked, size, found[size]))
            if number >= 0:
                runs += runs_of(dimensions, found)
    return runs


def runs_of(
    dimensions: Mapping[str, Mapping[int, Size]], found: Mapping[Size, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    for name, dimension in dimensions.items():
        for value, size in dimension.items():
            yield {"dimension": name, "value": value} | found[size]


def said(number: int, asked: argparse.Namespace, size: Size, found: dict[str, Any]) -> str:
    turn = f"{number + 1} of {asked.repetitions}" if number >= 0 else "warming up"
    wrong = "" if found["correct"] else ", WRONG"
    cost = f"{found['core_us_per_event']:.1f} core-µs per event and job"
    return f"{turn}: {size.jobs} x {size.job}, {size.topic} {cost}{wrong}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=400_000, help="of each run")
    parser.add_argument("--batch", type=int, default=20_000, help="events of a batch")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=1, help="repetitions before those")
    parser.add_argument("--only", action="append", choices=DIMENSIONS)
    parser.add_argument("--noisy", action="store_true", help="although others use the machine")
    parser.add_argument("--record", action="store_true", help="keep it in docs/performance/")
    asked = parser.parse_args(arguments)
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:CORES]))
    quiet = gate(asked.noisy)
    with broker() as one:
        runs = in_turns(one, asked)
    names = ("events", "batch", "repetitions", "warm_up")
    settings = {name: getattr(asked, name) for name in names} | {"cores": CORES}
    about = f"Spark in one process; {JAVA} -Xmx{HEAP}"
    publish(new_record("growth", settings, quiet | {"about": about, "runs": runs}), asked.record)
    if not all(run["correct"] for run in runs):
        raise OperatorError("results were wrong; see above")


if __name__ == "__main__":
    run_program(main)
