"""What is settled before the first line is sent: the shift, and whether to send at all."""

import math
import re
import time
from datetime import UTC, datetime
from itertools import chain

from millrace.common.errors import OperatorError
from millrace.replay.progress import HOUR, Progress
from millrace.replay.source import Lines, Source
from millrace.weblog import Malformed, parse_line

DAY = 24 * HOUR
LOOK_AHEAD_LINES = 1000  # in which a log must show that it is one
LOOK_AHEAD_BYTES = 16 * 1024 * 1024


class TooLate(OperatorError):
    """The jobs are done with the time that the log is of."""


def parse_shift(text: str) -> int:
    """Hours in ``28d`` or ``-6h``. Whole ones: an hourly window of the log stays one."""
    match = re.fullmatch(r"(-?\d+)([dh])", text)
    if match is None:
        raise OperatorError(f"--shift {text}: expected whole days or hours, such as 28d or -6h")
    return int(match[1]) * (24 if match[2] == "d" else 1)


def look_ahead(lines: Lines) -> tuple[int | None, int, Lines]:
    """The time of the next request if there is one, how many lines it took, and all lines again."""
    seen = []
    size = 0
    for line in lines:
        if line is None:
            continue
        seen.append(line)
        size += len(line.data)
        try:
            return parse_line(line.data).time, len(seen), chain(seen, lines)
        except Malformed:
            if len(seen) == LOOK_AHEAD_LINES or size > LOOK_AHEAD_BYTES:
                break
    return None, len(seen), chain(seen, lines)


def require_log(name: str, first: int | None, seen: int) -> None:
    """Refuses a new source that shows no request: garbage is cheaper to refuse than to send."""
    if first is not None:
        return
    if not seen:
        raise OperatorError(f"{name} is empty")
    raise OperatorError(
        f"{name} is no web log: none of its first {seen:,} lines is in combined format",
        'expected: ADDRESS - USER [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1234 '
        '"REFERRER" "USER AGENT"',
    )


def shift_to_now(path: str, line_bytes: int) -> int:
    """Hours that move the log's latest request into the past hour."""
    source = Source(path)
    latest = None
    for line in source.lines(0, 0, line_bytes):  # all: a log isn't strictly in order
        try:
            when = parse_line(line.data).time if line else None
        except Malformed:
            continue
        if when is not None and (latest is None or when > latest):
            latest = when
    if latest is None:
        raise OperatorError(f"{source.name} has no line in combined format")
    return int(time.time() - latest) // HOUR


def require_same_shift(asked: int | None, progress: Progress) -> None:
    """A source keeps the shift it began with: half a log in another month is no log."""
    if asked not in (None, progress.shift):
        raise OperatorError(
            f"this replay began with a shift of {progress.shift} h and can't go on with {asked} h",
            "--run NAME replays the log once more, as new events",
        )


def require_in_time(first: int, shift: int, watermark: datetime | None) -> None:
    """Refuses to send what the jobs would only count as dropped."""
    event_time = first + shift * HOUR
    if watermark is None or event_time >= watermark.timestamp():
        return
    days = math.ceil((watermark.timestamp() - first) / DAY)
    raise TooLate(
        f"too late: the jobs are done with everything before {watermark:%Y-%m-%d %H:%M} UTC, and "
        f"the next event is of {datetime.fromtimestamp(event_time, UTC):%Y-%m-%d %H:%M} UTC",
        "--shift-to-now sends the log as today's traffic; "
        f"--shift {days}d is the least that is not late (for a log already begun add --run NAME)",
    )
