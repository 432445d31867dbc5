"""Slots become sessions. Pure.

A slot is a row of a job: what one key did in one window. No two events in it are as far apart as
the gap that ends a session, so it is in one session, and a session is a run of slots.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from operator import add, attrgetter
from typing import Any, NamedTuple

from millrace_api.kinds import native
from millrace_api.outputs import Output
from millrace_api.ranges import MINUTE, floor

# What a run has of two neighbours' values, the earlier one's first.
JOINED: dict[str, Callable[[Any, Any], Any]] = {
    "sum": add,
    "min": min,
    "max": max,
    "first": lambda earlier, _: earlier,
    "last": lambda _, later: later,
}
ABSENT_IS_NEUTRAL = {"sum", "min", "max"}


class Session(NamedTuple):
    """One slot, or a run of them. ``values`` are the columns that aren't key, start or end."""

    key: tuple[Any, ...]
    start: datetime
    end: datetime
    values: tuple[Any, ...]


class Minute(NamedTuple):
    """The sessions that ended for want of a further event in this minute."""

    start: datetime
    closed: int
    bounced: int
    mean_seconds: float
    mean_pages: float


class Merger:
    """How one job's slots become sessions, with all their values or with some."""

    def __init__(self, output: Output, values: Collection[str] | None = None) -> None:
        """``values`` are the columns to have beside key, start and end; without it, all.

        Raises ValueError for a job whose rows are no slots of sessions.
        """
        if output.sessions is None:
            raise ValueError(f"job {output.job}: its rows are no slots of sessions")
        merges = output.sessions.merges
        columns = {merge: name for name, merge in merges.items()}
        self._start, self._end = columns["start"], columns["end"]
        self._names = [
            name
            for name, merge in merges.items()
            if merge not in ("start", "end") and (values is None or name in values)
        ]
        self._kinds = [merges[name] for name in self._names]
        self._key = list(output.key)
        self._key_of = _without_dates if "date" in output.key.values() else tuple
        self._output = output
        self.pages_column = output.sessions.pages
        self.gap = timedelta(seconds=output.sessions.gap_seconds)
        self.columns = [*self._key, self._start, self._end, *self._names]

    def only(self, *values: str) -> "Merger":
        """The same job's, with these values alone: fewer to read, hold and join."""
        return Merger(self._output, values)

    def slots(self, rows: Iterable[Sequence[Any]]) -> list[Session]:
        """Of rows with ``columns``, whose times are UTC without saying so."""
        keys = len(self._key)
        return [
            Session(
                self._key_of(row[:keys]),
                row[keys].replace(tzinfo=UTC),
                row[keys + 1].replace(tzinfo=UTC),
                tuple(row[keys + 2 :]),
            )
            for row in rows
        ]

    def merge(self, parts: Iterable[Session]) -> list[Session]:
        """Sessions of slots, or of runs of them; of one key no two overlap in time."""
        by_key: dict[tuple[Any, ...], list[Session]] = {}
        for part in parts:
            by_key.setdefault(part.key, []).append(part)
        return [one for runs in by_key.values() for one in self._joined_runs(runs)]

    def closes(self, session: Session) -> datetime:
        """The first moment at which an event of its key begins another session."""
        return session.end + self.gap

    def may_begin_before(self, session: Session, edge: datetime) -> bool:
        """Whether events before the edge, which weren't read, may belong to it."""
        return session.start - edge < self.gap

    def bounced(self, session: Session) -> bool:
        """Whether it had a single page at most; what an open one has yet to show."""
        return self.pages(session) <= 1

    def pages(self, session: Session) -> int:
        return session.values[self._names.index(self.pages_column)] or 0

    def by_minute(self, sessions: Iterable[Session]) -> list[Minute]:
        """By the minute in which they closed, oldest first."""
        minutes: dict[datetime, list[Session]] = {}
        for session in sessions:
            minutes.setdefault(floor(self.closes(session), MINUTE), []).append(session)
        return [self._summary(start, minutes[start]) for start in sorted(minutes)]

    def named(self, session: Session) -> dict[str, Any]:
        """A session's columns by their names, ``start`` and ``end`` by these."""
        return {
            **dict(zip(self._key, session.key, strict=True)),
            "start": session.start,
            "end": session.end,
            **dict(zip(self._names, session.values, strict=True)),
        }

    def _joined_runs(self, runs: list[Session]) -> list[Session]:
        """Of one key."""
        if len(runs) == 1:
            return runs
        runs.sort(key=attrgetter("start"))
        merged = runs[:1]
        for run in runs[1:]:
            if run.start - merged[-1].end < self.gap:
                merged[-1] = self._join(merged[-1], run)
            else:
                merged.append(run)
        return merged

    def _join(self, earlier: Session, later: Session) -> Session:
        pairs = zip(self._kinds, earlier.values, later.values, strict=True)
        values = tuple(_joined(kind, one, other) for kind, one, other in pairs)
        return Session(earlier.key, earlier.start, later.end, values)

    def _summary(self, start: datetime, sessions: list[Session]) -> Minute:
        count = len(sessions)
        seconds = sum((one.end - one.start).total_seconds() for one in sessions)
        return Minute(
            start,
            closed=count,
            bounced=sum(map(self.bounced, sessions)),
            mean_seconds=seconds / count,
            mean_pages=sum(map(self.pages, sessions)) / count,
        )


def _without_dates(key: Iterable[Any]) -> tuple[Any, ...]:
    """Without the driver's own kind of them."""
    return tuple(map(native, key))


def _joined(kind: str, earlier: Any, later: Any) -> Any:
    if kind in ABSENT_IS_NEUTRAL and (earlier is None or later is None):
        return later if earlier is None else earlier
    return JOINED[kind](earlier, later)
