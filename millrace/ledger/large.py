"""``millrace load-large``: records that are nothing, compressed to little, for a drill and a trial.

A broker counts compressed bytes, so 300 MB of one letter are a record of some KB to it, and a
record of 300 MB to whoever reads it.
"""

from typing import Annotated

import typer

from millrace import completion
from millrace.common.consent import YesOption, agree
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.plan import load_plan

MEGABYTE = 1_000_000
LARGEST_REQUEST = 1_000_000_000  # librdkafka's own bound
SEND_SECONDS = 120.0
CODECS = ("gzip", "zstd")


def load_large_command(
    megabytes: Annotated[int, typer.Option(min=1, max=900, help="Of each, when read.")] = 30,
    times: Annotated[int, typer.Option(min=1, help="How many, each in a batch of its own.")] = 1,
    codec: Annotated[str, typer.Option(help="gzip or zstd.")] = "gzip",
    stream: Annotated[
        str | None,
        typer.Option(help="By default the one that jobs read.", autocompletion=completion.streams),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Send records that are no events and large once they are read, for a drill.

    Prints where each stands, as TOPIC-PARTITION-OFFSET.

    millrace load-large --megabytes 300 --codec zstd
    """
    from millrace.cluster import kafka

    if codec not in CODECS:
        raise OperatorError(f"--codec {codec}: expected {' or '.join(CODECS)}")
    plan = load_plan(stack_name())
    name = stream or plan.spark.settings.common.stream
    if name not in plan.streams:
        raise OperatorError(f"no stream is called {name}; there are {', '.join(plan.streams)}")
    size = f"{times} × {megabytes} MB"
    agree(f"Send {size} of no use to {plan.environment}? Jobs may fail by it.", yes=yes)
    settings = {"compression.type": codec, "message.max.bytes": LARGEST_REQUEST, "linger.ms": 0}
    producer = kafka.producer(kafka.default_client(plan) | settings)
    places: list[str] = []

    def delivered(error: object, message: kafka.Message) -> None:
        if error is None:
            places.append(f"{message.topic()}-{message.partition()}-{message.offset()}")

    for _ in range(times):
        producer.produce(
            plan.streams[name].topic, b"a" * (megabytes * MEGABYTE), on_delivery=delivered
        )
        producer.flush(SEND_SECONDS)
    if len(places) < times:
        raise OperatorError(f"Kafka took {len(places)} of {times} records", "`millrace status`")
    Console(soft_wrap=True).print("\n".join(places))
