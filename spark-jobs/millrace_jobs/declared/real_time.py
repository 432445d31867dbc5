"""Runs a job that is one file in real time: a record for an event, within milliseconds.

The job looks at each event alone, so there is nothing to keep: no state, no rows, no watermark. Its
records go from executors straight to the results topic, at least once: what was sent since Spark
last noted how far it has read is sent again when the job is started again. A record names the place
of its event, and is the same each time, so whoever reads it can leave out what came before.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from millrace_jobs.declared.loader import Declaration, InvalidJob
from millrace_jobs.declared.plan.python import refuse_python
from millrace_jobs.declared.plan.refused import Refused
from millrace_jobs.declared.plan.repeatable import refuse_unrepeatable
from millrace_jobs.declared.plan.tree import Node, tree_of
from millrace_jobs.declared.transformation import Read, Transformation, no_events
from millrace_jobs.inputs import sources
from millrace_jobs.inputs.checkpoint import Offsets
from millrace_jobs.quarantine.search import NotIsolatable
from millrace_jobs.quarantine.store import in_a_line, is_of_values
from millrace_jobs.query.context import JobContext
from millrace_jobs.query.job import Write, positions_of
from millrace_jobs.sinks.positions import Positions
from millrace_jobs.spark_internals import cause_of, jvm
from millrace_jobs.stream import Stream
from millrace_jobs.transforms import parse

PLACE = ("partition", "offset")  # what names an event in its stream
OWN = ("key", "job")
# What makes at most one row of each event: these, over the events.
OF_ONE_EVENT = {"Project", "Filter", "LogicalRDD"}
INSTEAD = "filter and select the events of the one stream, or leave out trigger: real-time"


class Selection(Transformation):
    """At most one record of each event, made of that event alone."""

    def analyse(self) -> Read:
        """Raises InvalidJob for a declaration that can't be run in real time."""
        context = self.context
        [events] = no_events(context)
        rows = self.declaration.rows(events, context.settings.given)
        for problem in (*of_stream(context.stream), *of_rows(rows, events)):
            raise InvalidJob(f"job {context.job}: {problem}")
        columns = [f"{name} {kind}" for name, kind in rows.dtypes]
        return Read(windows="", join="", key=[], values=columns, state="none", notes=[])

    def frame(self, max_offsets: int | None = None) -> DataFrame:
        """The query's records: in real time, or in batches of ``max_offsets``, to rehearse with."""
        context = self.context
        where = (context.spark, context.config.kafka, context.stream.topic, context.settings)
        if max_offsets:
            return self.transform(sources.stream(*where, max_offsets, behind=context.skipped))
        return self.transform(sources.endless(*where))

    def transform(self, records: DataFrame) -> DataFrame:
        """Kafka's records → those of the results topic."""
        stream, job = self.context.stream, F.lit(self.context.job)
        events = parse.valid(records.transform(parse.classify, stream), stream)
        rows = self.declaration.rows(events, self.context.settings.given)
        key = F.concat_ws("|", job, F.lit(stream.name), *PLACE)
        content = F.struct(key.alias("key"), job.alias("job"), *rows.columns)
        text = F.to_json(content, {"ignoreNullFields": "false"})
        return rows.select(key.alias("key"), text.alias("value"))


