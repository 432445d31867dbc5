"""Writes a query's offsets log, as Spark does, between two starts of the query.

An entry is a version line, a line of metadata and a line of offsets for each source. Only offsets
change here: metadata has the watermark, and settings that the state was begun with.
"""

import json
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from millrace_jobs.inputs.checkpoint import NOTHING_READ, Checkpoint, Offsets
from millrace_jobs.inputs.skipped import Rewriting
from millrace_jobs.spark_internals import hadoop_configuration, jvm

VERSION = "v1"


class UnknownFormat(Exception):
    """The log is written in a way that this module doesn't know; nothing was changed."""


@dataclass(frozen=True)
class Entry:
    """One batch's entry; ``sources`` are lines."""

    version: str
    metadata: str
    sources: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Entry":
        """Raises UnknownFormat for another version, in which a source may stand otherwise."""
        version, _, rest = text.partition("\n")
        if version != VERSION:
            raise UnknownFormat(f"the offsets log has version {version!r}, not {VERSION!r}")
        metadata, *sources = rest.splitlines()
        return cls(version, metadata, tuple(sources))

    def render(self) -> str:
        return "\n".join((self.version, self.metadata, *self.sources))

    def ending_at(self, ends: Offsets) -> "Entry":
        """The entry with other ends. A stream that is used twice has two sources."""

        def line(source: str) -> str:
            if source == NOTHING_READ:
                return source
            changed = {
                topic: {number: ends[topic][number] for number in partitions}
                for topic, partitions in json.loads(source).items()
            }
            return json.dumps(changed, separators=(",", ":"))

        return replace(self, sources=tuple(map(line, self.sources)))


class OffsetLog:
    """Of a query that doesn't run."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint) -> None:
        self._jvm = jvm(spark.sparkContext)
        self._configuration = hadoop_configuration(spark.sparkContext)
        self._checkpoint = checkpoint

    def rewrite(self, step: Rewriting) -> None:
        """Take the step. Spark writes an entry whole or not at all, and so does this."""
        entry = Entry.parse(self._checkpoint.entry_text(step.number))
        self._write(step.number, entry.ending_at(step.ends).render())

    def _write(self, number: int, text: str) -> None:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self._checkpoint.location}/offsets/{number}")
        checkpointing = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing
        files = checkpointing.CheckpointFileManager.create(path.getParent(), self._configuration)
        stream = files.createAtomic(path, True)
        try:
            stream.write(bytearray(text.encode()))
        except BaseException:
            stream.cancel()
            raise
        stream.close()
