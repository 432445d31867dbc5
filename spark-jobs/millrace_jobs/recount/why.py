"""Says which events a row of a job's results was made of, by the archive.

`python -m millrace_jobs.recount.why --config insights.json --job JOB`, by the job gateway, as
`recount.run` is. On stdin is a `Question` as JSON; the last line on stdout is an object: an
`Explanation`, or an ``error``.

The rows are counted again of these events alone. So whoever compares that with what is stored knows
whether they are all of them.
"""

import argparse
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace_jobs import config
from millrace_jobs.declared.plan.origins import PLACE, fields_used, origins
from millrace_jobs.declared.plan.refused import Refused
from millrace_jobs.declared.plan.tree import optimised, tree_of
from millrace_jobs.declared.transformation import no_events
from millrace_jobs.inputs.place import Place
from millrace_jobs.output import WINDOW_START, Window
from millrace_jobs.quarantine.search import Skip
from millrace_jobs.quarantine.store import in_a_line, skips_of
from millrace_jobs.query.context import StoredContext
from millrace_jobs.query.job import Countable
from millrace_jobs.query.skips import ranges_of
from millrace_jobs.recount.generations import ALL, Book, Generation, Terms, seen, terms_of
from millrace_jobs.recount.rows import (
    archived_events,
    counted_events,
    late_events,
    on_terms,
    quiet_session,
)
from millrace_jobs.recount.run import context_of, countable, skips_at, use_utc
from millrace_jobs.recount.trouble import in_words
from millrace_jobs.settings import TrafficSettings
from millrace_jobs.stream import Stream
from millrace_jobs.transforms.traffic import (
    LATE_FOR,
    PageViewRule,
    Sketches,
    is_page_view,
    page,
    traffic,
)
from millrace_shared.buckets import plain
from millrace_shared.generations import STREAM, TRAFFIC

log = logging.getLogger(__name__)

BINARY = "binary"  # sketches, which nobody reads
LATE = "late: it came after its window was final"
COPY = "a copy: an event that comes again counts once"
SKIPPED = "skipped"
QUARANTINED = "quarantined"
EXCLUDED = "excluded"
SINCE = "came after its window was counted again"


@dataclass(frozen=True)
class Question:
    """Rows of one key, of windows that start from ``start`` to before ``end`` in naive UTC.

    Attributes:
        key: column → value, as the API takes it. Of `traffic`: ``window``, and perhaps ``url``.
        limit: how many events are listed.
    """

    start: datetime
    end: datetime
    key: dict[str, str]
    limit: int

    @classmethod
    def of(cls, text: str) -> "Question":
        given = json.loads(text)
        moments = {end: datetime.fromisoformat(given[end]) for end in ("start", "end")}
        return cls(**given | moments)


