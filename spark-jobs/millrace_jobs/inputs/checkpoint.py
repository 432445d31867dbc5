"""What a query's checkpoint tells: for each batch its Kafka offsets and its watermark."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from millrace_jobs.spark_internals import hadoop_configuration, jvm

Offsets = dict[str, dict[str, int]]  # topic → partition → offset
EARLIEST = -2  # Kafka's number for "from the beginning"
NOTHING_READ = "-"  # Spark's word in the log for a source that has no offsets yet


def merged(sources: Iterable[Offsets]) -> Offsets:
    """Those of all topics. A function that uses a stream twice has its source twice, with the same
    offsets: Spark asks each source once for the topic's end."""
    return {topic: partitions for source in sources for topic, partitions in source.items()}


@dataclass(frozen=True)
class Batch:
    """What one batch reads, from ``start`` up to but not including ``end``."""

    start: Offsets
    end: Offsets

    @classmethod
    def between(cls, start: Offsets, end: Offsets) -> "Batch":
        """A partition that ``start`` doesn't know is new, and read from its beginning."""
        complete = {
            topic: {partition: start.get(topic, {}).get(partition, EARLIEST) for partition in ends}
            for topic, ends in end.items()
        }
        return cls(complete, end)

    def of(self, topic: str) -> "Batch":
        """The batch as far as it reads one topic."""
        return Batch({topic: self.start.get(topic, {})}, {topic: self.end.get(topic, {})})


class Checkpoint:
    """Reads the offsets log, which Spark writes before a batch, and the commits log, after it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        java = jvm(spark.sparkContext)
        # Once: each part of a class's name looks for a class in every jar.
        self._new_path = java.org.apache.hadoop.fs.Path
        self._io = java.org.apache.commons.io.IOUtils
        self.location = path
        self._path = self._new_path(path)
        self._fs = self._path.getFileSystem(hadoop_configuration(spark.sparkContext))

    def remove(self) -> None:
        self._fs.delete(self._path, True)

    def query_id(self) -> str | None:
        """Of the query that writes here; None if there is no checkpoint."""
        file = self._new_path(self._path, "metadata")
        return json.loads(self._text(file))["id"] if self._fs.exists(file) else None

    def newest(self) -> int:
        """The newest batch that was begun, -1 if there is none."""
        return max(self._batches("offsets"), default=-1)

    def last_committed(self) -> int:
        """The newest committed batch, -1 if there is none."""
        return max(self._batches("commits"), default=-1)

    def oldest(self) -> int:
        """The oldest batch that `batch` can still tell about: its predecessor is needed, too."""
        known = min(self._batches("offsets"), default=0)
        return known if known == 0 else known + 1

    def ends(self, number: int) -> Offsets:
        """Up to where a batch reads; nothing for the batch before the first."""
        return self._entry(number).offsets if number >= 0 else {}

    def entry_text(self, number: int) -> str:
        """A batch's entry in the offsets log as it is written."""
        return self._text(self._new_path(self._path, f"offsets/{number}"))

    def batch(self, number: int) -> Batch:
        return Batch.between(self.ends(number - 1), self.ends(number))

    def reached(self) -> Offsets:
        """Where the batches begin that are yet to be committed, of all partitions that were read.

        A partition that the last committed batch didn't know is read from its beginning; nothing is
        told of a topic that no batch has read.
        """
        committed, newest = self.last_committed(), self.newest()
        start = self._entry(committed).offsets if committed >= 0 else {}
        known = self._entry(newest).offsets if newest >= 0 else {}
        return Batch.between(start, known).start

    def watermark_ms(self, number: int) -> int:
        """What the late events of a batch are judged by: the watermark of the batch before.

        (The batch's own watermark only decides which windows it closes after taking in its events.)
        """
        return self._entry(number - 1).watermark_ms if number else 0

    def _batches(self, log: str) -> list[int]:
        folder = self._new_path(self._path, log)
        if not self._fs.exists(folder):
            return []
        names = [status.getPath().getName() for status in self._fs.listStatus(folder)]
        return [int(name) for name in names if name.isdecimal()]

    def _entry(self, number: int) -> "_Entry":
        """A version line, a line of metadata, then a line of offsets for each source."""
        _, metadata, *sources = self.entry_text(number).splitlines()
        offsets = merged(json.loads(source) for source in sources if source != NOTHING_READ)
        return _Entry(offsets, json.loads(metadata)["batchWatermarkMs"])

    def _text(self, file: Any) -> str:
        stream = self._fs.open(file)
        try:
            return str(self._io.toString(stream, "UTF-8"))
        finally:
            stream.close()


@dataclass(frozen=True)
class _Entry:
    offsets: Offsets
    watermark_ms: int
