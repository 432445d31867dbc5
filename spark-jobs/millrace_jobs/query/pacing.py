"""Sizes the batches of a running query, and lets it wait while others are behind."""

import json
import logging
import time
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql.streaming import StreamingQuery

from millrace_jobs.kinds import kind_of
from millrace_jobs.query.batch_size import BatchSize, Taken
from millrace_jobs.query.context import JobContext
from millrace_jobs.spark_internals import set_read_limit

log = logging.getLogger(__name__)

# Times its target: a batch that had all there was is level, though it took longer than it should.
# On slow cores each one does, and archives would wait for results that are as fresh as can be.
LATE = 3


class Pacing:
    """Of one query of micro-batches. Never fails it.

    A size is for batches that are constructed later: the one under way keeps its own. One thread
    may take in reports while another one applies what follows.
    """

    def __init__(self, context: JobContext, query: StreamingQuery) -> None:
        self.job = context.job
        # While results are behind; nobody waits for an archive.
        self.waits = kind_of(context.job, context.settings.trigger).archives
        self._context = context
        self._query = query
        self._size = context.batch_size or BatchSize.at_start(
            context.least_offsets, context.max_offsets, context.settings.batch_target_seconds
        )
        self._limit = context.least_offsets  # that the query has been started with
        self._held_since: float | None = None
        self._waited_targets = 0.0  # for how many targets' time it was held before its next batch
        self._trouble = ""
        self._was_behind = True  # who has just started is, until a batch says otherwise
        self._took_at = time.monotonic()  # when a batch with records was last reported
        self._reported_at = self._took_at

    def take_in(self, progress: Any) -> None:
        """Spark's report of a batch that ended, or of one without records."""
        self._reported_at = time.monotonic()
        records = max(map(_read, progress.sources), default=0)
        batch = Taken(records, progress.durationMs["triggerExecution"] / 1000)
        target = self._context.settings.batch_target_seconds
        is_late = batch.seconds > LATE * target
        self._was_behind = is_late or any(map(_is_left, progress.sources))
        if records:
            self._took_at = self._reported_at
            self._waited_targets = 0.0
            self._size = self._context.batch_size = self._size.after(batch)

    def is_behind(self) -> bool:
        """Whether the last batch left records behind, or took far too long, or one under way does.
        A query that has ended holds nobody up."""
        if self._was_behind:
            return bool(self._query.isActive)
        settings = self._context.settings
        silent = time.monotonic() - self._reported_at
        is_late = silent > LATE * settings.batch_target_seconds + settings.trigger_seconds
        return is_late and bool(self._query.status["isTriggerActive"])

    def waited(self) -> float:
        """Seconds since a batch with records was last reported."""
        return time.monotonic() - self._took_at

    def can_make_up(self) -> bool:
        """Whether its next batch may have more for a wait; not while each ends before a skip."""
        return not self._context.skips_ahead

    def apply(self, *, is_held: bool) -> None:
        """Tell the query how many records its next batch may have; none while it is held.

        A batch after that may take as long again as the query was held: with a batch of its usual
        size each minute, it would fall behind for as long as it has to wait for others.
        """
        self._note(is_held)
        limit = 0 if is_held else self._size.times(1 + self._waited_targets)
        if limit == self._limit:
            return
        try:
            if set_read_limit(self._context.spark.sparkContext, self._query, limit):
                self._limit = limit
        except (Py4JError, TypeError) as error:  # another Spark's inside; not a line at each look
            if self._trouble != (trouble := str(error)):
                log.warning("%s: batches stay as they are: %s", self._context.job, trouble)
            self._trouble = trouble

    def _note(self, is_held: bool) -> None:
        now = time.monotonic()
        if is_held and self._held_since is None:
            self._held_since = now
            log.info("%s waits for others", self.job)
        elif not is_held and self._held_since is not None:
            held = now - self._held_since
            self._waited_targets += held / self._context.settings.batch_target_seconds
            self._held_since = None
            log.info("%s goes on", self.job)


def _read(source: Any) -> int:
    """Offsets, as limits count them, of a batch that isn't a query's first. Spark's numInputRows
    counts a record twice if the sink reads it twice."""
    start, end = (
        json.loads(text or "null") or {} for text in (source.startOffset, source.endOffset)
    )
    return sum(
        at - start[topic][partition]
        for topic, partitions in end.items()
        for partition, at in partitions.items()
        if partition in start.get(topic, {})
    )


def _is_left(source: Any) -> bool:
    """Whether Kafka had more records than the batch could have, when it was constructed."""
    return float(source.metrics.get("maxOffsetsBehindLatest", 0)) > 0