class RealTime(Selection):
    """The job as a driver runs it: executors send its records to the results topic."""

    output_mode = "update"  # Spark knows no other in real time
    late_events = None  # no event is dropped
    is_endless = True
    writes_at_once = False
    isolating_for = ""
    stored_rows = None
    context: JobContext

    def __init__(
        self,
        context: JobContext,
        declaration: Declaration | None = None,
        positions: Positions | None = None,
    ) -> None:
        """
        Args:
            declaration: by default the one in the job's file.
            positions: by default those of the job's consumer group.
        """
        super().__init__(context, declaration)
        self._positions = positions or positions_of(context)

    def prepare(self) -> None:
        """Raises InvalidJob for a declaration that can't be run in real time."""
        self.analyse()

    def rehearse(self, frame: DataFrame, batch: int, scratch: str) -> None:
        """Compute the batch; in real time nothing of it is written by the driver."""
        frame.collect()

    def on_lead(self) -> None:
        """Nobody is fenced: what a predecessor still sends is the same records."""
        self._positions.tell_last(self.context.checkpoint)

    def refresh(self) -> bool:
        return False

    def has_written(self, batch: int) -> bool:
        return False  # what it has sent, it sends again

    def tell_position(self, batch: int, read: Offsets) -> None:
        self._positions.tell(read)

    def start(
        self, writer: DataStreamWriter, every: str, guarded: Callable[[Write], Write]
    ) -> StreamingQuery:
        """Executors write, so nothing of it is guarded: it is the same whoever sends it."""
        context = self.context
        sink = writer.format("kafka").options(
            **{
                "kafka.bootstrap.servers": context.config.kafka,
                **sources.connecting(context.settings),
                **sources.turning_away(context.settings.kafka_answer_ms),
                "topic": context.config.names.kafka.topics.results,
                "kafka.acks": "all",
                "kafka.linger.ms": "0",  # a record waits for no other one
            }
        )
        # PySpark has the argument, but no types for it.
        query: StreamingQuery = sink.trigger(realTime=every).start()  # type: ignore[call-overload]
        return query

    def own_error(self, ended: Exception) -> Exception | None:
        """NotIsolatable where a record's values ended the query: nothing puts that record aside."""
        cause = cause_of(ended)
        if cause is None or not is_of_values(cause):
            return None
        return NotIsolatable(f"in real time no record is put aside: {in_a_line(cause)}")

    def after_batch(self, progress: Any) -> None:
        """Tell how far the job has read, once Spark has noted it."""
        [source], topic = progress.sources, self.context.stream.topic
        start, end, latest = (
            (json.loads(offsets or "null") or {}).get(topic, {})  # there is none before the first
            for offsets in (source.startOffset, source.endOffset, source.latestOffset)
        )
        stuck = {
            number: at
            for number, at in end.items()
            if start.get(number) == at < latest.get(number, at)
        }
        read = end | self._positions.past_markers(topic, stuck)
        self._positions.tell({topic: read})


def of_stream(stream: Stream) -> Iterator[str]:
    """Why events of the stream can't be looked at one by one."""
    if name := stream.deduplicate_by:
        yield (
            f"{stream.name} has one copy of an event, by {name}, which takes state; a job in real"
            " time reads a stream without deduplicate_by"
        )


def of_rows(rows: DataFrame, events: DataFrame) -> Iterator[str]:
    """Why the rows aren't each of one event, the same whenever it is read, and named by it."""
    context, plan = rows.sparkSession.sparkContext, tree_of(rows)
    patterns = jvm(context).org.apache.spark.sql.catalyst.trees.TreePattern
    if others := sorted({node.kind for node in plan.walk()} - OF_ONE_EVENT):
        yield f"{', '.join(others)} isn't of each event alone; {INSTEAD}"
    if plan.java.containsPattern(patterns.PLAN_EXPRESSION()):
        yield f"a query within the query isn't of each event alone; {INSTEAD}"
    try:
        refuse_python(plan, context)
        refuse_unrepeatable(plan, (), (), context)
    except Refused as refused:
        yield str(refused)
    if taken := [name for name in rows.columns if name in OWN]:
        yield f"columns {', '.join(taken)} are the framework's; rename them"
    passed = _passed_on(plan, events)
    if lacking := [name for name in PLACE if name not in passed]:
        yield (
            f"its rows lack the events' {' and '.join(lacking)}, by which readers know a"
            " record that comes again; select them as they are"
        )


def _passed_on(plan: Node, events: DataFrame) -> set[str]:
    """Columns of the events that are among the rows' columns, untouched and by their names."""

    def columns(plan: Node) -> set[tuple[str, int]]:
        return {(column.name, column.id) for column in plan.output}

    return {name for name, _ in columns(tree_of(events)) & columns(plan)}
