"""archive: every event of a stream into its Delta table, all that is malformed to the dead letters.

The stream that all jobs read by default is archived by the job ``archive``, another one by a job of
its own, ``archive_STREAM``: a stream that fails, or floods, is its own affair.
"""

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from millrace_jobs.inputs import sources
from millrace_jobs.inputs.checkpoint import Batch, Offsets
from millrace_jobs.inputs.skipped import overlapping
from millrace_jobs.query.context import JobContext
from millrace_jobs.query.job import MicroBatches, positions_of
from millrace_jobs.settings import ArchiveSettings
from millrace_jobs.sinks import archive
from millrace_jobs.sinks.dead_letters import DeadLetters
from millrace_jobs.sinks.positions import Positions
from millrace_jobs.transforms import parse


class Archive(MicroBatches):
    """The job that archives a stream. Dead letters are upserts; Delta knows a repeated append."""

    output_mode = "append"
    writes_at_once = True  # Delta's commit comes first, and dead letters are of what it has
    late_events = None  # an archive is never too late

    def __init__(
        self,
        context: JobContext,
        dead_letters: DeadLetters | None = None,
        positions: Positions | None = None,
    ) -> None:
        """
        Args:
            dead_letters, positions: by default those that the configuration names.
        """
        self._context = context
        self._settings = context.settings.as_kind(ArchiveSettings)
        self._dead_letters = dead_letters or DeadLetters(
            context.config.kafka,
            context.config.names.kafka.topics.dead_letters,
            context.tables,
            self._settings,
        )
        self._positions = positions or positions_of(context)
        self._is_first_batch = True  # since it leads, or was started again

    def frame(self, max_offsets: int | None = None) -> DataFrame:
        """The query's rows; in batches of ``max_offsets`` records, or as it starts with."""
        context = self._context
        most = context.least_offsets if max_offsets is None else max_offsets
        return sources.stream(
            *(context.spark, context.config.kafka, context.stream.topic, context.settings, most),
            behind=context.skipped if max_offsets else (),
        )

    def on_lead(self) -> None:
        """Delta itself refuses the second of two appends of one batch: who began it matters not."""
        self._is_first_batch = True
        self._positions.tell_last(self._context.checkpoint)

    def write(self, frame: DataFrame, batch: int) -> None:
        """Reads Kafka once, and again only for a batch that has malformed records.

        The batch isn't cached instead: records may be megabytes, and stream through one by one.
        """
        classified = frame.transform(parse.classify, self._context.stream)
        self._context.lease.verify()  # what Delta has taken is there for good
        checkpoint = self._context.checkpoint_id()
        archived = self._context.config.archive_of(self._context.stream)
        read = self._context.checkpoint.batch(batch)
        alone, seen = self._append(classified, archived, checkpoint, batch, read)
        # Delta skips a batch that it has, and then nothing is observed. Only the first batch can be
        # one that was begun before, or one that a predecessor adds in the same moment.
        if self._is_first_batch or not alone or seen.get["malformed"]:
            self._context.lease.confirm()
            malformed = parse.malformed(self._readable(classified, batch), self._context.stream)
            version = self._context.version(batch)
            self._dead_letters.write(malformed, checkpoint, batch, version)
        self._is_first_batch = False
        self._positions.tell(read.end)

    def has_written(self, batch: int) -> bool:
        """Delta's log knows. Over other offsets the batch would be taken for the same one again."""
        context = self._context
        archived = context.config.archive_of(context.stream)
        application = self._application(context.checkpoint.query_id() or "")
        return batch <= archive.last_batch(context.spark, archived, application)

    def tell_position(self, batch: int, read: Offsets) -> None:
        self._positions.tell(read)

    def _readable(self, classified: DataFrame, batch: int) -> DataFrame:
        """A batch that Delta has is as it is, and may hold what was found too large since."""
        context = self._context
        records = context.checkpoint.batch(batch) if context.skipped else None
        if records is None or not overlapping(context.skipped, records):
            return classified
        topic = context.stream.topic
        where = context.spark, context.config.kafka, topic, context.settings
        read = sources.records(*where, records.of(topic), context.skipped)
        return read.transform(parse.classify, context.stream)

    def _application(self, checkpoint: str) -> str:
        """What Delta knows the job's batches by."""
        return f"{self._context.job} {checkpoint}"

    def rehearse(self, frame: DataFrame, batch: int, scratch: str) -> None:
        """Into a table of its own. On a laptop an archive's first batch took 22 to 31 s, beside the
        first ones of results, and 15 to 20 once all of it had run before."""
        archived = self._context.config.archive_of(self._context.stream)
        archive.load_log(self._context.spark, archived)
        classified = frame.transform(parse.classify, self._context.stream)
        checkpoint = self._context.checkpoint_id()
        self._append(classified, f"{scratch}/{checkpoint}", checkpoint, batch, read=None)

    def _append(
        self, classified: DataFrame, path: str, checkpoint: str, batch: int, read: Batch | None
    ) -> tuple[bool, Observation]:
        """Whether nobody else added to the table meanwhile; and what is ``malformed``."""
        stream, settings = self._context.stream, self._settings
        seen = Observation()
        observed = classified.observe(seen, F.count_if(~F.col("is_event")).alias("malformed"))
        alone = archive.append(
            parse.valid(observed, stream),
            stream.event_time,
            path,
            self._application(checkpoint),
            batch,
            settings.shuffle_partitions,
            settings.writers_per_hour,
            settings.old_after_hours,
            read,
        )
        return alone, seen
