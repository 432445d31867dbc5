"""Workloads on Spark, Flink SQL and Kafka Streams in turns, beside Kafka's own reader.

    python -m bench.engines --events 4000000 --repetitions 5 --record
    python -m bench.engines --workload nexmark-q5 --workload nexmark-q8 --record
    python -m bench.engines --events 200000 --repetitions 1 --only spark --only flink --noisy

The broker is one of its own; no cluster is needed. Everything runs on the first two cores.
"""

import argparse
import json
import os
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench.cpu import Meter, Roles, Usage, processes
from bench.engines.broker import broker, end
from bench.engines.progress import Progress, gains, newest, steady, wrong
from bench.engines.redis import redis
from bench.engines.start import ENGINES, TABLE, Bench
from bench.engines.stream import PARTITIONS, batches
from bench.engines.workload import Workload
from bench.engines.workloads import WORKLOADS
from bench.load import addresses
from bench.program import console, publish, run_program
from bench.record import Record, new_record
from bench.sender import send_all
from millrace.cluster import kafka
from millrace.common.errors import OperatorError

CONFIG = Path(__file__).with_name("engines.yaml")
STALLED_SECONDS = 180.0  # without a new result: it ends, right or not
RESTS_SECONDS = 3.0  # longer than between two commits: it may have done all
LOOK_SECONDS = 0.5
GATE_SECONDS, QUIET_CORES = 10.0, 0.1


def measure(bench: Bench, engine: str, number: int) -> dict[str, Any]:
    """One run of an engine, from its start until all results are there or no more come."""
    if engine == "fetch":
        return fetch(bench)
    run = f"{bench.workload.name}-{engine}-{number}"
    bench.broker.create(run, 1)
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        start = ENGINES[engine](bench, run, folder)
        log = folder / "log"
        process = subprocess.Popen(
            start.command,
            env=os.environ | start.environment,
            stdout=stack.enter_context(log.open("wb")),
            stderr=subprocess.STDOUT,
        )
        stack.callback(end, process)
        watch = stack.enter_context(Watch(process.pid))
        progress = follow(bench, run, process)
        if not progress.rows:
            raise OperatorError(f"{engine} gave no result: …{log.read_text()[-2000:]}")
    upserts, expected = bench.workload.upserts, bench.expected
    mistakes = wrong(newest(progress.found) if upserts else progress.found, expected)
    for row, surplus in mistakes[:3]:
        named = ", ".join(map("{} {}".format, bench.workload.columns, row))
        console.print(f"{run}: {abs(surplus)} too {'many' if surplus > 0 else 'few'} of {named}")
    since, until, share = steady(progress.seen(upserts), total(bench))
    seconds = max(until - since, 1e-3)
    return {
        "engine": engine,
        "events_per_second": share * bench.events / seconds,
        "core_us_per_event": 1e6 * watch.between(since, until) / max(1.0, share * bench.events),
        "steady_share": share,
        "correct": not mistakes,
        "wrong": len(mistakes),
    }


def follow(bench: Bench, run: str, process: "subprocess.Popen[bytes]") -> Progress:
    """Looks at what is committed until it is what it must be, or nothing new comes.

    While an engine works it asks only how much is committed: reading as many results as some
    queries have would take the engine's cores from it.
    """
    reader = kafka.consumer({"bootstrap.servers": bench.broker.address, "group.id": f"see-{run}"})
    results = kafka.TopicPartition(run, 0, kafka.OFFSET_BEGINNING)
    progress, heard = Progress(), time.monotonic()
    progress.look(time.time(), 0)
    while time.monotonic() - heard < STALLED_SECONDS and process.poll() is None:
        time.sleep(LOOK_SECONDS)
        _, committed = reader.get_watermark_offsets(results, STALLED_SECONDS)
        if progress.look(time.time(), committed):
            heard = time.monotonic()
        rests = time.monotonic() - heard > RESTS_SECONDS
        if rests and committed >= len(bench.expected):
            read(reader, results, bench.workload, progress)
            if progress.total(bench.workload.upserts) >= total(bench):
                break
    else:
        read(reader, results, bench.workload, progress)
    reader.close()
    return progress


def total(bench: Bench) -> int:
    """Of all results, as progress counts them."""
    return int(gains(bench.expected, bench.workload.upserts).sum())


def read(
    reader: kafka.Consumer, results: kafka.TopicPartition, workload: Workload, progress: Progress
) -> None:
    """All rows that are committed now and weren't read yet."""
    if not reader.assignment():  # it begins to fetch
        reader.assign([results])
    at_end = False
    while not at_end:
        messages = reader.consume(10_000, LOOK_SECONDS)
        at_end = any(m.error() for m in messages)  # that of a partition's end
        rows = [m for m in messages if not m.error()]
        if rows:
            progress.read(
                [m.offset() for m in rows], [workload.row(json.loads(m.value())) for m in rows]
            )


