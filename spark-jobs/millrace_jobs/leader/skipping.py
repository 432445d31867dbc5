"""A job goes on behind records that no executor can hold, and behind offsets that Kafka has lost.

1. A batch that kills executors by their memory is cancelled, and tried again record by record: what
   was too much together may fit one by one.
2. If that dies, too, a small JVM finds what is too large (`scan`). It is noted in the table
   ``skipped``, gets a dead letter without a value, and the offsets log is led around it.
   Nothing is lost by that which could have been an event: what outgrows the scan's heap is larger
   than any stream takes. Only what a producer compressed into one batch behind it goes with it.
3. Offsets that retention took are never skipped by themselves. The job fails, and says by which
   command an operator accepts the loss.

Each step may be the last of a driver: the table is written first, and the log says how far it is.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millrace_jobs.inputs import sources
from millrace_jobs.inputs.bounds import Partition, bounds_of
from millrace_jobs.inputs.checkpoint import Offsets
from millrace_jobs.inputs.continuity import CheckpointMismatch
from millrace_jobs.inputs.offset_log import OffsetLog
from millrace_jobs.inputs.scan import Scan, ScanFailed
from millrace_jobs.inputs.skipped import SkippedRange, ahead, overlapping, rewriting, within_polls
from millrace_jobs.leadership.lease import LeaseLost
from millrace_jobs.quarantine.store import in_a_line
from millrace_jobs.query import skips
from millrace_jobs.query.context import JobContext
from millrace_jobs.query.executor_deaths import of_memory
from millrace_jobs.query.job import Job
from millrace_jobs.query.skips import Skip
from millrace_jobs.sinks.dead_letters import DeadLetters
from millrace_jobs.standby.ready import ReadyJob
from millrace_jobs.transforms.large import HASH, SIZE

log = logging.getLogger(__name__)

EXPIRED = "they are not available in Kafka any more"
TOO_LARGE = "larger than an executor can hold, or compressed behind one that is"
LETTER = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("value", BinaryType()),
        StructField(SIZE, IntegerType()),
        StructField(HASH, StringType()),
        StructField("reason", StringType()),
    ]
)


class StartAnew(Exception):
    """Raised instead of a batch that is to be read otherwise, or to end elsewhere."""

    def __init__(self, batch: int, why: str) -> None:
        self.batch = batch
        super().__init__(f"batch {batch} {why}")


class FoundByAnother(Exception):
    """Raised instead of a batch that would die by what another job has found, sooner or later."""

    def __init__(self, ranges: Iterable[SkippedRange]) -> None:
        self.ranges = tuple(ranges)
        super().__init__(f"another job has found what no executor can hold: {_listed(self.ranges)}")


class OffsetsExpired(CheckpointMismatch):
    """Records that the job has not read are gone from Kafka."""

    runbook = "offsets-expired"


def check_batch(context: JobContext, batch: int) -> None:
    """Before a batch is run. Raises StartAnew for one that would read what is skipped, or that is
    to be read by other polls than the query's."""
    if context.skips_ahead and overlapping(context.skips_ahead, context.checkpoint.batch(batch)):
        raise StartAnew(batch, "is to end before what is skipped")
    if context.reads_one_by_one != (is_careful := _is_careful(context, batch)):
        raise StartAnew(batch, f"is{'' if is_careful else ' not'} to be read record by record")


def told(ready: ReadyJob, found: frozenset[SkippedRange]) -> FoundByAnother | None:
    """What of this the job has yet to read, if it wasn't told of it before."""
    context = ready.context
    if not (new := found - context.told_of):
        return None
    topics = {stream.topic for stream in context.streams}
    of_job = [one for one in new if one.topic in topics]
    unread = ahead(of_job, position(context, ready.job)) if of_job else []
    context.told_of |= new
    return FoundByAnother(unread) if unread else None


def anew(ready: ReadyJob, error: Exception) -> ReadyJob | None:
    """The job as it is to be started again at once; None for an error of another kind.

    Raises OffsetsExpired.
    """
    context = ready.context
    context.untouched = None
    if isinstance(error, StartAnew):
        if context.begun is not None and error.batch > context.begun:
            context.untouched = error.batch  # one that was begun before may be published
        if context.careful_batch is not None and error.batch > context.careful_batch + 1:
            context.careful_batch = None
        return ready
    if isinstance(error, FoundByAnother):
        log.warning("job %s: %s", ready.name, error)
        skips.note(context, [Skip(one, TOO_LARGE) for one in error.ranges], _ended_in(context))
        return ready
    context.batch_size = None  # its batches may have been too much
    if EXPIRED in str(error):
        raise _expired(context)
    if not of_memory(error):
        return None
    batch = _ended_in(context)
    if not context.reads_one_by_one:
        log.warning(
            "job %s: batch %d is read record by record: %s", ready.name, batch, in_a_line(error)
        )
        context.careful_batch = batch
        return ready
    try:
        if not _leave_out(context, batch):
            return None
        context.careful_batch = None  # now it is known which polls it would die by
        return ready
    except LeaseLost:
        raise
    except Exception:  # of HDFS, Kafka, Cassandra: the batch's own error is what counts then
        log.exception("job %s: what batch %d dies by is not left out", ready.name, batch)
        return None