@dataclass
class Explanation:
    """What rows are made of.

    Attributes:
        rows: counted again of the events alone; columns that are sketches are left out.
        events, count: so many of them as were asked for, by their times; and how many there are.
        apart, apart_count: those of the same windows that the job hasn't counted, with ``reason``;
            so many of each kind of reason, and how many there are of all.
        received: when Kafka took the first and the last of the events; None without any.
        notes: sentences on which count the rows are of, and on what isn't known.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    apart_count: int = 0
    apart: list[dict[str, Any]] = field(default_factory=list)
    received: list[str] | None = None
    notes: list[str] = field(default_factory=list)

    def add(self, later: "Explanation", limit: int) -> None:
        """Of windows that follow these."""
        self.rows += later.rows
        self.count += later.count
        self.events = [*self.events, *later.events][:limit]
        self.apart_count += later.apart_count
        self.apart += later.apart
        self.notes += later.notes
        if ends := [*(self.received or []), *(later.received or [])]:
            in_order = sorted(ends, key=datetime.fromisoformat)
            self.received = [in_order[0], in_order[-1]]


class Subject(Protocol):
    """A job whose rows can be explained; `Book` knows these by the name of their ``table``."""

    table: str

    @property
    def context(self) -> StoredContext: ...

    @property
    def window(self) -> Window: ...

    @property
    def reach_seconds(self) -> int:
        """How far outside its window an event of a row may be."""

    def rows(self, events: Iterable[DataFrame]) -> DataFrame:
        """The events of each stream → rows."""

    def about(self, question: Question) -> Column:
        """Which rows are asked for."""

    def narrowed(self, events: list[DataFrame], question: Question) -> list[DataFrame]:
        """Events without those that the key leaves out and no column of a row tells."""

    def late(self, events: list[DataFrame], question: Question) -> Counter[datetime]:
        """Start of a window → how many of its events were late."""


class DeclaredSubject:
    def __init__(self, job: Countable) -> None:
        self._job = job
        self.context = job.context
        self.table = job.output.table
        self.window = job.output.window
        self.reach_seconds = job.output.join_seconds or 0

    def rows(self, events: Iterable[DataFrame]) -> DataFrame:
        return self._job.rows(events)

    def about(self, question: Question) -> Column:
        key = self._job.output.key
        conditions = (
            F.col(name) == F.lit(text).cast(key[name]) for name, text in question.key.items()
        )
        return reduce(Column.__and__, conditions, _starts_in(question))

    def narrowed(self, events: list[DataFrame], _: Question) -> list[DataFrame]:
        return events

    def late(self, _: list[DataFrame], question: Question) -> Counter[datetime]:
        return late_events(self._job, question.start, question.end)


class TrafficSubject:
    """Of a page's row, which is one of many that a window's row has, the events are chosen before
    they are counted: each counts for itself."""

    table = TRAFFIC
    reach_seconds = 0

    def __init__(self, context: StoredContext, size: str) -> None:
        self.context = context
        self._size = size
        self._settings = context.settings.as_kind(TrafficSettings)
        window = LATE_FOR[size]
        assert window
        self.window = window

    def rows(self, events: Iterable[DataFrame]) -> DataFrame:
        [found] = events
        settings = self._settings
        rule, sketches = PageViewRule.of(settings), Sketches.of(settings)
        return traffic(found, rule, settings.watermark_seconds, sketches, settings.tasks).drop(
            "window_end", "pages", "pages_error"
        )

    def about(self, question: Question) -> Column:
        return (F.col("window") == self._size) & _starts_in(question)

    def narrowed(self, events: list[DataFrame], question: Question) -> list[DataFrame]:
        if "url" not in question.key:
            return events
        shown = F.substring(page(), 1, self._settings.page_characters)
        of_page = is_page_view(PageViewRule.of(self._settings)) & (shown == question.key["url"])
        return [found.where(of_page) for found in events]

    def late(self, events: list[DataFrame], question: Question) -> Counter[datetime]:
        """Only a day's number is kept: it bounds what the window's own row lacks."""
        tables, start = self.context.tables, question.start
        query = (
            "SELECT requests FROM {keyspace}.traffic"
            " WHERE window = ? AND bucket = ? AND window_start = ?"
        )
        stored = tables.select_one(query, [self._size, start.date(), start])
        query = (
            "SELECT events FROM {keyspace}.late_events WHERE bucket = ? AND window = ? AND job = ?"
        )
        of_day = tables.select(query, [start.date(), self._size, TRAFFIC])
        inside = _inside(events[0], self.context.stream, question, self.window)
        lacking = inside.count() - (stored.requests if stored else 0)
        most = sum(row.events for row in of_day)
        return Counter({start: lacking} if 0 < lacking <= most else {})


def main() -> None:
    parser = argparse.ArgumentParser(description="Say which events a row was made of.")
    parser.add_argument("--config", type=Path, required=True, help="an application's configuration")
    parser.add_argument("--job", required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    use_utc()
    try:
        question = Question.of(sys.stdin.read())
        subject = subject_of(arguments.job, config.load(arguments.config), question)
        answer = asdict(explain(subject, question))
    except Exception as error:  # whoever asked is told
        log.exception("rows of job %s can't be explained", arguments.job)
        text = in_a_line(error) if isinstance(error, Refused) else in_words(error)
        answer = {"error": text, "kind": type(error).__name__}
    print(json.dumps(answer), flush=True)


def subject_of(job: str, deployed: config.Config, question: Question) -> Subject:
    if job == TRAFFIC:
        return TrafficSubject(context_of(job, deployed), question.key["window"])
    return DeclaredSubject(countable(job, deployed))


def explain(subject: Subject, question: Question) -> Explanation:
    """Of the rows that readers see, be they the stream's or counted again.

    Raises Refused where nobody can say which events a row is of.
    """
    book, aside = Book(subject.context.tables, subject.table), skips_of(subject.context)
    found = Explanation()
    for part, terms in terms_of(book, seen(book.overlay(), question.start, question.end)):
        asked = replace(question, start=part.start, end=part.end)
        skips = skips_at(book, part.generation, aside)
        found.add(_explained(subject, asked, skips, terms), question.limit)
        if part.generation != STREAM:
            found.notes.append(_counted_again(book.of(part.generation)))
    found.notes = [*dict.fromkeys(found.notes)]
    return found


def _counted_again(one: Generation) -> str:
    return (
        f"readers see what was counted again at {plain(one.since)}, generation {one.number}:"
        " late events are in it, if they came before"
    )


def _explained(
    subject: Subject, question: Question, skips: Sequence[Skip], terms: Terms
) -> Explanation:
    """Of rows that are counted on the same terms."""
    context = subject.context
    reach = timedelta(seconds=subject.reach_seconds)
    last = question.end + timedelta(seconds=subject.window.length) + reach
    session = quiet_session(context)
    archived = archived_events(context, session, question.start - reach, last)
    known = counted_events(context, archived, skips, ranges_of(context))
    counted = on_terms(context, known, terms)
    late, notes = _late(subject, counted, question) if terms == ALL else (None, [])
    in_time = [_but(events, late) for events in counted] if late is not None else counted
    kept = subject.narrowed(in_time, question)
    about = subject.about(question)

    def places_of(events: Iterable[DataFrame], *, with_copies: bool = False) -> DataFrame:
        found = origins(subject.rows(events), with_copies=with_copies).where(about)
        return found.select(*PLACE).distinct()

    places = places_of(kept).persist()
    try:
        mine = [_of(events, places) for events in kept]
        listing = _Listing(subject, question.limit)
        found = Explanation(
            rows=_plain_rows(subject.rows(mine).where(about)),
            count=places.count(),
            events=listing.of(mine),
            received=_received(mine),
            notes=notes,
        )
        apart = [(_left_out(subject, archived, known, question), _why_left_out(skips))]
        if terms != ALL:
            apart += _on_other_terms(subject, known, terms, question)
        if late is not None:
            of_late = subject.narrowed([_of(events, late) for events in counted], question)
            of_row = places_of(of_late)
            apart.append(([_of(events, of_row) for events in of_late], lambda _: LATE))
        if any(stream.deduplicate_by for stream in context.streams):
            all_of_them = places_of(kept, with_copies=True)
            copies = [_but(_of(events, all_of_them), places) for events in kept]
            apart.append((copies, lambda _: COPY))
        for events, why in apart:
            found.apart_count += sum(one.count() for one in events)
            found.apart += [one | {"reason": why(_place(one))} for one in listing.of(events)]
        return found
    finally:
        places.unpersist()


def _late(
    subject: Subject, counted: list[DataFrame], question: Question
) -> tuple[DataFrame | None, list[str]]:
    """Places of events that were late, as far as they can be told from others; else a note.

    A window has taken in all that came before some moment, and nothing after it.
    """
    numbers, window = subject.late(counted, question), subject.window
    if not numbers.total():
        return None, []
    streams = subject.context.streams
    is_by_window = window.slide == window.length and not subject.reach_seconds
    if len(streams) > 1 or streams[0].deduplicate_by or not is_by_window:
        return None, [
            f"late events of these windows: {numbers.total()}; it isn't recorded which: they are"
            " among those that are listed, or would have been a partner of one"
        ]
    [events], [stream] = counted, streams
    newest = [F.col(name).desc() for name in ("timestamp", "partition", "offset")]
    parts = [
        _between(events, stream, start, timedelta(seconds=window.length))
        .orderBy(*newest)
        .limit(number)
        .select(*PLACE)
        for start, number in numbers.items()
    ]
    note = (
        f"late events of the window: {numbers.total()}; it isn't recorded which: the last ones that"
        " Kafka took are taken for them"
    )
    return reduce(DataFrame.unionByName, parts), [note]


def _left_out(
    subject: Subject, archived: list[DataFrame], counted: list[DataFrame], question: Question
) -> list[DataFrame]:
    """Of the windows, whatever their key: of many the job's code can't even say it."""
    return [
        _but(_inside(events, stream, question, subject.window), kept.select(*PLACE))
        for events, kept, stream in zip(archived, counted, subject.context.streams, strict=True)
    ]


def _on_other_terms(
    subject: Subject, known: list[DataFrame], terms: Terms, question: Question
) -> Iterator[tuple[list[DataFrame], Callable[[Place], str]]]:
    """Of the windows as well, each with its reason."""
    excluded = f"{EXCLUDED}: {' OR '.join(terms.without)}"
    streams = subject.context.streams

    def inside(choose: Callable[[DataFrame, str], DataFrame]) -> list[DataFrame]:
        return [
            _inside(choose(events, stream.topic), stream, question, subject.window)
            for events, stream in zip(known, streams, strict=True)
        ]

    yield inside(terms.excluded), lambda _: excluded
    yield inside(terms.since), lambda _: SINCE


def _why_left_out(skips: Iterable[Skip]) -> Callable[[Place], str]:
    reasons = {skip.place: f"{QUARANTINED}: {skip.reason}" for skip in skips}
    return lambda place: reasons.get(place, SKIPPED)


class _Listing:
    """Events as they are shown, of each stream with the fields that the job uses."""

    def __init__(self, subject: Subject, limit: int) -> None:
        self._streams = subject.context.streams
        self._limit = limit
        rows = subject.rows(no_events(subject.context))
        plan = optimised(tree_of(rows), rows)
        self._fields = [fields_used(plan, stream.columns) for stream in self._streams]

    def of(self, events: Sequence[DataFrame]) -> list[dict[str, Any]]:
        of_each = zip(events, self._streams, self._fields, strict=True)
        found = [event for one in of_each for event in self._of_stream(*one)]
        return sorted(found, key=_moment_and_place)[: self._limit]

    def _of_stream(
        self, events: DataFrame, stream: Stream, fields: list[str]
    ) -> Iterator[dict[str, Any]]:
        first = events.orderBy(stream.event_time, *PLACE).limit(self._limit)
        for row in first.collect():
            yield {
                **{name: row[name] for name in PLACE},
                "received": plain(row.timestamp),
                "event_time": plain(row[stream.event_time]),
                "id": plain(row[stream.id]) if stream.id else None,
                "fields": {name: plain(row[name]) for name in fields},
            }


def _moment_and_place(event: dict[str, Any]) -> tuple[datetime, Place]:
    """A time's text is no order: without a fraction, it comes behind those that have one."""
    return datetime.fromisoformat(event["event_time"]), _place(event)