class Watch(threading.Thread):
    """A context manager: the processor time of a process and its children over time."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._stopping = threading.Event()
        self._times = [time.time()]
        self._used = [0.0]

    def __enter__(self) -> "Watch":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join()

    def run(self) -> None:
        usage = Usage(Family(self._pid), [])
        while not self._stopping.wait(LOOK_SECONDS):
            usage.look(list(processes()))
            self._times.append(time.time())
            self._used.append(usage.by_role().get("family", 0.0))

    def between(self, since: float, until: float) -> float:
        """Seconds of processor time."""
        low, high = np.interp([since, until], self._times, self._used)
        return float(high - low)


class Family(Roles):
    """A process and all that come from it have one role, everybody else another."""

    def __init__(self, pid: int) -> None:
        super().__init__({"roles": {}, "strangers": [], "observers": []})
        self._pid = pid

    def _role(self, process: Any, known: Any) -> str:
        at = process
        while at and at.pid != self._pid:
            at = known.get(at.parent)
        return "family" if at else "others"


def fetch(bench: Bench) -> dict[str, Any]:
    """Kafka's own tool says how fast it was; its processor time includes its start."""
    before = os.times()
    found = bench.broker.fetched(bench.topic, bench.events, bench.config["java"])
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    messages = max(1, int(found["data.consumed.in.nMsg"]))
    return {
        "engine": "fetch",
        "events_per_second": found["fetch.nMsg.sec"],
        "core_us_per_event": 1e6 * used / messages,
        "steady_share": 1.0,
        "correct": messages >= bench.events,
        "wrong": max(0, bench.events - messages),
    }


def fill(bench: Bench) -> None:
    """All events, and what they are joined with, into their topics before anything is measured."""
    console.print(f"filling topic {bench.topic} with {bench.events:,} events")
    bench.broker.create(bench.topic, PARTITIONS)
    brokers, sent = addresses(bench.broker.address), batches(bench.workload.stream, bench.events)
    send_all(brokers, bench.topic, PARTITIONS, sent)
    table = bench.workload.table
    if table:
        bench.broker.create(TABLE, 1)
        producer = kafka.producer({"bootstrap.servers": bench.broker.address})
        for key, value in table.items():
            producer.produce(TABLE, value, key)
        producer.flush()
        bench.table.write_text("".join(f"{key},{value}\n" for key, value in table.items()))


def gate(noisy: bool) -> dict[str, Any]:
    """Whether the machine is quiet; OperatorError when it isn't and has to be."""
    with Meter(Roles.load()) as meter:
        time.sleep(GATE_SECONDS)
    used = sum(cores for role, cores in meter.cores.items() if role != "bench")
    if used > QUIET_CORES and not noisy:
        raise OperatorError(
            f"others use {used:.2f} cores of this machine: measurements would show them",
            "end them (a running stack is one), or --noisy measures all the same and says so",
        )
    return {"others_cores": round(used, 3), "quiet": used <= QUIET_CORES}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="ysb if none")
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--only", action="append", choices=[*ENGINES, "fetch"])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--noisy", action="store_true", help="although others use the machine")
    parser.add_argument("--record", action="store_true", help="keep it in docs/performance/")
    asked = parser.parse_args(arguments)
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: asked.cores]))
    quiet = gate(asked.noisy)
    config = yaml.safe_load(CONFIG.read_text())
    records = []
    with broker() as one, tempfile.TemporaryDirectory(prefix="millrace-bench-") as work:
        filled: set[str] = set()
        for name in asked.workload or ["ysb"]:
            bench = Bench(one, config, asked.events, Path(work), WORKLOADS[name])
            if bench.topic not in filled:
                fill(bench)
                filled.add(bench.topic)
            engines = [
                engine
                for engine in config["workloads"][name]["engines"]
                if not asked.only or engine in asked.only
            ]
            with redis(bench.workload.table) if bench.workload.in_redis else nullcontext() as port:
                runs = in_turns(replace(bench, redis=port), engines, asked.repetitions)
            record = record_of(bench, runs, quiet, asked)
            publish(record, asked.record)
            records.append(record)
    if not all(run["correct"] for record in records for run in record["result"]["runs"]):
        raise OperatorError("results were wrong; see above")


def record_of(
    bench: Bench, runs: list[dict[str, Any]], quiet: dict[str, Any], asked: argparse.Namespace
) -> Record:
    engines = dict.fromkeys(run["engine"] for run in runs)
    result = {
        "about": workload_text(bench.config, bench.workload.name),
        "settings_of": {engine: settings_text(bench.config, engine) for engine in engines},
        "runs": runs,
    }
    settings = {"events": asked.events, "repetitions": asked.repetitions, "cores": asked.cores}
    return new_record(f"engines-{bench.workload.name}", settings, quiet | result)


def in_turns(bench: Bench, engines: list[str], repetitions: int) -> list[dict[str, Any]]:
    runs = []
    for number in range(repetitions):
        for engine in engines:
            runs.append(measure(bench, engine, number))
            console.print(
                f"{number + 1} of {repetitions}: {bench.workload.name} on {engine}"
                f" {runs[-1]['events_per_second']:,.0f} events/s"
                f"{'' if runs[-1]['correct'] else ', WRONG'}"
            )
    return runs


def settings_text(config: dict[str, Any], engine: str) -> str:
    own = config["engines"][engine]
    clients = config["producer"] | config["consumer"]
    given = clients | own["settings"] if "settings" in own else {}
    said = [config["java"], *(f"{key}={value}" for key, value in given.items())]
    return f"{own['about']}; {', '.join(said)}"


def workload_text(config: dict[str, Any], workload: str) -> str:
    """What engines do differently for it."""
    own = config["workloads"][workload]
    given = [
        f"{engine}: {', '.join(f'{key}={value}' for key, value in own[engine].items())}"
        for engine in own["engines"]
        if engine in own
    ]
    return "; ".join([own["about"], *given])


if __name__ == "__main__":
    run_program(main)
