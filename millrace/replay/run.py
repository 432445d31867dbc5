"""A replay from its beginning to its end: source, pace and Kafka together, and what it tells."""

import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from millrace.cluster.kafka import require_topics
from millrace.common.console import Console
from millrace.common.signals import stop_on_signals
from millrace.plan import Plan
from millrace.replay import start
from millrace.replay.display import Display
from millrace.replay.events import Encoder
from millrace.replay.pace import Pace, longest_span
from millrace.replay.pipeline import Pipeline
from millrace.replay.progress import Progress
from millrace.replay.session import Replay
from millrace.replay.source import STDIN, Lines, Source
from millrace.replay.transactions import EventLog, Stopped, connect, last_progress
from millrace.weblog import Reader, format_of


@dataclass(frozen=True)
class ReplayOptions:
    """What the operator asks for.

    ``speed`` None is as fast as is safe; ``shift`` is in hours, None when none was given; without
    a ``format`` the log's own is found out; ``late`` events are sent as well.
    """

    path: str
    speed: float | None = None
    shift: int | None = None
    to_now: bool = False
    run: str = ""
    format: str = ""
    late: bool = False

    def __post_init__(self) -> None:
        """Raises OperatorError for a format that can't be read by."""
        if self.format:
            format_of(self.format)


def replay_log(plan: Plan, options: ReplayOptions) -> bool:
    """A replay that Ctrl-C ends in order; False when it did."""
    console = Console(soft_wrap=True)
    with twice_readable(options.path, options.to_now) as path, stop_on_signals() as stop:
        return replay(replace(options, path=path), Pipeline.of(plan), stop, console)


def replay(
    options: ReplayOptions, pipeline: Pipeline, stop: threading.Event, console: Console
) -> bool:
    """False when the operator stopped it before its end."""
    pace = Pace(options.speed, pipeline.watermark)
    source = Source(options.path)
    source_id = source.identity(options.run)
    try:
        log = _open_log(pipeline, source_id, stop, console)
        recorded = last_progress(pipeline, source_id)
        begin, lines, read = _begin(options, source, recorded, pipeline, console)
        if begin.done:
            console.print(
                f"already replayed on {begin.updated}: {begin.lines:,} lines; nothing to do. "
                "--run NAME sends the log again, as new events"
            )
            return True
        _announce(console, begin)
        encode = Encoder(source_id, begin.shift, pipeline.limits, read)
        with Display(console, begin, source, pace) as display:
            span = longest_span(pipeline.watermark)
            session = Replay(log, encode, pace, begin, span, stop, display.update)
            session.run(lines)
    except Stopped:
        console.print("stopped while Kafka was away; the same command goes on")
        return False
    return _conclude(console, session.progress)


def _open_log(
    pipeline: Pipeline, source_id: str, stop: threading.Event, console: Console
) -> EventLog:
    producer = connect(pipeline.client, source_id)
    topics = pipeline.topics
    require_topics(producer, {topics.events, topics.replay_progress})
    log = EventLog(producer, topics, source_id, stop.is_set, notice=console.print)
    log.open()
    return log


def _begin(
    options: ReplayOptions,
    source: Source,
    recorded: Progress | None,
    pipeline: Pipeline,
    console: Console,
) -> tuple[Progress, Lines, Reader]:
    """Returns where to begin, the lines from there and their reader; ``done`` only if there are
    none."""
    begin = recorded or Progress(source.name, options.run)
    lines = source.lines(begin.lines, begin.offset, pipeline.limits.line_bytes)
    first, lines = start.look_ahead(lines, begin.format or options.format)
    if recorded:
        start.require_same_shift(options.shift, recorded)
        start.require_same_format(options.format, recorded)
        read = Reader(format_of(recorded.format or options.format or "combined"))
        console.print(f"format: {read.format.name}, as before")
    else:
        fit = start.take_format(source.name, options.format, first)
        console.print(start.describe(fit))
        read = Reader(fit.format)
        begin = replace(begin, shift=_shift(options, pipeline, read))
    begin = replace(begin, format=read.format.name, done=begin.done and not first)
    if not options.late and (time := start.first_time(first, read)) is not None:
        start.require_in_time(time, begin.shift, pipeline.traffic_watermark())
    return begin, lines, read


def _shift(options: ReplayOptions, pipeline: Pipeline, read: Reader) -> int:
    if options.to_now:
        return start.shift_to_now(options.path, pipeline.limits.line_bytes, read)
    return options.shift or 0


def _announce(console: Console, begin: Progress) -> None:
    moved = f", moved by {begin.shift} h" if begin.shift else ""
    where = f"going on after line {begin.lines:,} of" if begin.lines else "replaying"
    console.print(f"{where} {begin.source}{moved}")


def _conclude(console: Console, progress: Progress) -> bool:
    if progress.done:
        text = f"done: all {progress.lines:,} lines are in Kafka, {progress.malformed:,} malformed"
    else:
        text = f"stopped after line {progress.lines:,}; the same command goes on from there"
    console.print(text)
    return progress.done


@contextmanager
def twice_readable(path: str, twice: bool = True) -> Iterator[str]:
    """To find a log's end it is read before it is replayed; what is piped is kept on disk."""
    if path != STDIN or not twice:
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="millrace-stdin-") as spool:
        shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.flush()
        yield spool.name
