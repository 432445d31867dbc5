"""``millrace advertise``: sends impressions and clicks, and says what has to come of them.

What it needs is imported when it runs, not for each command.
"""

import secrets
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.common.console import Console
from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.common.tables import Answer, Column, JsonOption, Table, iso, tell
from millrace.plan import Plan, load_plan

if TYPE_CHECKING:
    from millrace.ledger.advertisements import Record, Truth

POLL_SECONDS = 0.05
MINUTE = timedelta(minutes=1)


def advertise_command(
    rate: Annotated[float, typer.Option(min=0.1, help="Impressions a second.")] = 100,
    length: Annotated[str, typer.Option("--for", help="Such as 60s, 10m.")] = "60s",
    as_json: JsonOption = False,
) -> None:
    """Send impressions and clicks at a set rate, and say what has to come of them by campaign.

    Each is sent once, to the topics that the job `attribution` reads. Ctrl-C ends it early.

    millrace advertise --rate 100 --for 60s
    """
    from millrace.common.signals import stop_on_signals

    with stop_on_signals() as stop:
        sent = advertise(load_plan(stack_name()), rate, parse_duration(length), stop.is_set)
    tell(campaigns_view(sent), as_json, Console(soft_wrap=True))


def advertise(
    plan: Plan, rate: float, seconds: float, stopping: Callable[[], bool]
) -> dict[str, Any]:
    """``from`` and ``to``, whole minutes, and ``campaigns``: the figures of each in between.

    Raises OperatorError when not all was acknowledged, or a topic is missing.
    """
    from millrace.cluster import kafka
    from millrace.ledger.advertisements import CLICKS, IMPRESSIONS, Truth, advertisements
    from millrace.ledger.load import connect

    topics = {stream: plan.streams[stream].topic for stream in (IMPRESSIONS, CLICKS)}
    producer = connect(kafka.fast_failover_client(plan), "all")
    kafka.require_topics(producer, set(topics.values()))
    seed, started_ms = secrets.randbits(32), int(1000 * time.time())
    truth = Truth()
    send(
        producer,
        topics,
        f"{seed:08x}",
        started_ms,
        advertisements(seed, rate, seconds),
        truth,
        stopping,
    )
    start = datetime.fromtimestamp(started_ms / 1000, UTC).replace(second=0, microsecond=0)
    end = datetime.now(UTC).replace(second=0, microsecond=0) + MINUTE
    return {"from": iso(start), "to": iso(end), "campaigns": truth.as_json()}


def send(
    producer: Any,
    topics: dict[str, str],
    run: str,
    started_ms: int,
    records: "Iterable[Record]",
    truth: "Truth",
    stopping: Callable[[], bool],
) -> None:
    """Sends each record when it is due; ``truth`` has counted what was acknowledged.

    Raises OperatorError when something wasn't: what has to come of it is not known then.
    """
    lost: list[str] = []

    def delivered(record: "Record", error: Any, _: Any) -> None:
        if error:
            lost.append(str(error))
        else:
            truth.count(record)

    for record in records:
        while (ahead := started_ms / 1000 + record.ms / 1000 - time.time()) > 0 and not stopping():
            producer.poll(min(ahead, POLL_SECONDS))
        if stopping():
            break
        key, value = record.message(run, started_ms)
        producer.produce(topics[record.stream], value, key, on_delivery=partial(delivered, record))
    while len(producer):
        producer.poll(POLL_SECONDS)
    if lost:
        raise OperatorError(
            f"{len(lost)} impressions or clicks were not acknowledged: {lost[0]}",
            "they may have come through or not; `millrace audit --job` compares what came",
        )


def campaigns_view(sent: dict[str, Any]) -> Answer:
    """A line for each campaign."""
    names = next(iter(sent["campaigns"].values()))
    rows = [{"campaign": name, **figures} for name, figures in sent["campaigns"].items()]
    columns = [*map(Column, ("campaign", *names))]
    return Answer(sent, Table(f"from {sent['from']} to {sent['to']}", columns, rows))
