"""Ranges of event time: checked, listed by partition, and taken apart into windows. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from itertools import pairwise

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
# What may be asked for. Around it there is room for what is read before and after a range.
EARLIEST = datetime(1000, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 1, 1, tzinfo=UTC)


class Window(StrEnum):
    """The sizes of window that the job keeps."""

    MINUTE = "1m"
    HOUR = "1h"

    @property
    def length(self) -> timedelta:
        return MINUTE if self is Window.MINUTE else HOUR


@dataclass(frozen=True)
class Span:
    """A half-open range ``[start, end)`` of UTC time."""

    start: datetime
    end: datetime

    @property
    def length(self) -> timedelta:
        return self.end - self.start

    def days(self) -> Iterator[date]:
        """Every UTC day that the span touches: Cassandra's partitions of windows."""
        return (day.date() for day in steps(self, DAY))

    def hours(self) -> Iterator[datetime]:
        """The start of every hour that the span touches: Cassandra's partitions of pages."""
        return steps(self, HOUR)


@dataclass(frozen=True)
class Piece:
    """A part of a span that windows of one size cover exactly."""

    window: Window
    span: Span

    @property
    def windows(self) -> int:
        return self.span.length // self.window.length


class BadParameter(ValueError):
    """A parameter that can't be answered; ``parameter`` names it."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


def floor(moment: datetime, step: timedelta) -> datetime:
    """The last multiple of ``step`` since 1970 that isn't after the moment."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return moment - (moment - epoch) % step


def steps(span: Span, step: timedelta) -> Iterator[datetime]:
    """Every multiple of ``step`` whose stretch the span touches."""
    moment = floor(span.start, step)
    while moment < span.end:
        yield moment
        moment += step


def parse_moment(parameter: str, text: str) -> datetime:
    """An ISO 8601 moment with a zone, in UTC. Raises BadParameter."""
    example = "for example 2015-05-17T10:00:00Z"
    try:
        # A '+' that the client forgot to escape arrives as a space.
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        raise BadParameter(parameter, f"{short(text)} is not an ISO 8601 time, {example}") from None
    if moment.tzinfo is None:
        why = f"{short(text)} has no time zone; end it with Z for UTC, {example}"
        raise BadParameter(parameter, why)
    try:
        utc = moment.astimezone(UTC)
    except OverflowError:
        utc = None
    if utc is None or not EARLIEST <= utc <= LATEST:
        why = f"{short(text)} is out of range, which is from {iso(EARLIEST)} to {iso(LATEST)}"
        raise BadParameter(parameter, why)
    return utc


def iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def short(text: str, most: int = 60) -> str:
    """A text from outside, as an answer or a log repeats it."""
    return repr(text if len(text) <= most else f"{text[:most]}…")


def parse_span(start: str, end: str, *, step: timedelta, longest: timedelta) -> Span:
    """The span that the parameters ``from`` and ``to`` give, its ends multiples of ``step``.

    Raises BadParameter.
    """
    span = Span(parse_moment("from", start), parse_moment("to", end))
    for parameter, moment in (("from", span.start), ("to", span.end)):
        if (near := floor(moment, step)) != moment:
            unit = "minute" if step == MINUTE else "hour"
            raise BadParameter(parameter, f"must be a whole {unit}, for example {iso(near)}")
    if span.start >= span.end:
        raise BadParameter("to", "must be later than 'from' (the range is from ≤ time < to)")
    if span.length > longest:
        most = f"the range may have {longest.days} days at most"
        far = iso(span.start + longest)
        raise BadParameter("to", f"{most}: ask up to {far}, and go on from there")
    return span


def cut(span: Span, step: timedelta) -> list[Span]:
    """The span, cut at each multiple of ``step``: by days, at each midnight (UTC)."""
    cuts = [span.start, *(moment for moment in steps(span, step) if moment > span.start), span.end]
    return [Span(start, end) for start, end in pairwise(cuts)]


def decompose(span: Span) -> list[Piece]:
    """The fewest pieces that cover the span exactly: whole hours, and minutes at its edges."""
    first_hour = floor(span.start + HOUR - timedelta.resolution, HOUR)
    last_hour = floor(span.end, HOUR)
    if first_hour >= last_hour:
        return [Piece(Window.MINUTE, span)]
    pieces = [
        Piece(Window.MINUTE, Span(span.start, first_hour)),
        Piece(Window.HOUR, Span(first_hour, last_hour)),
        Piece(Window.MINUTE, Span(last_hour, span.end)),
    ]
    return [piece for piece in pieces if piece.span.start < piece.span.end]
