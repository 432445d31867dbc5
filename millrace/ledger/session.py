"""Settles a run, sends it, and says where its ledger is."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from millrace.cluster import collector, kafka
from millrace.cluster.collector import CollectorProducer
from millrace.cluster.kafka import Producer
from millrace.common.console import Console
from millrace.common.paths import stack_state
from millrace.common.signals import stop_on_signals
from millrace.common.tables import Answer
from millrace.ledger.display import Display, summary
from millrace.ledger.load import Load, connect
from millrace.ledger.spec import Spec
from millrace.ledger.store import Ledger, Writer
from millrace.plan import Plan

# How much later than the watermark a late event is: late for its hour, too, whatever the clocks.
LATE_MARGIN_SECONDS = 2 * 3600


@dataclass(frozen=True)
class LoadOptions:
    """What a load is to be; an empty name or topic means the usual one."""

    run: str
    rate: float
    seconds: float
    profile: str
    acks: str
    out_of_order: float
    late: float
    topic: str
    pages: int


def run_load(
    plan: Plan, options: LoadOptions, console: Console, *, through_collector: bool = False
) -> Answer:
    """Sends until it is done or a signal ends it, and shows how it goes; the whole in figures."""
    spec = settle(plan, options)
    ledger = Writer(ledgers(plan) / spec.run, spec)
    with stop_on_signals() as stop, Display(console) as display:
        producers: Callable[[], Producer | CollectorProducer] = (
            partial(collector.connect, plan, plan.spark.settings.common.stream)
            if through_collector
            else partial(connect, kafka.fast_failover_client(plan), options.acks)
        )
        load = Load(spec, producers, ledger, stop.is_set, display.update)
        load.run()
    if load.seen.ended:
        console.print(f"{load.seen.producers} producers; the last that ended: {load.seen.ended}")
    return summary(Ledger.open(ledger.path), time.time() - spec.started_ms / 1000)


def settle(plan: Plan, options: LoadOptions, pool: int = 0) -> Spec:
    """Settles what the run is, which begins now. Raises OperatorError without Kafka or the
    topic."""
    topic = options.topic or plan.names.kafka.topics.events
    partitions = kafka.require_topics(kafka.connect(plan), {topic})[topic]
    results = plan.names.kafka.topics.results
    return Spec(
        run=options.run or f"{datetime.now(UTC):%Y%m%d-%H%M%S}",
        cluster=plan.cluster,
        topic=topic,
        partitions=partitions,
        acks=options.acks,
        rate=options.rate,
        seconds=options.seconds,
        profile=options.profile,
        out_of_order=options.out_of_order,
        late=options.late,
        lateness=_watermark(plan) + LATE_MARGIN_SECONDS,
        seed=secrets.randbits(32),
        results_offsets=kafka.require_ends(
            kafka.connect(plan), results, plan.topics[results].partitions
        ),
        started_ms=int(1000 * time.time()),
        pages=options.pages,
        pool=pool,
    )


def ledgers(plan: Plan) -> Path:
    """Returns the folder of the stack's ledgers."""
    return stack_state(plan.environment) / "ledgers"


def _watermark(plan: Plan) -> int:
    return plan.spark.settings.traffic.watermark_seconds
