"""What the jobs' pure transforms cost: core-µs of the JVM per event, its compilers included.

    python -m bench.transforms                       # by the JVM's compilers
    python -m bench.transforms formats --record      # by the format of events, JSON or Avro
    python -m bench.transforms formats --events 20000 --repetitions 1 --warm-up 0 --noisy

No Kafka and no cluster: what `millrace load` would send lies in files, and each step takes all of
it, in turns in JVMs that differ in one thing. It is processor time that counts, so that others on
the machine disturb little.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.engine import answering, job_settings, spark_environment
from bench.engines.__main__ import gate
from bench.program import console, publish, run_program
from bench.record import new_record
from bench.transforms import records
from bench.transforms.records import CORES
from millrace.common.errors import OperatorError
from millrace.plan import load_plan

PROGRAM = Path(__file__).with_name("spark_transforms.py")
# Of the executors' options: when the second compiler takes something up.
LATE = "-XX:Tier4"
# Of spark-defaults.conf, what bears on a transform.
DEPLOYED = (
    "spark.sql.session.timeZone",
    "spark.sql.adaptive.enabled",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold",
)


@dataclass(frozen=True)
class Variant:
    """A JVM: its compilers, and how the values that it reads are encoded."""

    compilers: str = ""  # the executors'
    format: str = "json"


COMPARISONS = {
    "compilers": {
        "first alone": Variant("-XX:TieredStopAtLevel=1"),
        "both": Variant("-XX:+TieredCompilation"),
        "both, late": Variant(),
    },
    "formats": {"JSON": Variant(), "Avro": Variant(format="avro")},
}


def measure(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Core-µs for each event, of each step in each variant, and whether all find the same."""
    runs: list[dict[str, Any]] = []
    rounds = asked.warm_up + asked.repetitions
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(worker(name, variant, folder, asked.events))
            for name, variant in COMPARISONS[asked.by].items()
        }
        steps = next(iter(workers.values()))("steps")
        for number in range(rounds):
            console.print(f"{number + 1} of {rounds}")
            for step in steps:
                costs = {name: ask(step) for name, ask in workers.items()}
                if number >= asked.warm_up:
                    runs += [
                        {"step": step, "variant": name, "core_us_per_event": cost}
                        for name, cost in costs.items()
                    ]
        correct = right([ask("results") for ask in workers.values()], asked.events)
    return {"runs": runs, "correct": correct}


def right(results: Sequence[Sequence[dict[str, Any]]], events: int) -> bool:
    """All alike, and each event is in a window of each length."""
    counted = {"1m": 0, "1h": 0}
    for row in results[0]:
        counted[row["window"]] += row["requests"]
    return set(counted.values()) == {events} and all(rows == results[0] for rows in results)


def worker(
    name: str, variant: Variant, folder: Path, events: int
) -> AbstractContextManager[Callable[[Any], Any]]:
    """Runs a step in a process with a JVM of its own, and says what it cost."""
    rendered = load_plan("local").spark.rendered()["settings"]
    defaults = rendered["spark-defaults.conf"]
    compilers = variant.compilers or of_executors(defaults["spark.executor.extraJavaOptions"])
    settings = {key: defaults[key] for key in DEPLOYED} | {
        "spark.master": f"local[{CORES}]",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Xss4m {compilers}",
        "spark.sql.shuffle.partitions": CORES,
    }
    asked = {
        "records": str(folder / variant.format / "[0-9]*.parquet"),
        "events": events,
        "stream": records.stream(variant.format),
        "jobs": job_settings(rendered, ["traffic", "sessions", "archive"]),
        "settings": settings,
    }
    command = [sys.executable, str(PROGRAM), json.dumps(asked)]
    return answering(command, folder / f"{name}.log", spark_environment())


def of_executors(options: str) -> str:
    return " ".join(option for option in options.split() if option.startswith(LATE))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("by", nargs="?", choices=COMPARISONS, default="compilers")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--repetitions", type=int, default=5, help="of each step, that count")
    parser.add_argument("--warm-up", type=int, default=5, help="repetitions before those")
    parser.add_argument("--noisy", action="store_true", help="although others use the machine")
    parser.add_argument("--record", action="store_true", help="keep it in docs/performance/")
    asked = parser.parse_args(arguments)
    quiet = gate(asked.noisy)
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        sizes = records.write(Path(name), asked.events)
        found = measure(Path(name), asked)
    settings = {name: getattr(asked, name) for name in ("events", "repetitions", "warm_up")}
    shown = {"value_bytes": sizes} if asked.by == "formats" else {}
    publish(new_record(f"transforms-{asked.by}", settings, quiet | shown | found), asked.record)
    if not found["correct"]:
        raise OperatorError("results differ, or don't count each event; see above")


if __name__ == "__main__":
    run_program(main)
