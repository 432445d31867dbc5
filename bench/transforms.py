"""What the jobs' pure transforms cost: core-µs of the JVM per event, its compilers included.

python -m bench.transforms
python -m bench.transforms --events 400000 --repetitions 7

No Kafka and no cluster: what `millrace load` would send lies in a file, and each step takes all of
it, in turns in JVMs that compile differently. It is processor time that counts, so that others on
the machine disturb little.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from millrace_jobs.jobs.sessions import sessions
from millrace_jobs.sinks import archive
from millrace_jobs.stream import Stream
from millrace_jobs.transforms import parse
from millrace_jobs.transforms.traffic import PageViewRule, Sketches, traffic
from pyspark.sql import DataFrame, SparkSession

from millrace.ledger.events import encode, events
from millrace.ledger.spec import Spec
from millrace.plan.make import load_plan

CORES = 2
SECONDS = 60.0
STARTED_MS = 1_800_000_000_000
# The second compiler only for what runs ten times as often as by default before it is compiled.
LATE = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
COMPILERS = {
    "first alone": "-XX:TieredStopAtLevel=1",
    "both": "-XX:+TieredCompilation",
    "both, late": " ".join(LATE),
}
RECORDS = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)


PLAN = load_plan("local")
SETTINGS = PLAN.spark.rendered()["settings"]
# Of spark-defaults.conf, what bears on a transform.
DEPLOYED = (
    "spark.sql.session.timeZone",
    "spark.sql.adaptive.enabled",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold",
)


def main() -> None:
    parser = argparse.ArgumentParser(description="What the jobs' pure transforms cost.")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--repetitions", type=int, default=5, help="of each step, that count")
    parser.add_argument("--warm-up", type=int, default=5, help="repetitions before those")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--option", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work(arguments.worker, arguments.events, arguments.option)
    with tempfile.TemporaryDirectory() as name:
        write_records(Path(name), arguments.events)
        return print_table(measure(Path(name), arguments))


def write_records(folder: Path, count: int) -> None:
    """A minute of events, in a file for each core."""
    spec = Spec(
        run="bench",
        cluster="bench",
        topic="events",
        partitions=CORES,
        acks="all",
        rate=count / SECONDS,
        seconds=SECONDS,
        profile="steady",
        out_of_order=0.05,
        late=0.0,
        lateness=0,
        seed=1,
        started_ms=STARTED_MS,
        results_offsets=[],
    )
    received = int(STARTED_MS + 1000 * SECONDS) * 1000
    for partition, numbers in enumerate(np.array_split(np.arange(count), CORES)):
        rows = [
            (key, value, "events", partition, offset, received, None)
            for offset, (key, value) in enumerate(encode(events(spec, numbers)))
        ]
        columns = map(pa.array, zip(*rows, strict=True), RECORDS.types)
        table = pa.table(list(columns), RECORDS)
        pq.write_table(table, folder / f"{partition}.parquet", compression="none")


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Step → compilers → core-µs for each event, of each repetition."""
    costs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(worker(folder, arguments.events, option))
            for name, option in COMPILERS.items()
        }
        for repetition in range(arguments.warm_up + arguments.repetitions):
            for step in STEPS:
                for name, run in workers.items():
                    cost = run(step)
                    if repetition >= arguments.warm_up:
                        costs[step][name].append(cost)
    return costs


def print_table(costs: dict[str, dict[str, list[float]]]) -> None:
    print(f"{'core-µs per event':<20}", *(f"{name:>20}" for name in COMPILERS))
    for step, by_compiler in costs.items():
        cells = (
            f"{statistics.median(found):6.2f} ({min(found):.2f}–{max(found):.2f})"
            for found in by_compiler.values()
        )
        print(f"{step:<20}", *(f"{cell:>20}" for cell in cells))


@contextmanager
def worker(folder: Path, count: int, option: str) -> Iterator[Callable[[str], float]]:
    """Runs a step in a process with a JVM of its own, and says what it cost."""
    command = [sys.executable, "-m", "bench.transforms", f"--worker={folder}"]
    command += [f"--events={count}", f"--option={option}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as process:
        told, said = process.stdin, process.stdout
        assert told
        assert said

        def run(step: str) -> float:
            told.write(f"{step}\n")
            return float(said.readline())

        yield run
        told.close()


def work(folder: Path, count: int, option: str) -> None:
    """Runs the steps that it is told, a line each; answers each with a line, its cost."""
    settings = {key: SETTINGS["spark-defaults.conf"][key] for key in DEPLOYED} | {
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Xss4m {option}",
        "spark.sql.shuffle.partitions": CORES,
    }
    spark = SparkSession.builder.master(f"local[{CORES}]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    assert spark._jvm is not None  # a session of our own, not of Spark Connect
    process = spark._jvm.java.lang.ProcessHandle.current().pid()
    records = spark.read.parquet(str(folder / "[0-9]*.parquet"))
    for line in sys.stdin:
        before = processor_seconds(process)
        STEPS[line.strip()](records)
        print(1e6 * (processor_seconds(process) - before) / count, flush=True)


def processor_seconds(process: int) -> float:
    stat = Path(f"/proc/{process}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def consume(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def parsed(records: DataFrame) -> DataFrame:
    return records.transform(parse.classify, STREAM).drop("is_event")


def classified(records: DataFrame) -> DataFrame:
    return parse.valid(records.transform(parse.classify, STREAM), STREAM)


def with_traffic(records: DataFrame) -> DataFrame:
    own = SETTINGS["traffic"]
    rule, sketches = PageViewRule.of(own), Sketches.of(own)
    return classified(records).transform(traffic, rule, own["watermark_seconds"], sketches)


def with_sessions(records: DataFrame) -> DataFrame:
    return classified(records).transform(sessions, SETTINGS["sessions"])


def archived(records: DataFrame) -> None:
    """Into Parquet: Delta's log is a batch's cost, not an event's."""
    own = SETTINGS["archive"]
    events = archive.with_partitions(classified(records), STREAM.event_time)
    dealt = archive.dealt(events, own["shuffle_partitions"], own["writers_per_hour"])
    with tempfile.TemporaryDirectory() as folder:
        dealt.write.partitionBy(*archive.PARTITIONS).mode("overwrite").parquet(folder)


STREAM = Stream.of("events", PLAN.streams["events"].model_dump())
# Each does what those before it do, and more, but for the last two.
STEPS: dict[str, Callable[[DataFrame], None]] = {
    "read": consume,
    "parse": lambda records: consume(parsed(records)),
    "classify": lambda records: consume(classified(records)),
    "traffic": lambda records: consume(with_traffic(records)),
    "sessions": lambda records: consume(with_sessions(records)),
    "archive": archived,
}

if __name__ == "__main__":
    main()