def _place(event: dict[str, Any]) -> Place:
    return Place(*(event[name] for name in PLACE))


def _received(events: Iterable[DataFrame]) -> list[str] | None:
    ends = [one.agg(F.min("timestamp"), F.max("timestamp")).collect()[0] for one in events]
    firsts, lasts = ([row[n] for row in ends if row[n]] for n in (0, 1))
    return [plain(min(firsts)), plain(max(lasts))] if firsts else None


def _plain_rows(rows: DataFrame) -> list[dict[str, Any]]:
    names = [one.name for one in rows.schema if one.dataType.simpleString() != BINARY]
    found = rows.select(*names).orderBy(WINDOW_START).collect()
    return [{name: plain(value) for name, value in row.asDict().items()} for row in found]


def _starts_in(question: Question) -> Column:
    start = F.col(WINDOW_START)
    return (start >= F.lit(question.start)) & (start < F.lit(question.end))


def _inside(events: DataFrame, stream: Stream, question: Question, window: Window) -> DataFrame:
    """Events of the windows that are asked for, the last of which starts a slide before the end."""
    slack = timedelta(seconds=window.length - window.slide)
    return _between(events, stream, question.start, question.end - question.start + slack)


def _between(events: DataFrame, stream: Stream, start: datetime, length: timedelta) -> DataFrame:
    time = F.col(stream.event_time)
    return events.where((time >= F.lit(start)) & (time < F.lit(start + length)))


def _of(events: DataFrame, places: DataFrame) -> DataFrame:
    return events.join(places.select(*PLACE), [*PLACE], "left_semi")


def _but(events: DataFrame, places: DataFrame) -> DataFrame:
    return events.join(places.select(*PLACE), [*PLACE], "left_anti")


if __name__ == "__main__":
    main()
