"""A load at less than 3 core-µs per event, with a ledger that `millrace audit` reads.

python -m bench.load --rate 30000 --for 60s --pages 100000
python -m bench.load --rate 30000 --for 10s --brokers 127.0.0.1:9092 --topic scratch
"""

import argparse
import json
import resource
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bench import wire
from bench.pool import Pool
from bench.sender import Sender, ask
from bench.wire import Address
from millrace.cluster import kafka
from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.common.signals import stop_on_signals
from millrace.ledger.command import LATE, OUT_OF_ORDER
from millrace.ledger.schedule import PROFILES
from millrace.ledger.session import LoadOptions, ledgers, settle
from millrace.ledger.spec import PAGES, Spec
from millrace.ledger.store import FATE, State, Writer
from millrace.plan import Plan, load_plan

TICK_SECONDS = 0.025
STATE_SECONDS = 1.0
MOST_WAITING = 2000  # batches: half a minute of brokers that are away, at 10,000 events/s
POOL = 200_000
START_SECONDS = 1.0
RAW = argparse.RawDescriptionHelpFormatter


@dataclass
class Sent:
    """``behind`` in seconds, the worst; ``core_us`` per event, of this process and all of it."""

    run: str
    ledger: str
    sent: int = 0
    acknowledged: int = 0
    seconds: float = 0.0
    behind: float = 0.0
    recoveries: int = 0
    core_us: float = 0.0


class Run:
    """One load. Its pool is made before its clock starts."""

    def __init__(self, spec: Spec, brokers: list[Address], folder: Path) -> None:
        pool = Pool(spec)
        self._pool = pool
        self._sender = Sender(brokers, spec.topic, spec.partitions, self._acknowledged)
        self.spec = pool.start(int(1000 * (time.time() + START_SECONDS)))
        self._writer = Writer(folder / spec.run, self.spec)
        self.sent = Sent(spec.run, str(self._writer.path))
        self._said = 0.0

    def send(self, stopping: Callable[[], bool] = lambda: False) -> Sent:
        """Each event when it is due; returns when all are acknowledged."""
        sent, schedule = self.sent, self.spec.schedule
        began = cpu_seconds()
        while sent.sent < schedule.events and not stopping():
            tick = time.monotonic()
            due = schedule.due(self._elapsed())
            if due > sent.sent and self._sender.unacknowledged < MOST_WAITING:
                self._send(due)
            rest = TICK_SECONDS
            while rest > 0:
                self._sender.poll(rest)
                rest = TICK_SECONDS - (time.monotonic() - tick)
            self._say()
        while self._sender.unacknowledged:
            self._sender.poll(TICK_SECONDS)
        self._sender.close()
        self._writer.close(State(sent.sent, sent.behind, finished=True))
        sent.seconds = self._elapsed()
        sent.recoveries = self._sender.recoveries
        sent.core_us = 1e6 * (cpu_seconds() - began) / max(1, sent.sent)
        return sent

    def _send(self, due: int) -> None:
        first = float(self.spec.schedule.times(np.array([self.sent.sent]))[0])
        self.sent.behind = max(self.sent.behind, self._elapsed() - first)
        for batch in self._pool.batches(self.sent.sent, due):
            self._sender.put(batch)
        self.sent.sent = due

    def _acknowledged(self, partition: int, offset: int, numbers: np.ndarray) -> None:
        fates = np.empty(len(numbers), FATE)
        fates["number"] = numbers
        fates["partition"] = partition
        fates["offset"] = offset + np.arange(len(numbers))
        fates["ms"] = int(1000 * self._elapsed())
        self._writer.record_all(fates)
        self.sent.acknowledged += len(numbers)

    def _say(self) -> None:
        if time.monotonic() - self._said >= STATE_SECONDS:
            self._said = time.monotonic()
            # What is sent until then may be in doubt.
            ahead = int(2 * STATE_SECONDS * self.spec.rate)
            self._writer.write(State(self.sent.sent + ahead, self.sent.behind))

    def _elapsed(self) -> float:
        return time.time() - self.spec.started_ms / 1000


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def scratch(brokers: list[Address], topic: str, rate: float, seconds: float, pages: int) -> Spec:
    """A run on Kafka alone, without a Millrace around it; the topic must be there."""
    found = wire.leaders(ask(brokers, wire.METADATA, wire.metadata_request(topic)))
    return Spec(
        run=f"{datetime.now(UTC):%Y%m%d-%H%M%S}",
        cluster="scratch",
        topic=topic,
        partitions=len(found),
        acks="all",
        rate=rate,
        seconds=seconds,
        profile="steady",
        out_of_order=0.0,
        late=0.0,
        lateness=0,
        seed=secrets.randbits(32),
        results_offsets=[],
        started_ms=0,
        pages=pages,
        pool=pool_of(pages),
    )


def of_plan(plan: Plan, rate: float, seconds: float, pages: int, profile: str, late: float) -> Spec:
    """A run on a cluster, of events that its jobs read."""
    options = LoadOptions("", rate, seconds, profile, "all", OUT_OF_ORDER, late, "", pages)
    return settle(plan, options, pool_of(pages))


def pool_of(pages: int) -> int:
    """Twice as many events as pages: most of the pages occur."""
    return max(POOL, 2 * pages)


def addresses(text: str) -> list[Address]:
    return [
        Address(host, int(port))
        for host, _, port in (each.rpartition(":") for each in text.split(","))
    ]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=RAW)
    parser.add_argument("--rate", type=float, default=30_000, help="events a second")
    parser.add_argument("--for", dest="length", type=parse_duration, default=60)
    parser.add_argument("--pages", type=int, default=PAGES, help="how many URLs there are")
    parser.add_argument("--profile", default="steady", help=", ".join(PROFILES))
    parser.add_argument("--late", type=float, default=LATE, help="share that is too late to count")
    parser.add_argument("--brokers", type=addresses, help="Kafka alone: host:port,…")
    parser.add_argument("--topic", help="with --brokers")
    asked = parser.parse_args(arguments)
    if asked.brokers:
        spec = scratch(asked.brokers, asked.topic, asked.rate, asked.length, asked.pages)
        brokers, folder = asked.brokers, Path(tempfile.mkdtemp(prefix="millrace-bench-"))
    else:
        plan = load_plan(stack_name())
        spec = of_plan(plan, asked.rate, asked.length, asked.pages, asked.profile, asked.late)
        brokers, folder = addresses(kafka.brokers(plan)), ledgers(plan)
    with stop_on_signals() as stop:
        run = Run(spec, brokers, folder)
        print(json.dumps({"run": spec.run, "started_ms": run.spec.started_ms}), flush=True)
        print(json.dumps(asdict(run.send(stop.is_set))))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OperatorError as error:
        sys.exit(str(error))
