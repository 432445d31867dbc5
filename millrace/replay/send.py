"""``millrace send``: a web log's lines as events over HTTP, each batch until it is acknowledged."""

from typing import Annotated

import typer

from millrace.common.paths import stack_name
from millrace.plan import Plan, load_plan

BATCH = 500  # events


def send_command(
    log: Annotated[str, typer.Argument(metavar="FILE|-", help="Plain or gzipped; - is stdin.")],
) -> None:
    """Send a web log's lines to the collector, as they come.

    A line is the same event whenever it is sent. What is no request is left out, and counted.
    """
    sent, left_out = send_log(load_plan(stack_name()), log)
    print(f"{sent:,} events acknowledged" + (f"; {left_out:,} lines left out" if left_out else ""))


def send_log(plan: Plan, log: str) -> tuple[int, int]:
    """How many events were acknowledged, and how many lines are none. Raises OperatorError."""
    from millrace.cluster.collector import Sender
    from millrace.replay.events import Encoder
    from millrace.replay.pipeline import STREAM, Pipeline
    from millrace.replay.source import Source

    limits = Pipeline.of(plan).limits
    source, sender = Source(log), Sender.of(plan, STREAM)
    encode = Encoder(source.identity(""), 0, limits)
    sent = left_out = 0
    batch: list[bytes] = []
    for line in source.lines(0, 0, limits.line_bytes):
        if line:
            message = encode(line)
            if message.time is None:
                left_out += 1
            else:
                batch.append(message.value)
        if batch and (len(batch) >= BATCH or line is None):
            sender.send(batch)
            sent, batch = sent + len(batch), []
    if batch:
        sender.send(batch)
    return sent + len(batch), left_out
