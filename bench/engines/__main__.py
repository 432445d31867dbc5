"""YSB on Spark, Flink SQL and Kafka Streams in turns, beside Kafka's own reader.

    python -m bench.engines --events 4000000 --repetitions 5 --record
    python -m bench.engines --events 200000 --repetitions 1 --only spark --only flink --noisy

The broker is one of its own; no cluster is needed. Everything runs on the first two cores.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import yaml

from bench.cpu import Meter, Roles, Usage, processes
from bench.engines import ysb
from bench.engines.broker import Broker, broker, end
from bench.engines.jars import FLINK_CONNECTOR, jars
from bench.engines.progress import Progress, steady, wrong
from bench.load import addresses
from bench.program import console, run_program
from bench.record import keep, new_record
from bench.report import tables
from bench.sender import Sender
from millrace.cluster import kafka
from millrace.common.errors import OperatorError
from millrace.common.paths import REPO
from millrace.plan import load_plan
from millrace.setup.locks import parse_jar
from millrace.setup.spark import local_spark

CONFIG = Path(__file__).with_name("engines.yaml")
JAVA = Path(__file__).with_name("java")
FLINK = REPO / ".venv" / "flink"
EVENTS, ADS = "ysb", "ads"
STALLED_SECONDS = 180.0  # without a new result: it ends, right or not
LOOK_SECONDS = 0.5
GATE_SECONDS, QUIET_CORES = 10.0, 0.1
QUEUED = 50  # batches


@dataclass(frozen=True)
class Bench:
    """What each engine gets: ``work`` is a folder for classes and data that all may read."""

    broker: Broker
    config: dict[str, Any]
    events: int
    work: Path
    expected: ysb.Counts

    def settings(self, engine: str) -> dict[str, str]:
        return dict(self.config["engines"][engine]["settings"])

    @property
    def ads(self) -> Path:
        return self.work / "ads.csv"


@dataclass(frozen=True)
class Start:
    """A command with its environment."""

    command: list[str]
    environment: dict[str, str]


def spark(bench: Bench, run: str, folder: Path) -> Start:
    defaults = load_plan("local").spark.settings.defaults.model_dump(by_alias=True)
    own = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in defaults.items()
        if key.startswith("spark.sql.") and key not in DELTA
    }
    given = own | bench.settings("spark")
    given |= {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": bench.config["java"].replace("-Xmx2g ", "") + " -Xss4m",
        "spark.local.dir": str(folder),
    }
    asked = common(bench, run, folder) | {
        "settings": given,
        "max_offsets": bench.config["engines"]["spark"]["max_offsets"],
    }
    path = [str(local_spark()), str(REPO / "spark-jobs"), str(REPO)]
    program = Path(__file__).with_name("spark_ysb.py")
    return Start(
        [sys.executable, str(program), json.dumps(asked)], {"PYTHONPATH": os.pathsep.join(path)}
    )


# The archive's; its jars would have to be on the path of whoever reads only Kafka.
DELTA = {"spark.sql.extensions", "spark.sql.catalog.spark_catalog"}


def flink(bench: Bench, run: str, folder: Path) -> Start:
    python = FLINK / "bin" / "python"
    if not python.exists():
        raise OperatorError(f"{python} isn't there", "`make bench-engines` installs it")
    connector = jars() / parse_jar(FLINK_CONNECTOR).filename
    asked = common(bench, run, folder) | {
        "settings": bench.settings("flink"),
        "run": run,
        "jars": [str(connector), str(flink_function(bench))],
    }
    program = Path(__file__).with_name("flink_ysb.py")
    java = {"JVM_ARGS": bench.config["java"], "PYTHONPATH": ""}
    return Start([str(python), str(program), json.dumps(asked)], java)


def streams(bench: Bench, run: str, folder: Path) -> Start:
    connector = parse_jar(FLINK_CONNECTOR).filename
    path = [jar for jar in jars().glob("*.jar") if jar.name != connector]
    path += [bench.broker.home / "share", *(bench.broker.home / "lib").glob("log4j-*.jar")]
    classes = compiled(bench, "Ysb.java", path)
    properties = bench.settings("streams") | {
        "application.id": run,
        "bootstrap.servers": bench.broker.address,
        "commit.interval.ms": str(bench.config["commit_ms"]),
        "consumer.auto.offset.reset": "earliest",
        "state.dir": str(folder / "state"),
        "replication.factor": "1",
    }
    file = folder / "streams.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    java = ["java", *bench.config["java"].split(), "-cp"]
    java.append(os.pathsep.join(map(str, [classes, *path])))
    return Start([*java, "Ysb", str(file), EVENTS, ADS, run], {})


def common(bench: Bench, run: str, folder: Path) -> dict[str, Any]:
    return {
        "brokers": bench.broker.address,
        "events": EVENTS,
        "ads": str(bench.ads),
        "results": run,
        "folder": str(folder),
        "trigger_ms": bench.config["commit_ms"],
    }


def flink_function(bench: Bench) -> Path:
    [library] = FLINK.glob("lib/python*/site-packages/pyflink/lib")
    classes = compiled(bench, "CampaignOf.java", sorted(library.glob("*.jar")))
    jar = bench.work / "campaign-of.jar"
    with ZipFile(jar, "w") as content:
        content.write(classes / "CampaignOf.class", "CampaignOf.class")
    return jar


def compiled(bench: Bench, source: str, path: list[Path]) -> Path:
    """The folder of its classes."""
    classes = bench.work / source.removesuffix(".java")
    if not classes.exists():
        command = ["javac", "--release", "17", "-d", str(classes)]
        command += ["-cp", os.pathsep.join(map(str, path)), str(JAVA / source)]
        subprocess.run(command, check=True)
    return classes


ENGINES: dict[str, Callable[[Bench, str, Path], Start]] = {
    "spark": spark,
    "flink": flink,
    "streams": streams,
}


def measure(bench: Bench, engine: str, number: int) -> dict[str, Any]:
    """One run of an engine, from its start until all results are there or no more come."""
    if engine == "fetch":
        return fetch(bench)
    run = f"{engine}-{number}"
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
        if not progress.seen or progress.total == 0:
            raise OperatorError(f"{engine} gave no result: …{log.read_text()[-2000:]}")
    mistakes = wrong(progress.counts, bench.expected)
    for mistake in mistakes[:3]:
        console.print(f"{run}: {mistake}")
    since, until, share = steady(progress.seen, sum(bench.expected.values()))
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
    """Reads what is committed until it is what it must be, or nothing new comes."""
    reader = kafka.consumer({"bootstrap.servers": bench.broker.address, "group.id": f"see-{run}"})
    reader.assign([kafka.TopicPartition(run, 0, kafka.OFFSET_BEGINNING)])
    progress, heard = Progress(), time.monotonic()
    views = sum(bench.expected.values())
    progress.look(time.time())
    while time.monotonic() - heard < STALLED_SECONDS and process.poll() is None:
        messages = [m for m in reader.consume(10_000, LOOK_SECONDS) if not m.error()]
        for message in messages:
            row = json.loads(message.value())
            progress.result((row["campaign"], row["start"]), row["views"])
        if messages:
            heard = time.monotonic()
            progress.look(time.time())
        if progress.total >= views:
            break
    reader.close()
    return progress


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
    tool = [str(bench.broker.home / "bin/kafka-consumer-perf-test"), "--topic", EVENTS]
    tool += ["--bootstrap-server", bench.broker.address, "--num-records", str(bench.events)]
    tool += ["--timeout", str(int(1000 * STALLED_SECONDS))]
    before = os.times()
    done = subprocess.run(
        tool,
        env=os.environ | {"JAVA_OPTS": bench.config["java"]},
        capture_output=True,
        text=True,
        check=False,
    )
    after = os.times()
    if done.returncode:
        raise OperatorError(f"kafka-consumer-perf-test failed: {done.stderr[-500:]}")
    header, *_, line = (text for text in done.stdout.splitlines() if "," in text)
    found = dict(zip(split(header), split(line), strict=False))
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    messages = max(1, int(found["data.consumed.in.nMsg"]))
    return {
        "engine": "fetch",
        "events_per_second": float(found["fetch.nMsg.sec"]),
        "core_us_per_event": 1e6 * used / messages,
        "steady_share": 1.0,
        "correct": messages >= bench.events,
        "wrong": max(0, bench.events - messages),
    }


def split(line: str) -> list[str]:
    return [each.strip() for each in line.split(",")]


def fill(bench: Bench) -> None:
    """All events and ads into their topics, before anything is measured."""
    bench.broker.create(EVENTS, ysb.PARTITIONS)
    bench.broker.create(ADS, 1)
    sender = Sender(addresses(bench.broker.address), EVENTS, ysb.PARTITIONS, lambda *_: None)
    for batch in ysb.batches(bench.events):
        sender.put(batch)
        while sender.unacknowledged > QUEUED:
            sender.poll(0.1)
    while sender.unacknowledged:
        sender.poll(0.1)
    sender.close()
    producer = kafka.producer({"bootstrap.servers": bench.broker.address})
    for ad, campaign in ysb.ads().items():
        producer.produce(ADS, campaign, ad)
    producer.flush()
    bench.ads.write_text("".join(f"{ad},{campaign}\n" for ad, campaign in ysb.ads().items()))


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
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--only", action="append", choices=[*ENGINES, "fetch"])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--noisy", action="store_true", help="although others use the machine")
    parser.add_argument("--record", action="store_true", help="keep it in docs/performance/")
    asked = parser.parse_args(arguments)
    engines = asked.only or [*ENGINES, "fetch"]
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: asked.cores]))
    quiet = gate(asked.noisy)
    config = yaml.safe_load(CONFIG.read_text())
    runs = []
    with broker() as one, tempfile.TemporaryDirectory(prefix="millrace-bench-") as work:
        bench = Bench(one, config, asked.events, Path(work), ysb.truth(asked.events))
        console.print(f"filling topic {EVENTS} with {asked.events:,} events")
        fill(bench)
        for number in range(asked.repetitions):
            for engine in engines:
                runs.append(measure(bench, engine, number))
                console.print(
                    f"{number + 1} of {asked.repetitions}: {engine}"
                    f" {runs[-1]['events_per_second']:,.0f} events/s"
                    f"{'' if runs[-1]['correct'] else ', WRONG'}"
                )
    about = {engine: settings_text(config, engine) for engine in engines}
    settings = {"events": asked.events, "repetitions": asked.repetitions, "cores": asked.cores}
    record = new_record("engines-ysb", settings, quiet | {"settings_of": about, "runs": runs})
    for table in tables(record):
        console.print(table)
    console.print(keep(record, asked.record))
    if not all(run["correct"] for run in runs):
        raise OperatorError("results were wrong; see above")


def settings_text(config: dict[str, Any], engine: str) -> str:
    own = config["engines"][engine]
    given = [f"{key}={value}" for key, value in own.get("settings", {}).items()]
    return f"{own['about']}; {', '.join([config['java'], *given])}"


if __name__ == "__main__":
    run_program(main)
