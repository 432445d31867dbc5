"""``millrace replay``: its options; what it needs is imported when it runs."""

from typing import Annotated

import typer

from millrace.common.errors import OperatorError
from millrace.common.exits import Exit
from millrace.common.paths import stack_name
from millrace.plan import load_plan

FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="STRING",
        help="Your server's own LogFormat or log_format, where it isn't a known one.",
    ),
]


def replay_command(
    log: Annotated[str, typer.Argument(metavar="FILE|-", help="Plain or gzipped; - is stdin.")],
    speed: Annotated[
        str, typer.Option(help="1x: as it happened; 60x: a minute per second; max: what is safe.")
    ] = "max",
    shift: Annotated[
        str | None, typer.Option(help="Move all events in time by whole days or hours: 28d, -6h.")
    ] = None,
    shift_to_now: Annotated[
        bool, typer.Option("--shift-to-now", help="Move the log so that it ends within this hour.")
    ] = False,
    run: Annotated[str, typer.Option(help="Under a new name, the same log is new events.")] = "",
    log_format: FormatOption = "",
    late: Annotated[
        bool,
        typer.Option("--late", help="Though the jobs are done with its time: for the archive."),
    ] = False,
) -> None:
    """Send a web log of Apache, nginx or Caddy into the pipeline, each line once.

    The first lines show its format, or --format gives it. Stop it anywhere, by Ctrl-C or kill -9,
    and run the same command again: it goes on.

    millrace replay access.log --speed 60x --shift-to-now
    """
    from millrace.replay.pace import parse_speed
    from millrace.replay.run import ReplayOptions, replay_log
    from millrace.replay.start import parse_shift

    if shift is not None and shift_to_now:
        raise OperatorError("--shift and --shift-to-now exclude each other")
    hours = None if shift is None else parse_shift(shift)
    asked = ReplayOptions(log, parse_speed(speed), hours, shift_to_now, run, log_format, late)
    if not replay_log(load_plan(stack_name()), asked):
        raise typer.Exit(Exit.STOPPED)
