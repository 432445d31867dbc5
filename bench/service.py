"""What the service on the stack `local` costs, how fresh its results are, what it sustains.

    python -m bench.service gate                       # is the machine quiet?
    python -m bench.service cost --rate 8000 --for 60s
    python -m bench.service fresh --rate 2000 --for 60s
    python -m bench.service search --from 2000 --to 60000 --for 180s
    python -m bench.service monitoring                 # idle, with and without it
    python -m bench.service all --record               # all of it, into docs/performance/

Each runs alone. Nobody else may send meanwhile. Afterwards `millrace audit LEDGER` counts again.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from bench import fresh, search
from bench.cpu import Meter, Roles, memory_mib, require_stack, service
from bench.fresh import Sampler, Seen
from bench.program import console, publish, run_program
from bench.record import new_record
from millrace.audit.declared import jobs_of
from millrace.audit.positions import Positions
from millrace.cluster import kafka, zookeeper
from millrace.cluster.hdfs import Hdfs
from millrace.cluster.insight_api import InsightApi
from millrace.cluster.ssh import on_all, run_on
from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.ledger.session import ledgers
from millrace.ledger.spec import PAGES
from millrace.ledger.store import Ledger
from millrace.plan import Host, Plan, load_plan

QUIET_CORES = 0.1  # what strangers may use
GATE_SECONDS = 10.0
WARM_SECONDS = 15.0  # of a load, before anything is measured
SETTLE_SECONDS = 300.0  # the jobs are given to come to rest
REST_SECONDS = 10.0  # and to finish what follows on that
TOPIC_PERIOD, API_PERIOD, LAG_PERIOD = 0.1, 0.2, 2.0
RUN_SECONDS_MORE = 3.0
WATCHERS = {"node_exporter", "redis_exporter", "prometheus_server", "alertmanager"}


@dataclass
class Bench:
    """What all steps need: the plan, who is who, and what was asked for."""

    plan: Plan
    asked: argparse.Namespace
    roles: Roles

    @property
    def settings(self) -> dict[str, Any]:
        left_out = {"step", "record", "noisy"}
        asked = {name: value for name, value in vars(self.asked).items() if name not in left_out}
        return asked | {"jobs": self.jobs}

    @property
    def jobs(self) -> list[str]:
        """Those that run: `millrace jobs disable` leaves others out of a measurement."""
        deployed = [job for jobs in self.plan.applications.values() for job in jobs]
        disabled = zookeeper.disabled(self.plan)
        return [job for job in deployed if job not in disabled]

    @contextmanager
    def load(self, rate: float, seconds: float, late: float | None = None) -> Iterator["Offered"]:
        """A load in a process of its own, once its clock has started."""
        command = [sys.executable, "-m", "bench.load", "--rate", str(rate)]
        command += ["--for", f"{round(seconds)}s", "--pages", str(self.asked.pages)]
        command += [] if late is None else ["--late", str(late)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout
                started = process.stdout.readline()
                if not started:
                    raise OperatorError("the load ended before it began; its error stands above")
                offered = Offered(process, **json.loads(started))
                time.sleep(max(0.0, offered.started_ms / 1000 - time.time()))
                yield offered
            finally:
                process.terminate()


@dataclass
class Offered:
    process: "subprocess.Popen[str]"
    run: str
    started_ms: int

    def finished(self) -> dict[str, Any]:
        """What it says of itself, once all is acknowledged."""
        assert self.process.stdout
        said = self.process.stdout.readline()
        if self.process.wait() or not said:
            raise OperatorError(f"load {self.run} failed; its error stands above")
        return dict(json.loads(said))


def gate(bench: Bench) -> dict[str, Any]:
    """Raises OperatorError while others use the machine."""
    with Meter(bench.roles) as meter:
        time.sleep(GATE_SECONDS)
    strangers = sum(meter.cores.get(role, 0.0) for role in bench.roles.strangers)
    if strangers > QUIET_CORES and not bench.asked.noisy:
        raise OperatorError(
            f"others use {strangers:.2f} cores of this machine: measurements would show them",
            "end them, or --noisy measures all the same and says so in the record",
        )
    return {"strangers_cores": round(strangers, 3), "quiet": strangers <= QUIET_CORES}


def cost(bench: Bench) -> dict[str, Any]:
    """Idle and loaded in turns."""
    runs = []
    for number in range(bench.asked.repetitions):
        console.print(f"cost {number + 1} of {bench.asked.repetitions}: idle, then loaded")
        come_to_rest(bench)
        idle = measured(bench)
        length = WARM_SECONDS + bench.asked.length + RUN_SECONDS_MORE
        with bench.load(bench.asked.rate, length) as offered:
            time.sleep(WARM_SECONDS)
            loaded = measured(bench)
            memory = memory_mib(bench.roles)
            sent = offered.finished()
        runs.append({"idle": idle, "loaded": loaded, "memory_mib": memory, "load": sent})
    return {"runs": runs}


def measured(bench: Bench) -> dict[str, Any]:
    with Meter(bench.roles) as meter:
        time.sleep(bench.asked.length)
    return {
        "cores": {role: round(used, 4) for role, used in meter.cores.items()},
        "service_cores": round(service(meter.cores, bench.roles), 4),
        "unseen_cores": round(meter.unseen, 4),
    }


def freshness(bench: Bench) -> dict[str, Any]:
    runs = []
    for number in range(bench.asked.repetitions):
        console.print(f"fresh {number + 1} of {bench.asked.repetitions}")
        come_to_rest(bench)
        time.sleep(bench.asked.after_idle)
        runs.append(_freshness(bench))
    return {"runs": runs}


def _freshness(bench: Bench) -> dict[str, Any]:
    plan, topic = bench.plan, bench.plan.names.kafka.topics.events
    partitions = plan.topics[topic].partitions
    api, span = InsightApi(plan), _span()

    def positions() -> Seen:
        looked = kafka.committed(group, plan, kafka.JOB)
        found = {p.partition: p.offset for p in looked if p.topic == topic}
        ends = tuple(max(0, found.get(partition, 0)) for partition in range(partitions))
        return Seen(time.time(), ends)

    def count() -> Seen:
        windows = api.get("/v1/traffic", window="1h", **span)["windows"]
        return Seen(time.time(), (sum(window["requests"] for window in windows),))

    with kafka.group(plan, kafka.JOB) as group:
        topics, answers = Sampler(positions, TOPIC_PERIOD), Sampler(count, API_PERIOD)
        topics.seen.append(positions())
        answers.seen.append(count())
        for sampler in (topics, answers):
            sampler.start()
        # Events that are too late are read and not counted.
        with bench.load(bench.asked.rate, bench.asked.length, late=0.0) as offered:
            sent = offered.finished()
        come_to_rest(bench, rest=2.0)
        for sampler in (topics, answers):
            sampler.stop()
    ledger = Ledger.open(ledgers(bench.plan) / offered.run)
    numbers = np.flatnonzero(ledger.acked)
    due = ledger.started + ledger.spec.schedule.times(numbers)
    in_topic = fresh.visible_in_topic(
        topics.seen, ledger.partition[numbers], ledger.offset[numbers]
    )
    in_api = fresh.visible_in_api(topics.seen, answers.seen, in_topic)
    return {
        "topic": fresh.summary(1000 * (in_topic - due)),
        "api": fresh.summary(1000 * (in_api - due)),
        "failed_looks": {"topic": topics.failures, "api": answers.failures},
        "load": sent,
    }


def _span() -> dict[str, str]:
    """The hours that a run may have events in."""
    hour = int(time.time()) // 3600 * 3600
    iso = [
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(hour + delta.total_seconds()))
        for delta in (timedelta(hours=-1), timedelta(hours=3))
    ]
    return {"from": iso[0], "to": iso[1]}


def sustained(bench: Bench) -> dict[str, Any]:
    trials: list[dict[str, Any]] = []

    def attempt(rate: float) -> bool:
        come_to_rest(bench)
        trial = _trial(bench, rate)
        reason = search.verdict(trial)
        console.print(f"{rate:>9,.0f}/s: {reason or 'sustained'}")
        trials.append({"rate": rate, "sustained": not reason, "reason": reason, **vars(trial)})
        return not reason

    best = search.highest(bench.asked.low, bench.asked.high, attempt)
    return {"sustained_per_second": best, "trials": trials}


def _trial(bench: Bench, rate: float) -> search.Trial:
    lags: dict[str, list[int]] = {"archive": [], kafka.JOB: []}
    moments: list[float] = []
    admin = kafka.connect(bench.plan)
    positions = Positions(bench.plan, Hdfs(bench.plan))
    stream = bench.plan.spark.settings.common.stream
    with bench.load(rate, WARM_SECONDS + bench.asked.length) as offered:
        until = time.monotonic() + WARM_SECONDS + bench.asked.length
        time.sleep(WARM_SECONDS)
        while time.monotonic() < until:
            ends = positions.event_ends()
            archived = positions.archived(stream, len(ends))
            lags["archive"].append(int((ends - archived).sum()))
            lags[kafka.JOB].append(kafka.lag(admin, bench.plan, kafka.JOB))
            moments.append(round(time.time() - offered.started_ms / 1000, 2))
            time.sleep(LAG_PERIOD)
        sent = offered.finished()
    settings = bench.plan.spark.settings
    triggers = {job: float(settings.job(job).trigger_seconds) for job in lags}
    return search.Trial(rate, moments, dict(lags), triggers, sent["behind"])


def monitoring(bench: Bench) -> dict[str, Any]:
    """Idle with all that watches, and without, in turns: services pay for being asked, too.

    Who watches is started again, whatever happens.
    """
    runs = []
    for number in range(bench.asked.repetitions):
        console.print(f"monitoring {number + 1} of {bench.asked.repetitions}: with, then without")
        come_to_rest(bench)
        watched = measured(bench)
        memory = memory_mib(bench.roles)
        try:
            _all_that_watches(bench.plan, "stop")
            time.sleep(REST_SECONDS)
            unwatched = measured(bench)
        finally:
            _all_that_watches(bench.plan, "start")
        runs.append({"with": watched, "without": unwatched, "memory_mib": memory})
        time.sleep(REST_SECONDS)
    return {"runs": runs}


def _all_that_watches(plan: Plan, verb: str) -> None:
    """Raises OperatorError where a host doesn't do it."""

    def do(host: Host) -> str:
        units = [plan.services[name].unit for name in host.services if name in WATCHERS]
        done = run_on(plan, host, ["sudo", "systemctl", verb, *units])
        return done.stderr.strip() if done.returncode else ""

    for name, error in on_all(plan.hosts, do).items():
        if error:
            raise OperatorError(f"{name}: {error}")


