"""Runs a job that is one file: its rows into Cassandra and the results topic, exactly once.

Everything that the traffic job has: the events of its streams, a watermark, late events counted,
upserts that carry the fencing version, one transaction with the position for each batch.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from millrace_jobs.declared.enrichment import Enrichment, with_columns
from millrace_jobs.declared.loader import Declaration, InvalidJob, Rows
from millrace_jobs.declared.plan.describe import SAID_BY_THE_QUERY, describe, stored
from millrace_jobs.declared.transformation import Read, Transformation, no_events
from millrace_jobs.inputs import sources
from millrace_jobs.inputs.checkpoint import Offsets
from millrace_jobs.output import Output, Window, span
from millrace_jobs.quarantine.search import Quarantined, Skip
from millrace_jobs.quarantine.store import Quarantine, in_a_line, is_of_values, left_out, without
from millrace_jobs.query import limits
from millrace_jobs.query.context import JobContext
from millrace_jobs.query.job import MicroBatches, StoredRows, results_of
from millrace_jobs.query.late_events import LateEvents, Touched, Windows
from millrace_jobs.settings import DeclaredSettings
from millrace_jobs.sinks.batch_commit import Effects, commit
from millrace_jobs.sinks.results import Results
from millrace_jobs.stream import Stream
from millrace_jobs.transforms import parse
from millrace_jobs.transforms.watermark import behind_the_clock

log = logging.getLogger(__name__)

ARRIVED = "timestamp"  # at its broker, one of `parse.COORDINATES`
DESCRIPTIONS = "job_outputs"
DESCRIPTION_COLUMNS = ("job", "description")


class Computation(Transformation):
    """Rows by window and key, of which each batch replaces those that it has events of."""

    skips: Sequence[Skip] = ()  # records that are put aside

    @property
    def settings(self) -> DeclaredSettings:
        return self.context.settings.as_kind(DeclaredSettings)

    @cached_property
    def output(self) -> Output:
        """The description of the job's rows. Raises InvalidJob where there can be none."""
        context = self.context
        streams, settings = context.streams, self.settings
        events = no_events(context)
        output = describe(
            context.job,
            self.declaration.summary,
            lambda: rows_of(self.declaration.rows, events, streams, settings),
            streams,
            settings,
        )
        return with_columns(output, context.lookups)

    def analyse(self) -> Read:
        output, settings = self.output, self.settings
        waits = span(settings.watermark_seconds)
        join = span(output.join_seconds) if output.join_seconds is not None else ""
        kept = f"a row for each key and window, until {waits} behind the window's end"
        return Read(
            windows=output.window.name,
            join=join,
            key=[f"{name} {kind}" for name, kind in output.key.items()],
            values=[f"{name} {kind}" for name, kind in output.values.items()],
            state=f"{kept}; events for {join} and {waits}" if join else kept,
            notes=[
                f"its setting {name} says what the query says; leave it out"
                for name in SAID_BY_THE_QUERY
                if name in settings.given
            ],
        )

    def frame(self, max_offsets: int | None = None) -> DataFrame:
        """The query's rows; in batches of ``max_offsets`` records, or as it starts with."""
        context = self.context
        brokers, settings = context.config.kafka, self.settings
        most = context.least_offsets if max_offsets is None else max_offsets
        return self.transform(
            without(
                sources.stream(
                    *(context.spark, brokers, stream.topic, settings, most),
                    behind=context.skipped if max_offsets else (),
                ),
                stream.topic,
                self.skips,
            )
            for stream in context.streams
        )

    def transform(self, records: Iterable[DataFrame]) -> DataFrame:
        """Kafka's records, of each stream, → the rows that are stored."""
        return self.rows(
            parse.valid(found.transform(parse.classify, stream), stream)
            for found, stream in zip(records, self.context.streams, strict=True)
        )

    def rows(self, events: Iterable[DataFrame]) -> DataFrame:
        """The events of each stream, or of its archive, → the rows that are stored."""
        return stored(rows_of(self.declaration.rows, events, self.context.streams, self.settings))


