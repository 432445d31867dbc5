"""D-Streams' programs on Structured Streaming: the highest rate that keeps a bound on latency.

    python -m bench.dstreams --record
    python -m bench.dstreams --only topk --repetitions 1 --from 20000 --stair 5s --noisy

The broker is one of its own; no cluster is needed. Everything runs on the first two cores, the
load and the broker, too. A run is a flight of stairs: each has a higher rate than the one before,
until latency is beyond the bounds.
"""

import argparse
import json
import os
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bench.dstreams import text
from bench.dstreams.recount import Interval, highest, stairs_seen, wrong
from bench.engine import HEAP, JAVA, running_spark, spark_settings
from bench.engines.__main__ import gate
from bench.engines.broker import Broker, broker
from bench.load import addresses
from bench.openloop import Offered, Reader, Stairs, offer, settle
from bench.program import console, publish, run_program
from bench.record import new_record
from bench.sender import Sender
from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError

PROGRAMS = {"grep": 200_000, "wordcount": 60_000, "topk": 60_000}  # and the lowest stair
BOUNDS_MS = (1000, 2000)
TRIGGER_MS = 500  # D-Streams' interval is half of what a latency may be
FACTOR, STAIRS = 1.15, 16
TICK_SECONDS = 0.01
LOST_SECONDS = 4.0  # so far behind, no bound will be kept any more
STALLED_SECONDS = 60.0
FETCHED = 4_000_000  # lines, at most
SETTINGS = {"spark.sql.shuffle.partitions": "2"}  # as many as cores
# Fewer polls for as many lines; a fetch is as large as the broker's own reader's.
SOURCE = {"kafka.max.poll.records": "10000", "kafka.receive.buffer.bytes": "1048576"}


def measure(one: Broker, program: str, run: str, stairs: Stairs) -> dict[str, Any]:
    """One flight of stairs; the first is for warming up and counts nowhere."""
    one.create(run, text.PARTITIONS)
    one.create(f"{run}-results", 1)
    sender = Sender(addresses(one.address), run, text.PARTITIONS, lambda *_: None)
    for batch in text.batches(0, text.PARTITIONS):  # whose result shows that the engine is there
        sender.put(batch)
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder,
        Reader(one.address, f"{run}-results", 1) as reader,
        running_spark(
            Path(__file__).with_name("spark_dstreams.py"), asked(one, program, run, folder)
        ) as engine,
    ):
        while sender.unacknowledged:
            sender.poll(TICK_SECONDS)
        engine.wait_for(reader.seen)
        first = text.PARTITIONS

        def done() -> int:
            return sum(interval(*reader.seen[-1]).until) - first

        def lost(offered: Offered) -> bool:
            if offered.sent < stairs.firsts[1]:  # a cold engine may fall behind
                return False
            due = float(stairs.times(np.array([done()]))[0])  # the newest line with a result
            return time.time() - offered.started - due > LOST_SECONDS

        offered = offer(
            sender,
            stairs,
            lambda low, high: text.batches(first + low, first + high),
            TICK_SECONDS,
            lost,
        )
        settle(done, offered.sent, STALLED_SECONDS)
    sender.close()
    intervals = [interval(*each) for each in reader.seen]
    mistakes = wrong(program, intervals)
    if sum(intervals[-1].until) != first + offered.sent:
        mistakes.append(f"{sum(intervals[-1].until):,} of {first + offered.sent:,} lines were read")
    for mistake in mistakes[:3]:
        console.print(f"{run}: {mistake}")
    climbed = stairs_seen(intervals, stairs, offered, first)[1:]
    return {
        "program": program,
        "rates": {str(bound): highest(climbed, bound) for bound in BOUNDS_MS},
        "stairs": [{key: each[key] for key in ("rate", "ms")} for each in climbed],
        "lines": offered.sent,
        "intervals": len(intervals),
        "correct": not mistakes,
    }


@lru_cache(1)  # the newest is asked for with each tick, and a window's words are many
def interval(seen: float, value: bytes) -> Interval:
    record = json.loads(value)
    return Interval(seen, record["time_ms"], tuple(record["until"]), record["result"])


def asked(one: Broker, program: str, run: str, folder: str) -> dict[str, Any]:
    return {
        "brokers": one.address,
        "lines": run,
        "results": f"{run}-results",
        "program": program,
        "folder": folder,
        "settings": spark_settings(Path(folder), SETTINGS),
        "source": SOURCE,
        "trigger_ms": TRIGGER_MS,
    }


def climb(low: float, warm: float, stair: float) -> Stairs:
    rates = [low, *(low * FACTOR**number for number in range(STAIRS))]
    return Stairs(rates, [warm, *[stair] * STAIRS])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--only", action="append", choices=PROGRAMS)
    parser.add_argument("--from", dest="low", type=float, help="lines/s of the lowest stair")
    parser.add_argument("--stair", type=parse_duration, default=8)
    parser.add_argument("--warm", type=parse_duration, default=40, help="longer than the window")
    parser.add_argument("--noisy", action="store_true", help="although others use the machine")
    parser.add_argument("--record", action="store_true", help="keep it in docs/performance/")
    wish = parser.parse_args(arguments)
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))
    quiet = gate(wish.noisy)
    text.parts()
    runs: list[dict[str, Any]] = []
    for number in range(wish.repetitions):
        for program in wish.only or PROGRAMS:
            with broker() as one:  # each run's lines go with its broker
                stairs = climb(wish.low or PROGRAMS[program], wish.warm, wish.stair)
                runs.append(measure(one, program, program, stairs))
                count = min(FETCHED, runs[-1]["lines"])
                fetched = one.fetched(program, count, f"{JAVA} -Xmx{HEAP}")
                runs[-1]["fetch"] = fetched["fetch.nMsg.sec"]
            rates = ", ".join(
                f"{rate:,.0f} lines/s below {bound} ms" for bound, rate in runs[-1]["rates"].items()
            )
            console.print(
                f"{number + 1} of {wish.repetitions}: {program} {rates}"
                f"{'' if runs[-1]['correct'] else ', WRONG'}"
            )
    settings = (
        {
            "repetitions": wish.repetitions,
            "cores": 2,
            "trigger_ms": TRIGGER_MS,
            "stair_seconds": wish.stair,
            "factor": FACTOR,
            "java": f"{JAVA} -Xmx{HEAP}",
        }
        | SETTINGS
        | SOURCE
    )
    record = new_record("dstreams", settings, quiet | {"runs": runs})
    publish(record, wish.record)
    if not all(run["correct"] for run in runs):
        raise OperatorError("results were wrong; see above")


if __name__ == "__main__":
    run_program(main)