def _ended_in(context: JobContext) -> int:
    """The batch in which the query has ended; noted as its own if the query has begun it."""
    batch = context.checkpoint.newest()
    if context.begun is not None and batch > context.begun:
        context.own = batch
    return batch


def step_aside(context: JobContext, job: Job) -> int | None:
    """Lead the offsets log around what is skipped, and know how to read, before the query starts.

    Returns:
        The committed batch whose end moved, to be told; None if none did.
    """
    moved = _step_aside(context, job)
    has_met_some = context.too_large or context.told_of
    if moved is not None and has_met_some and not context.skips_ahead and _look_ahead(context):
        _step_aside(context, job)
    context.reads_one_by_one = False
    if context.careful_batch is not None or context.skips_ahead:
        context.reads_one_by_one = _is_careful(context, context.checkpoint.last_committed() + 1)
    return moved


def _step_aside(context: JobContext, job: Job) -> int | None:
    skips.look_up(context)
    context.skips_ahead = ()
    checkpoint = context.checkpoint
    context.begun = newest = checkpoint.newest()
    if not context.skipped or newest < 0:
        return None
    committed = checkpoint.last_committed()
    ranges = _kept(context)
    if newest > committed and job.has_written(committed + 1):
        context.skips_ahead = tuple(ahead(ranges, checkpoint.ends(committed + 1)))
        return None
    offsets, moved = OffsetLog(context.spark, checkpoint), None
    # One that a predecessor began it may yet write, as it was.
    is_own = job.writes_at_once and context.own == committed + 1
    room = context.max_offsets if is_own or context.untouched == committed + 1 else 0
    while step := rewriting(
        checkpoint.ends(committed),
        committed + 1,
        checkpoint.ends(committed + 1) if newest > committed else None,
        ranges,
        room,
        _usual_poll(context),
    ):
        context.lease.verify()
        log.info("job %s: batch %d now ends at %s", context.job, step.number, step.ends)
        offsets.rewrite(step)
        moved = committed if step.number == committed else moved
    context.skips_ahead = tuple(ahead(ranges, checkpoint.ends(committed)))
    return moved


def position(context: JobContext, job: Job) -> Offsets:
    """Up to where the job has read for good: what is skipped begins there or later."""
    checkpoint = context.checkpoint
    committed = checkpoint.last_committed()
    begun = checkpoint.newest()
    return checkpoint.ends(begun if begun > committed and job.has_written(begun) else committed)


def _is_careful(context: JobContext, batch: int) -> bool:
    """Whether a batch is read record by record: the one that died, and the next one, because what
    is too large may have been fetched ahead of it; and those whose polls would reach a skip."""
    careful = context.careful_batch
    if careful is not None and batch <= careful + 1:
        return True
    if not context.skips_ahead or batch > context.checkpoint.newest():
        return False
    return within_polls(context.skips_ahead, context.checkpoint.batch(batch), _usual_poll(context))


def _usual_poll(context: JobContext) -> int:
    return context.config.settings[context.job].max_poll_records


def _leave_out(context: JobContext, batch: int) -> bool:
    """Whether there was something that the batch can do without."""
    settings = context.config.settings[context.job]
    committed, begun = context.checkpoint.ends(batch - 1), context.checkpoint.ends(batch)
    ranges = [
        # A consumer that reads on holds a poll more.
        SkippedRange(
            topic,
            int(number),
            committed.get(topic, {}).get(number, 0),
            end + settings.max_poll_records,
        )
        for topic, ends in begun.items()
        for number, end in ends.items()
    ]
    try:
        found = Scan(context.spark, _client(context)).too_large(ranges)
    except ScanFailed as error:
        log.error("job %s: batch %d: %s", context.job, batch, error)
        return False
    return _note(context, found, batch)


