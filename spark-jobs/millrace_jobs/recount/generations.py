"""What a generation of rows is counted of, and whose rows readers see, as Cassandra has both.

Both are changed by compare-and-set: a change says of which revision it knows. Times are naive, in
UTC, as Spark has them; an overlay's have their zone.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from itertools import pairwise
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace_jobs.sinks.cassandra import Tables
from millrace_shared.generations import NONE, OVERLAY, STREAM, Layer, Overlay

Offsets = Mapping[str, Mapping[str, int]]  # topic → partition → the first one that isn't counted
RECORD = "SELECT content, revision FROM {keyspace}.generations WHERE rows = ? AND generation = ?"
UNRESOLVED = "UNRESOLVED_COLUMN"


class Outrun(Exception):
    """Somebody else has changed it meanwhile; says what."""


@dataclass(frozen=True)
class Terms:
    """Which events are counted: those before ``ends``, but for those of which one of the predicates
    in ``without`` is true. By default all."""

    ends: Offsets | None = None
    without: tuple[str, ...] = ()

    def of(self, events: DataFrame, topic: str) -> DataFrame:
        """The events of a topic that are counted. ``NOT predicate`` would drop those of which it is
        null."""
        excluded = self._is_excluded(events)
        inside = events.where(self._is_before(topic))
        return inside if excluded is None else inside.where(~excluded)

    def excluded(self, events: DataFrame, topic: str) -> DataFrame:
        """Those that are left out by a predicate."""
        excluded = self._is_excluded(events)
        wanted = F.lit(False) if excluded is None else excluded
        return events.where(self._is_before(topic)).where(wanted)

    def since(self, events: DataFrame, topic: str) -> DataFrame:
        """Those that were archived after the count was begun."""
        return events.where(~self._is_before(topic))

    def _is_excluded(self, events: DataFrame) -> Column | None:
        said = [text for text in self.without if is_said_of(text, events)]
        if not said:
            return None
        each = [F.coalesce(F.expr(text), F.lit(False)) for text in said]
        return reduce(Column.__or__, each)

    def _is_before(self, topic: str) -> Column:
        if self.ends is None:
            return F.lit(True)
        before = [
            (F.col("partition") == int(partition)) & (F.col("offset") < end)
            for partition, end in self.ends.get(topic, {}).items()
        ]
        return reduce(Column.__or__, before, F.lit(False))


ALL = Terms()


def is_said_of(predicate: str, events: DataFrame) -> bool:
    """Whether a stream has the fields that a predicate is about: of several that are joined, one
    may have them. Raises AnalysisException for what is wrong with it otherwise."""
    try:
        events.select(F.expr(predicate))
    except AnalysisException as error:
        if UNRESOLVED in (error.getCondition() or ""):
            return False
        raise
    return True


@dataclass(frozen=True)
class Exclusion:
    """Of windows that start in a range, ``end`` not included."""

    start: datetime
    end: datetime
    predicate: str


@dataclass(frozen=True)
class Generation:
    """A count of the windows that start in a range, ``end`` not included.

    Attributes:
        asked: the end that was asked for; windows from ``end`` to there were open.
        done: windows that start before it are stored.
        ends: events before these offsets are counted.
        code: the version of the application that counts.
        version: of the rows that its newest run writes.
        since: when it was begun; ``who`` by.
    """

    number: int
    start: datetime
    end: datetime
    asked: datetime
    done: datetime
    ends: Offsets
    exclusions: tuple[Exclusion, ...]
    code: str
    version: int
    since: datetime
    who: str
    revision: int = 0

    @property
    def is_done(self) -> bool:
        return self.done >= self.end

    def parts(self, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime, Terms]]:
        """A range in parts, each with the terms on which all its windows are counted."""
        edges = {edge for one in self.exclusions for edge in (one.start, one.end)}
        cuts = [start, *sorted(edge for edge in edges if start < edge < end), end]
        for first, last in pairwise(cuts):
            without = tuple(
                one.predicate for one in self.exclusions if one.start <= first < one.end
            )
            yield first, last, Terms(self.ends, without)

    def exclusions_in(self, start: datetime, end: datetime) -> Iterator[Exclusion]:
        for one in self.exclusions:
            if one.start < end and start < one.end:
                yield replace(one, start=max(one.start, start), end=min(one.end, end))

    def is_asked_by(self, other: "Generation") -> bool:
        """Whether another one would be the same count, if it had been begun when this one was.
        Meanwhile some more windows may have closed."""
        return (self.start, self.asked, self.code, self._excluded) == (
            *(other.start, other.asked, other.code),
            other._excluded,
        )

    @property
    def _excluded(self) -> set[tuple[datetime, str]]:
        return {(one.start, one.predicate) for one in self.exclusions}

    def to_json(self) -> str:
        told = asdict(self)
        del told["number"], told["revision"]
        return json.dumps(told, default=datetime.isoformat)

    @classmethod
    def parse(cls, number: int, content: str, revision: int) -> "Generation":
        told: dict[str, Any] = json.loads(content)
        for name in ("start", "end", "asked", "done", "since"):
            told[name] = datetime.fromisoformat(told[name])
        told["exclusions"] = tuple(
            Exclusion(
                datetime.fromisoformat(one["start"]),
                datetime.fromisoformat(one["end"]),
                one["predicate"],
            )
            for one in told["exclusions"]
        )
        return cls(number=number, revision=revision, **told)


@dataclass
class Book:
    """The generations of some rows, by the name of these, and their overlay."""

    tables: Tables
    rows: str
    _known: dict[int, Generation] = field(default_factory=dict)

    def overlay(self) -> Overlay:
        return _overlay(self.tables.select_one(OVERLAY, [self.rows]))

    def change(self, before: Overlay, after: Overlay) -> None:
        """Have readers see another overlay. Raises Outrun if they see another one by now."""
        values = [after.content, after.revision, self.rows]
        if before.revision:
            change = (
                "UPDATE {keyspace}.overlays SET content = ?, revision = ? WHERE rows = ?"
                " IF revision = ?"
            )
            values.append(before.revision)
        else:
            change = (
                "INSERT INTO {keyspace}.overlays (content, revision, rows) VALUES (?, ?, ?)"
                " IF NOT EXISTS"
            )
        if _overlay(self.tables.settle(change, values, OVERLAY, [self.rows])) != after:
            raise Outrun("readers were switched by somebody else meanwhile; look, then try again")

    def all(self) -> list[Generation]:
        """The oldest first."""
        query = "SELECT generation, content, revision FROM {keyspace}.generations WHERE rows = ?"
        found = self.tables.select(query, [self.rows])
        return [Generation.parse(row.generation, row.content, row.revision) for row in found]

    def of(self, number: int) -> Generation:
        """One that readers see, or may be switched to. What it is counted of never changes."""
        if number not in self._known:
            row = self.tables.select_one(RECORD, [self.rows, number])
            if row is None:
                raise LookupError(f"there is no generation {number} of {self.rows}")
            self._known[number] = Generation.parse(number, row.content, row.revision)
        return self._known[number]

    def add(self, new: Generation) -> None:
        """Raises Outrun if there is one with its number."""
        change = (
            "INSERT INTO {keyspace}.generations (rows, generation, content, revision)"
            " VALUES (?, ?, ?, ?) IF NOT EXISTS"
        )
        self._settle(change, [self.rows, new.number, new.to_json(), new.revision], new)

    def note(self, before: Generation, **changes: Any) -> Generation:
        """The generation with its changes. Raises Outrun if it was changed by another run."""
        after = replace(before, revision=before.revision + 1, **changes)
        change = (
            "UPDATE {keyspace}.generations SET content = ?, revision = ?"
            " WHERE rows = ? AND generation = ? IF revision = ?"
        )
        values = [after.to_json(), after.revision, self.rows, after.number, before.revision]
        self._settle(change, values, after)
        return after

    def _settle(self, change: str, values: list[Any], wanted: Generation) -> None:
        row = self.tables.settle(change, values, RECORD, [self.rows, wanted.number])
        if row is None or (row.content, row.revision) != (wanted.to_json(), wanted.revision):
            raise Outrun(f"another run counts generation {wanted.number} of {self.rows}")


@dataclass(frozen=True)
class Seen:
    """Windows that start in a range, ``end`` not included, and the generation that readers see
    there."""

    start: datetime
    end: datetime
    generation: int
    version: int

    @classmethod
    def of(cls, layer: Layer) -> "Seen":
        return cls(naive(layer.start), naive(layer.end), layer.generation, layer.version)


def seen(overlay: Overlay, start: datetime, end: datetime) -> list[Seen]:
    """A range, in order, by what readers see. Of none there is nothing."""
    if start >= end:
        return []
    return [Seen.of(layer) for layer in overlay.pieces(aware(start), aware(end))]


def terms_of(
    book: Book, pieces: Iterable[Seen], generation: int | None = None
) -> Iterator[tuple[Seen, Terms]]:
    """Parts of pieces, with the terms on which what readers see there was counted.

    Args:
        generation: for another one than they see.
    """
    for piece in pieces:
        number = piece.generation if generation is None else generation
        one = replace(piece, generation=number)
        if number == STREAM:
            yield one, ALL
            continue
        for start, end, terms in book.of(number).parts(piece.start, piece.end):
            yield replace(one, start=start, end=end), terms


def aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)


def naive(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)


def _overlay(row: Any) -> Overlay:
    return Overlay.parse(row.content, row.revision) if row else NONE
