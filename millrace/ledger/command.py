"""``millrace load``: settles a run, sends it, and says where its ledger is."""

import secrets
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from rich.console import Console

from millrace import lag
from millrace.durations import parse_duration
from millrace.errors import OperatorError
from millrace.ledger.book import Ledger, Writer
from millrace.ledger.display import Display, summary
from millrace.ledger.load import Load, connect, require_topic
from millrace.ledger.spec import Spec
from millrace.paths import stack_name, stack_state
from millrace.plan import Plan, load_plan

RESULTS = "results"
# How much later than the watermark a late event is: late for its hour, too, whatever the clocks.
LATE_MARGIN_SECONDS = 2 * 3600
ACKS = ("all", "1")


def load_command(
    rate: Annotated[float, typer.Option(help="Events a second; of a ramp, at its end.")] = 2000,
    length: Annotated[str, typer.Option("--for", help="Such as 60s, 10m.")] = "60s",
    profile: Annotated[str, typer.Option(help="steady, ramp, burst or wave.")] = "steady",
    acks: Annotated[str, typer.Option(help="all, or 1, which can lose what it got.")] = "all",
    out_of_order: Annotated[float, typer.Option(help="Share some seconds behind.")] = 0.05,
    late: Annotated[float, typer.Option(help="Share older than the jobs' watermark.")] = 0.00002,
    run: Annotated[str, typer.Option(help="A name; by default the time.")] = "",
    topic: Annotated[str, typer.Option(hidden=True)] = lag.TOPIC,
) -> None:
    """Send known traffic at a set rate, and keep a ledger of it for `millrace audit`.

    Ctrl-C ends it early and in order. The last line is the ledger's path.
    """
    if acks not in ACKS:
        raise OperatorError(f"--acks {acks}: expected {' or '.join(ACKS)}")
    console = Console(soft_wrap=True, highlight=False)
    plan = load_plan(stack_name())
    brokers = ",".join(plan.addresses("kafka_broker", "client"))
    producer = connect(brokers, acks)
    require_topic(producer, brokers, topic)
    spec = Spec(
        run=run or f"{datetime.now(UTC):%Y%m%d-%H%M%S}",
        cluster=plan.cluster,
        topic=topic,
        partitions=len(producer.list_topics(topic, timeout=10).topics[topic].partitions),
        acks=acks,
        rate=rate,
        seconds=parse_duration(length),
        profile=profile,
        out_of_order=out_of_order,
        late=late,
        lateness=_watermark(plan) + LATE_MARGIN_SECONDS,
        seed=secrets.randbits(32),
        results_offsets=_ends(plan),
        started_ms=int(1000 * time.time()),
    )
    ledger = Writer(ledgers() / spec.run, spec)
    with _stop_on_signals() as stop, Display(console) as display:
        load = Load(spec, producer, ledger, stop.is_set, display.update)
        load.run()
    console.print(summary(Ledger.open(ledger.path), time.time() - spec.started_ms / 1000))
    print(ledger.path)


def ledgers() -> Path:
    """The folder of the stack's ledgers."""
    return stack_state(stack_name()) / "ledgers"


def _watermark(plan: Plan) -> int:
    return int(plan.shared["spark"]["settings"]["traffic"]["watermark_seconds"])


def _ends(plan: Plan) -> list[int]:
    """Ends of the results topic's partitions."""
    admin: AdminClient = lag.connect(plan)
    partitions = [TopicPartition(RESULTS, p) for p in range(plan.topics[RESULTS].partitions)]
    try:
        answers = admin.list_offsets(
            {partition: OffsetSpec.latest() for partition in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=lag.TIMEOUT,
        )
        return [answers[partition].result(lag.TIMEOUT).offset for partition in partitions]
    except KafkaException as failure:
        raise OperatorError(
            f"can't read the ends of topic {RESULTS}: {failure.args[0].str()}",
            "`millrace status` shows what is down",
        ) from None


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """The first signal ends the run in order, a second one at once."""
    stop = threading.Event()

    def handle(number: int, _: object) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