def _look_ahead(context: JobContext) -> bool:
    """Behind the last of what is known there may be more, sent since somebody looked for it. Each
    that a job met by itself would end executors again. Whether there is more."""
    committed = context.checkpoint.last_committed()
    ranges = [
        SkippedRange(topic, int(number), end, end)
        for topic, ends in context.checkpoint.ends(committed).items()
        for number, end in ends.items()
    ]
    try:
        found = Scan(context.spark, _client(context)).behind(ranges)
    except ScanFailed as error:
        log.warning("job %s: what is too large is not looked for: %s", context.job, error)
        return False
    return _note(context, found, committed + 1)


def _note(context: JobContext, found: Sequence[SkippedRange], batch: int) -> bool:
    """Have it left out from a batch on. Returns whether anything of it is new."""
    known = {offset for one in context.skipped for offset in _offsets(one)}
    if all(offset in known for one in found for offset in _offsets(one)):
        return False
    log.error("job %s leaves out what no executor can hold: %s", context.job, _listed(found))
    _bury(context, found, batch)
    skips.note(context, [Skip(one, TOO_LARGE) for one in found], batch)
    context.too_large |= {*found}
    context.told_of |= {*found}
    return True


def _bury(context: JobContext, found: Iterable[SkippedRange], batch: int) -> None:
    """Nothing is left out without a letter, be it one without a value."""
    from pyspark.sql import functions as F  # names that a driver needs for this alone

    rows = [
        (one.topic, one.partition, offset, None, None, None, None, f"{context.job}: {TOO_LARGE}")
        for one in found
        for offset in range(one.start, one.end)
    ]
    letters = (
        context.spark.createDataFrame(rows, LETTER)
        .withColumn("timestamp", F.current_timestamp())
        .withColumn("headers", F.lit(None).cast("array<struct<key: string, value: binary>>"))
    )
    names = context.config.names.kafka.topics
    sink = DeadLetters(context.config.kafka, names.dead_letters, context.tables, context.settings)
    # Not among the batch's own letters: the books hold those to its records, and these are none.
    checkpoint = f"{context.checkpoint.query_id() or ''} skipped"
    sink.write(letters, checkpoint, batch, context.version(batch))


def _kept(context: JobContext) -> list[SkippedRange]:
    """What is skipped and that Kafka still has, where no batch says how far the job has read."""
    read = context.checkpoint.ends(context.checkpoint.last_committed())
    unread = {
        (one.topic, one.partition)
        for one in context.skipped
        if str(one.partition) not in read.get(one.topic, {})
    }
    if not unread:
        return list(context.skipped)
    bounds = bounds_of(context.config.kafka, context.settings, unread)
    starts = {partition: found.start for partition, found in bounds.items()}
    return [
        replace(one, start=max(one.start, start))
        for one in context.skipped
        if one.end > (start := starts.get((one.topic, one.partition), 0))
    ]


def _expired(context: JobContext) -> OffsetsExpired:
    """Says what is gone and by which commands an operator accepts it."""
    read = context.checkpoint.ends(context.checkpoint.last_committed())
    partitions: list[Partition] = [
        (topic, int(number)) for topic, numbers in read.items() for number in numbers
    ]
    bounds = bounds_of(context.config.kafka, context.settings, partitions)
    gone = [
        SkippedRange(*partition, at, bounds[partition].start)
        for partition in partitions
        if (at := read[partition[0]][str(partition[1])]) < bounds[partition].start
    ]
    several = len(context.streams) > 1
    commands = "; ".join(
        f"millrace jobs skip {context.job} --partition {one.partition} --lost"
        + (f" --topic {one.topic}" if several else "")
        + " --why …"
        for one in gone
    )
    return OffsetsExpired(
        f"job {context.job}: Kafka has no longer what it has not read: {_listed(gone)}. To go on"
        f" behind that, and have it told by every audit: {commands}"
    )


def _client(context: JobContext) -> dict[str, object]:
    """As the jobs read, in the words of Java's client; by little at a time, for a small heap."""
    settings = context.config.settings[context.job]  # not record by record
    options = sources.connecting(settings) | sources.turning_away(settings.kafka_read_answer_ms)
    client = {name.removeprefix("kafka."): value for name, value in options.items()}
    return client | {
        "bootstrap.servers": context.config.kafka,
        "fetch.max.bytes": settings.fetch_max_bytes_per_partition,
        "max.partition.fetch.bytes": settings.fetch_max_bytes_per_partition,
    }


def _offsets(one: SkippedRange) -> Iterable[tuple[str, int, int]]:
    return ((one.topic, one.partition, offset) for offset in range(one.start, one.end))


def _listed(ranges: Iterable[SkippedRange]) -> str:
    return "; ".join(map(str, ranges)) or "nothing"
