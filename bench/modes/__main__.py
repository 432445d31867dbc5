"""Kafka → filter and projection → Kafka: how late results are in each mode, at a fixed rate.

    python -m bench.modes --rate 5000 --for 60s --record
    python -m bench.modes --rate 500 --for 10s --warm 5s --repetitions 1 --only real-time --noisy

The broker is one of its own; no cluster is needed. All take turns on the first two cores.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench.engine import HEAP, JAVA, Engine, running, running_spark, spark_settings
from bench.engines.__main__ import gate
from bench.engines.broker import Broker, broker
from bench.engines.jars import FLINK_CONNECTOR, jars
from bench.fresh import PERCENTILES
from bench.load import addresses
from bench.modes import events
from bench.openloop import Reader, Stairs, offer, settle
from bench.program import console, publish, run_program
from bench.record import new_record
from bench.sender import Sender
from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError
from millrace.common.paths import REPO
from millrace.setup.locks import parse_jar

MODES = yaml.safe_load(Path(__file__).with_name("modes.yaml").read_text())
FLINK = REPO / ".venv" / "flink" / "bin" / "python"
TICK_SECONDS = 0.002  # part of every latency, the same for all
STALLED_SECONDS = 60.0
HIGHEST_US, DIGITS = 3_600_000_000, 3
PROBES = 6  # events whose results show that the engine is there


def measure(one: Broker, mode: str, run: str, stairs: Stairs) -> dict[str, Any]:
    """One run; the first stair is for warming up and counts nowhere."""
    one.create(run, events.PARTITIONS)
    one.create(f"{run}-results", events.PARTITIONS)
    sender = Sender(addresses(one.address), run, events.PARTITIONS, lambda *_: None)
    for batch in events.batches(0, PROBES):
        sender.put(batch)
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder,
        Reader(one.address, f"{run}-results", events.PARTITIONS) as reader,
        started(one, mode, run, Path(folder)) as engine,
    ):
        while sender.unacknowledged:
            sender.poll(TICK_SECONDS)
        engine.wait_for(reader.seen)
        offered = offer(
            sender,
            stairs,
            lambda low, high: events.batches(PROBES + low, PROBES + high),
            TICK_SECONDS,
        )
        sent = PROBES + offered.sent
        settle(
            lambda: len(reader.seen),
            len(range(events.KEPT, sent, len(events.TYPES))),
            STALLED_SECONDS,
        )
    sender.close()
    found = events.check((value for _, value in reader.seen), sent)
    numbers, seen = first_seen(reader.seen)
    numbers -= PROBES
    own = numbers >= stairs.firsts[1]  # not of the warm-up
    latencies = seen[own] - offered.started - stairs.times(numbers[own])
    return {
        "mode": mode,
        "ms": percentiles(latencies),
        "events": len(latencies),
        "load_behind_ms": round(1000 * offered.behind, 1),
        "correct": not (found.lost or found.strange),
    } | asdict(found)


def first_seen(results: Sequence[tuple[float, bytes]]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the events that results are of, and when each was seen first (s since 1970)."""
    found = [
        (number, time) for time, value in results if (number := events.number_of(value)) is not None
    ]
    numbers, at = np.unique([number for number, _ in found], return_index=True)
    return numbers, np.array([time for _, time in found])[at]


def percentiles(latencies: np.ndarray) -> dict[str, float]:
    """In ms, by HdrHistogram, which counts whole µs."""
    from hdrh.histogram import HdrHistogram  # of the bench's own requirements

    made = HdrHistogram(1, HIGHEST_US, DIGITS)
    for value in np.maximum(1, np.rint(1e6 * latencies)).astype(np.int64).tolist():
        made.record_value(value)
    return {f"p{each:g}": made.get_value_at_percentile(each) / 1000 for each in PERCENTILES}


@contextmanager
def started(one: Broker, mode: str, run: str, folder: Path) -> Iterator[Engine]:
    own = MODES[mode]
    asked = {
        "brokers": one.address,
        "events": run,
        "results": f"{run}-results",
        "folder": str(folder),
        "sink": own["sink"],
    }
    if mode == "flink":
        if not FLINK.exists():
            raise OperatorError(f"{FLINK} isn't there", "`make bench WHAT=modes` installs it")
        connector = jars() / parse_jar(FLINK_CONNECTOR).filename
        asked |= {"run": run, "jars": [str(connector)], "settings": own["settings"]}
        java = {"JVM_ARGS": f"{JAVA} -Xmx{HEAP}", "PYTHONPATH": ""}
        with running(FLINK, Path(__file__).with_name("flink_modes.py"), asked, java) as engine:
            yield engine
    else:
        asked |= {"trigger": own["trigger"], "settings": spark_settings(folder, own["settings"])}
        with running_spark(Path(__file__).with_name("spark_modes.py"), asked) as engine:
            yield engine


def about(mode: str) -> str:
    own = MODES[mode]
    given = [f"{key}={value}" for key, value in (own["settings"] | own["sink"]).items()]
    return f"{own['about']}; {', '.join([JAVA, f'-Xmx{HEAP}', *given])}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=5000, help="events a second")
    parser.add_argument("--for", dest="length", type=parse_duration, default=60)
    parser.add_argument("--warm", type=parse_duration, default=30, help="before that, not counted")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--only", action="append", choices=MODES)
    parser.add_argument("--noisy", action="store_true", help="although others use the machine")
    parser.add_argument("--record", action="store_true", help="keep it in docs/performance/")
    wish = parser.parse_args(arguments)
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))
    quiet = gate(wish.noisy)
    modes = wish.only or list(MODES)
    stairs = Stairs([wish.rate, wish.rate], [wish.warm, wish.length])
    runs: list[dict[str, Any]] = []
    with broker() as one:
        for number in range(wish.repetitions):
            for mode in modes:
                runs.append(measure(one, mode, f"{mode}-{number}", stairs))
                figures = ", ".join(f"{each} {ms:.1f}" for each, ms in runs[-1]["ms"].items())
                console.print(
                    f"{number + 1} of {wish.repetitions}: {mode} {figures} ms"
                    f"{'' if runs[-1]['correct'] else ', WRONG'}"
                )
    settings = {
        "rate": wish.rate,
        "length": wish.length,
        "warm": wish.warm,
        "repetitions": wish.repetitions,
        "cores": 2,
    }
    result = quiet | {"about": {mode: about(mode) for mode in modes}, "runs": runs}
    record = new_record("modes", settings, result)
    publish(record, wish.record)
    if not all(run["correct"] for run in runs):
        raise OperatorError("results were lost or wrong; see above")


if __name__ == "__main__":
    run_program(main)