def come_to_rest(bench: Bench, rest: float = REST_SECONDS) -> None:
    """Until the jobs have taken in everything; raises OperatorError when they don't."""
    positions = Positions(bench.plan, Hdfs(bench.plan))
    stream = bench.plan.spark.settings.common.stream
    ends = positions.event_ends()
    deadline = time.monotonic() + SETTLE_SECONDS
    for job in (kafka.JOB, *jobs_of(bench.plan, [stream])):
        positions.wait_for(job, {stream: ends}, deadline)
    positions.wait_for_archive(stream, ends, deadline)
    if (positions.event_ends() != ends).any():
        raise OperatorError("somebody else sends events", "end their load first")
    time.sleep(rest)


STEPS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "cost": cost,
    "fresh": freshness,
    "search": sustained,
    "monitoring": monitoring,
}


def perform(bench: Bench, step: str) -> None:
    quiet = gate(bench)
    record = new_record(f"service-{step}", bench.settings, quiet | STEPS[step](bench))
    publish(record, bench.asked.record)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("step", nargs="?", default="all", choices=["gate", *STEPS, "all"])
    made.add_argument("--rate", type=float, default=None, help="8,000 for cost, 2,000 for fresh")
    made.add_argument(
        "--for", dest="length", type=parse_duration, default=None, help="60s; 180s for search"
    )
    made.add_argument("--pages", type=int, default=PAGES, help="distinct URLs")
    made.add_argument("--repetitions", type=int, default=5)
    made.add_argument("--after-idle", type=parse_duration, default=0, help="fresh: rest before it")
    made.add_argument("--from", dest="low", type=float, default=2000, help="search: lowest rate")
    made.add_argument("--to", dest="high", type=float, default=64_000, help="search: highest rate")
    made.add_argument("--noisy", action="store_true", help="although others use the machine")
    made.add_argument("--record", action="store_true", help="keep it in docs/performance/")
    return made


RATES = {"cost": 8000.0, "fresh": 2000.0, "search": None, "monitoring": None}
LENGTHS = {"cost": 60, "fresh": 60, "search": 180, "monitoring": 60}  # seconds


def main(arguments: list[str]) -> None:
    asked = parser().parse_args(arguments)
    roles = Roles.load()
    require_stack(roles)
    bench = Bench(load_plan(stack_name()), asked, roles)
    if asked.step == "gate":
        console.print(gate(bench))
        return
    for step in STEPS if asked.step == "all" else [asked.step]:
        defaults = {"rate": asked.rate or RATES[step], "length": asked.length or LENGTHS[step]}
        own = argparse.Namespace(**vars(asked) | defaults)
        perform(Bench(bench.plan, own, roles), step)


if __name__ == "__main__":
    run_program(main)
