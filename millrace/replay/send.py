"""``millrace send``: a web log's lines as events over HTTP, each batch until it is acknowledged."""

from typing import Annotated

import typer

from millrace.common.console import Console
from millrace.common.paths import stack_name
from millrace.plan import Plan, load_plan
from millrace.replay.command import FormatOption

BATCH = 500  # events
console = Console(soft_wrap=True)


def send_command(
    log: Annotated[str, typer.Argument(metavar="FILE|-", help="Plain or gzipped; - is stdin.")],
    log_format: FormatOption = "",
) -> None:
    """Send a web log's lines to the collector, as they come.

    A line is the same event whenever it is sent. What is no request is left out, and counted.

    tail -n 0 -F access.log | millrace send -
    """
    sent, left_out = send_log(load_plan(stack_name()), log, log_format)
    left = f"; {left_out:,} lines left out" if left_out else ""
    console.print(f"{sent:,} events acknowledged{left}")


def send_log(plan: Plan, log: str, log_format: str = "") -> tuple[int, int]:
    """Returns how many events were acknowledged, and how many lines are none. Raises
    OperatorError."""
    from millrace.cluster.collector import Sender
    from millrace.replay import start
    from millrace.replay.events import Encoder
    from millrace.replay.pipeline import STREAM, Pipeline
    from millrace.replay.source import Source
    from millrace.weblog import Reader

    limits = Pipeline.of(plan).limits
    source, sender = Source(log), Sender.of(plan, STREAM)
    first, lines = start.look_ahead(source.lines(0, 0, limits.line_bytes), log_format)
    if not first:
        return 0, 0
    fit = start.take_format(source.name, log_format, first)
    console.print(start.describe(fit))
    encode = Encoder(source.identity(""), 0, limits, Reader(fit.format))
    sent = left_out = 0
    batch: list[bytes] = []
    for line in lines:
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
