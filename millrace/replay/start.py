"""What is settled before the first line is sent: format, shift, and whether to send at all."""

import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import chain

from millrace.common.errors import OperatorError
from millrace.replay.progress import HOUR, Progress
from millrace.replay.source import Line, Lines, Source
from millrace.weblog import KNOWN, Fit, Malformed, Reader, detect, fit, fits, format_of

DAY = 24 * HOUR
LOOK_AHEAD_LINES = 1000  # in which a log must show that it is one
LOOK_AHEAD_BYTES = 16 * 1024 * 1024
LOOK_AHEAD_SECONDS = 2.0  # of a log that grows meanwhile
LEAST_SHARE = 0.1  # of these lines that are requests
SHOWN_BYTES = 200  # of a line that isn't read
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
ONCE_MORE = "--run NAME replays the log once more, as new events"


class TooLate(OperatorError):
    """The jobs are done with the time that the log is of."""


def parse_shift(text: str) -> int:
    """Hours in ``28d`` or ``-6h``. Whole ones: an hourly window of the log stays one."""
    match = re.fullmatch(r"(-?\d+)([dh])", text)
    if match is None:
        raise OperatorError(f"--shift {text}: expected whole days or hours, such as 28d or -6h")
    return int(match[1]) * (24 if match[2] == "d" else 1)


def look_ahead(
    lines: Lines, asked: str, clock: Callable[[], float] = time.monotonic
) -> tuple[list[bytes], Lines]:
    """The first lines, by which a log's format is told, and all lines again.

    There are fewer of a log that grows while it is read: as soon as one is a request, the others
    aren't waited for.
    """
    formats = (format_of(asked), *KNOWN) if asked else KNOWN
    seen, size, until = list[Line](), 0, clock() + LOOK_AHEAD_SECONDS
    has_request = False
    for line in lines:
        if line is not None:
            seen.append(line)
            size += len(line.data)
            has_request = has_request or any(fits(one, line.data) for one in formats)
        if len(seen) == LOOK_AHEAD_LINES or size > LOOK_AHEAD_BYTES:
            break
        if has_request and (line is None or clock() > until):
            break
    return [line.data for line in seen], chain(seen, lines)


def take_format(name: str, asked: str, first: Sequence[bytes]) -> Fit:
    """Returns how the log's first lines fit the format that was asked for, else the one they are
    in.

    Refuses a log that shows next to no request: garbage is cheaper to refuse than to send.
    """
    if not first:
        raise OperatorError(f"{name} is empty")
    found = fit(format_of(asked), first) if asked else detect(first)
    least = 1 if asked else len(first) * LEAST_SHARE
    if found.read < least or (asked and not found.fitting):
        raise _no_log(name, asked, found)
    return found


def _no_log(name: str, asked: str, found: Fit) -> OperatorError:
    of_first = f"of its first {found.lines:,} lines fit"
    if asked:
        message = f"{name} isn't in the format {asked}: {found.fitting:,} {of_first}"
        tried = "tried: this format"
    else:
        message = f"{name} is no web log in a known format: {found.read:,} {of_first}"
        tried = f"tried: {', '.join(one.name for one in KNOWN)}"
    if asked and found.others:
        (other, count), *_ = found.others.most_common()
        return OperatorError(message, f"{count:,} lines fit {other}: leave --format out")
    misfit = found.misfit or b""
    message += f". The first that doesn't: {_as_text(misfit)}"
    if misfit.startswith(UTF_16):
        return OperatorError(message, "it is UTF-16: `iconv -f UTF-16 -t UTF-8` makes it UTF-8")
    return OperatorError(
        message,
        f"{tried}. --format 'STRING' takes your server's own, as its LogFormat (Apache) or "
        "log_format (nginx) has it; docs/replay.md",
    )


def _as_text(line: bytes) -> str:
    """The beginning of a line, with what isn't printed in escapes."""
    text = line[:SHOWN_BYTES].decode(errors="backslashreplace")
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
    return shown + ("…" if len(line) > SHOWN_BYTES else "")


def describe(found: Fit) -> str:
    """The line that says which format was taken, and how well it fits."""
    others = "".join(f", {count:,} {name}" for name, count in found.others.most_common())
    none = found.lines - found.read
    others += f", {none:,} none" if found.others and none else ""
    return (
        f"format: {found.format.name} ({found.fitting:,} of the first {found.lines:,} lines fit"
        f"{others})"
    )


def first_time(first: Iterable[bytes], read: Reader) -> int | None:
    """The time of the first request among the lines."""
    for line in first:
        try:
            return read(line).time
        except Malformed:
            continue
    return None


def shift_to_now(path: str, line_bytes: int, read: Reader) -> int:
    """Hours that move the log's latest request into the past hour."""
    source = Source(path)
    latest = None
    for line in source.lines(0, 0, line_bytes):  # all: a log isn't strictly in order
        try:
            when = read(line.data).time if line else None
        except Malformed:
            continue
        if when is not None and (latest is None or when > latest):
            latest = when
    if latest is None:
        raise OperatorError(f"{source.name} has no line in the format {read.format.name}")
    return int(time.time() - latest) // HOUR


def require_same_shift(asked: int | None, progress: Progress) -> None:
    """A source keeps the shift it began with: half a log in another month is no log."""
    if asked not in (None, progress.shift):
        raise OperatorError(
            f"this replay began with a shift of {progress.shift} h and can't go on with {asked} h",
            ONCE_MORE,
        )


def require_same_format(asked: str, progress: Progress) -> None:
    """A source keeps its format, too: its visitors are the same ones to its end."""
    if asked and progress.format and asked != progress.format:
        raise OperatorError(
            f"this replay began with the format {progress.format} and can't go on with {asked}",
            ONCE_MORE,
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
        "--late sends it to the archive, from which `millrace reconcile` counts it; "
        "--shift-to-now sends it as today's traffic; "
        f"--shift {days}d is the least that is not late (for a log already begun add --run NAME)",
    )
