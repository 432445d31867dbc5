"""Which windows are counted, in which chunks, and what is refused. Pure; times are naive UTC."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from millrace_jobs.recount.counted import floor
from millrace_jobs.recount.generations import Exclusion, Generation, Offsets, Seen
from millrace_shared.generations import STREAM

# An archive's expiry is due once a day, and a count and its audits take their time.
MARGIN = timedelta(days=1)


class Refused(Exception):
    """It can't be counted, or not now; says why, and what to do. Nothing was changed."""


@dataclass(frozen=True)
class Asked:
    """A count as an operator asks for it.

    Attributes:
        start, end: of the windows' starts; ``end`` isn't included.
        without: a predicate; empty to exclude nothing more than is excluded already.
        closed: count the closed windows, where some of the range are open.
        who: the operator.
    """

    start: datetime
    end: datetime
    without: str
    closed: bool
    who: str


@dataclass(frozen=True)
class Everything:
    """A count of all that the archives surely have; without an ``end``, of all closed windows."""

    end: datetime | None
    without: str
    who: str

    def within(self, start: datetime, end: datetime) -> Asked:
        return Asked(start, end, self.without, closed=True, who=self.who)


def closed_range(
    asked: Asked, grid: timedelta, closed_before: datetime
) -> tuple[datetime, datetime]:
    """The windows that are counted. Raises Refused."""
    for name, moment in (("--from", asked.start), ("--to", asked.end)):
        if (near := floor(moment, grid)) != moment:
            raise Refused(f"{name} is inside a window; say {near}Z or {near + grid}Z")
    if asked.start >= asked.end:
        raise Refused("--to must be later than --from; it isn't included")
    end = min(asked.end, closed_before)
    if asked.start >= end:
        raise Refused(f"all of these windows are open: those before {closed_before}Z are closed")
    if end < asked.end and not asked.closed:
        raise Refused(
            f"windows from {end}Z on are open, and their stream counts them: say --closed to count"
            " those before, or --to; the others can be counted when they are closed"
        )
    return asked.start, end


def kept_since(now: datetime, keep: timedelta) -> datetime:
    """From when on an archive surely has every event.

    Args:
        keep: how long it keeps an event after it was received.
    """
    return now - keep + MARGIN


def require_kept(
    start: datetime, now: datetime, keep: timedelta, since: datetime, stream: str
) -> None:
    """Raises Refused where the archive of a stream may have forgotten some of a range's events.

    Args:
        keep: how long it keeps an event after it was received.
        since: when its table was made; a younger one has forgotten nothing yet.
    """
    oldest = kept_since(now, keep)
    if start < oldest and since < oldest:
        raise Refused(
            f"the archive of {stream} keeps what it received for {keep.days} days: of windows"
            f" before {oldest:%Y-%m-%dT%H:%MZ} it may have forgotten some; say a later --from"
        )


def are_archived(read: Offsets, archived: Offsets) -> bool:
    """Whether archives have all that a job has read."""
    return all(
        archived.get(topic, {}).get(partition, 0) >= offset
        for topic, partitions in read.items()
        for partition, offset in partitions.items()
    )


def exclusions(
    pieces: Iterable[Seen],
    of: Callable[[int], Generation],
    start: datetime,
    end: datetime,
    without: str,
) -> tuple[Exclusion, ...]:
    """What readers don't see is left out of the next count, too, and what is asked for."""
    inherited = [
        one
        for piece in pieces
        if piece.generation != STREAM
        for one in of(piece.generation).exclusions_in(piece.start, piece.end)
    ]
    own = [Exclusion(start, end, without)] if without else []
    ordered = sorted({*inherited, *own}, key=lambda one: (one.start, one.end, one.predicate))
    return tuple(ordered)


def chunks(start: datetime, end: datetime, step: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """A range in order, cut at multiples of a step."""
    while start < end:
        following = min(floor(start, step) + step, end)
        yield start, following
        start = following