class Declared(Computation, MicroBatches):
    """The job as a driver runs it: its rows go to its table and to the results topic."""

    output_mode = "update"
    context: JobContext

    def __init__(
        self,
        context: JobContext,
        declaration: Declaration | None = None,
        results: Results | None = None,
    ) -> None:
        """
        Args:
            declaration: by default the one in the job's file.
            results: by default those that the configuration names.
        """
        super().__init__(context, declaration)
        self._facts = Enrichment(context.tables, context.lookups, context.job)
        self._is_described = False  # as far as is known
        self.quarantine = Quarantine(context, self.rows)
        self._results = results or results_of(context)

    def prepare(self) -> None:
        """Raises InvalidJob for a job that can't be run, or not from its checkpoint."""
        self._is_described = self._keep_state()
        self.refresh()

    @cached_property
    def late_events(self) -> LateEvents:
        touched = Touched(self.output.window, self.output.join_seconds or 0)
        return LateEvents(self.context, late_for(self.output), touched)

    @property
    def isolating_for(self) -> str:
        return self.quarantine.searched_for if self.quarantine.is_searching else ""

    @property
    def stored_rows(self) -> StoredRows | None:
        return self

    def refresh(self) -> bool:
        """Look what is put aside by now; True if the frame has to be built anew for it."""
        known, self.skips = self.skips, left_out(self.context)
        return self.skips != known

    def rehearse(self, frame: DataFrame, batch: int, scratch: str) -> None:
        """Collect the batch, and make connections and statements ready that ``write`` needs."""
        limits.collect(frame, self.context.job, self.settings)
        self._facts.rehearse()
        self._results.connect()

    def on_lead(self) -> None:
        """Only who leads makes the table: two at once could make it twice."""
        if not self._is_described:
            tables, output = self.context.tables, self.output
            tables.create(output.create_table)
            tables.create(output.add_columns)
            tables.create(output.keep)
            self.context.lease.confirm()
            described = (output.job, output.to_json())
            tables.upsert(DESCRIPTIONS, DESCRIPTION_COLUMNS, [described], self.context.version(0))
            self._is_described = True
        self._results.take_over()

    def write(self, frame: DataFrame, batch: int) -> None:
        """Collects: a batch has at most one row for each window and key that it touched.

        Raises BeyondLimit before anything is written.
        """
        counted = [row.asDict() for row in self._collect(frame, batch)]
        identity = self.context.identify(batch)
        context = self.context
        limits.check_keys(context.spark, identity.checkpoint, context.job, self.settings)
        version = identity.version

        def prepare() -> Effects:
            rows = self._facts.add(counted, identity.checkpoint, batch, version)
            records = [self.output.record(row, version) for row in rows]
            return Effects(records, lambda: self._upsert(rows, version))

        commit(identity, self._results, self.context.lease.confirm, prepare)

    def tell_position(self, batch: int, read: Offsets) -> None:
        self._results.tell_position(self.context.checkpoint.query_id() or "", batch, read)

    def correct(self, rows: Sequence[dict[str, Any]], version: int) -> None:
        """Replace rows that no batch writes any more, in the table and for the results' readers.

        May be repeated. Beside batches: it is about rows that they leave alone.
        """
        self.context.lease.verify()
        self._upsert(rows, version)
        self._results.publish_beside(self.output.record(row, version) for row in rows)

    def _upsert(self, rows: Iterable[dict[str, Any]], version: int) -> None:
        output = self.output
        self.context.tables.upsert(
            output.table,
            [f'"{name}"' for name in output.columns],  # it may be a word of CQL
            [output.row(row, version) for row in rows],
            version,
            partition_columns=2,
        )

    def _collect(self, frame: DataFrame, batch: int) -> list[Row]:
        """Raises Quarantined or NotIsolatable when the batch's own values are too much for it."""
        try:
            return limits.collect(frame, self.context.job, self.settings)
        except PySparkException as error:
            if not is_of_values(error):
                raise
            log.warning("job %s, batch %d: %s", self.context.job, batch, in_a_line(error))
            found = self.quarantine.isolate(batch, in_a_line(error))
            raise Quarantined(f"batch {batch} is run again without {', '.join(found)}") from error

    def _keep_state(self) -> bool:
        """Whether the job's rows are described as they are, so that their table is there, too.

        Raises InvalidJob when the checkpoint's state is that of another aggregation: before the
        driver stands by, so a version that can't go on never takes over.
        """
        row = self.context.tables.select_one(
            f"SELECT description FROM {{keyspace}}.{DESCRIPTIONS} WHERE job = ?",
            [self.context.job],
        )
        kept = json.loads(row.description) if row else {}
        offered = json.loads(self.output.to_json())
        if kept.get("table") == self.output.table:
            for name, was in state_of(kept).items():
                if was != (would_be := state_of(offered)[name]):
                    raise InvalidJob(
                        f"job {self.context.job}: its checkpoint holds {name} {was}, this version"
                        f" has {would_be}; give it another checkpoint: docs/new-state.md"
                    )
        if kept.get("table") == self.output.table:
            _refuse_other_key(self.context.job, kept["key"], self.output.key)
            _refuse_other_types(self.context.job, kept["values"], self.output.values)
        return bool(kept == offered)


def rows_of(
    rows: Rows, events: Iterable[DataFrame], streams: Sequence[Stream], settings: DeclaredSettings
) -> DataFrame:
    """Each stream has its watermark; the slowest is that of the query."""
    waits = ARRIVED, settings.watermark_seconds, settings.tasks
    marked = [
        found.transform(behind_the_clock, stream.event_time, *waits).transform(_once, stream)
        for found, stream in zip(events, streams, strict=True)
    ]
    return rows(*marked, settings.given)


def _once(events: DataFrame, stream: Stream) -> DataFrame:
    """One copy of each event. With its time in the state's key, a copy that the state has forgotten
    is older than the watermark, and dropped by that."""
    if stream.deduplicate_by is None:
        return events
    return events.dropDuplicates([stream.deduplicate_by, stream.event_time])


def state_of(description: dict[str, Any]) -> dict[str, Any]:
    """What of an `Output` the checkpoint holds. Older ones don't say of a window more than how long
    it is, nor what a join's bounds are."""
    seconds = description["window_seconds"]
    window = Window(
        seconds, description.get("slide_seconds", seconds), description.get("offset_seconds", 0)
    )
    return {"state": description["state"], "windows of": window.name}


def _refuse_other_key(job: str, kept: dict[str, str], offered: dict[str, str]) -> None:
    """Another name above the same aggregation is another key of the table, and of its readers."""
    was, would_be = (", ".join(map(" ".join, key.items())) for key in (kept, offered))
    if was != would_be:
        raise InvalidJob(
            f"job {job}: its table has the key {was}, this version has {would_be}; keep the names,"
            " or give the job another checkpoint: docs/new-state.md"
        )


def _refuse_other_types(job: str, kept: dict[str, str], offered: dict[str, str]) -> None:
    """A table's columns can be added to, but stay what they are."""
    for name, kind in offered.items():
        if kept.get(name, kind) != kind:
            raise InvalidJob(
                f"job {job}: its table has {name} as {kept[name]}, this version as {kind}; rename"
                " the column, or give the job another checkpoint: docs/new-state.md"
            )


def late_for(output: Output) -> Windows:
    """As `LateEvents` has them: a join drops an event that its window would still take."""
    return {output.window.name: None if output.join_seconds is not None else output.window}
