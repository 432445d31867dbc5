"""``millrace load``: its options. What it needs is imported when it runs, not for each command."""

from typing import Annotated

import typer

from millrace.common.console import Console
from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.common.tables import JsonOption, tell
from millrace.ledger import IngestPath
from millrace.plan import load_plan

ACKS = ("all", "1")
OUT_OF_ORDER, LATE = 0.05, 0.00002  # shares


def load_command(
    rate: Annotated[float, typer.Option(help="Events a second; of a ramp, at its end.")] = 2000,
    length: Annotated[str, typer.Option("--for", help="Such as 60s, 10m.")] = "60s",
    profile: Annotated[str, typer.Option(help="steady, ramp, burst or wave.")] = "steady",
    acks: Annotated[str, typer.Option(help="all, or 1, which can lose what it got.")] = "all",
    out_of_order: Annotated[float, typer.Option(help="Share some seconds behind.")] = OUT_OF_ORDER,
    late: Annotated[float, typer.Option(help="Share older than the jobs' watermark.")] = LATE,
    pages: Annotated[int, typer.Option(help="How many URLs there are.")] = 200,
    run: Annotated[str, typer.Option(help="A name; by default the time.")] = "",
    through: Annotated[
        IngestPath, typer.Option(help="By its own protocol, or over HTTP.")
    ] = "kafka",
    topic: Annotated[str, typer.Option(hidden=True)] = "",
    as_json: JsonOption = False,
) -> None:
    """Send known traffic at a set rate, and keep a ledger of it for `millrace audit`.

    Ctrl-C ends it early and in order. The last line is the ledger's path.

    millrace load --rate 2000 --for 60s
    """
    if acks not in ACKS:
        raise OperatorError(f"--acks {acks}: expected {' or '.join(ACKS)}")
    if through == "collector" and (topic or acks != "all"):
        raise OperatorError("--through collector: it chooses the topic, and acks=all")
    from millrace.ledger.session import LoadOptions, run_load

    options = LoadOptions(
        run, rate, parse_duration(length), profile, acks, out_of_order, late, topic, pages
    )
    plan, by_collector = load_plan(stack_name()), through == "collector"
    progress = Console(stderr=as_json, soft_wrap=True)
    done = run_load(plan, options, progress, through_collector=by_collector)
    tell(done, as_json, Console(soft_wrap=True))
