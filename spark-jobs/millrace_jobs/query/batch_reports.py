"""Spark's reports of a query's batches, each read once.

PySpark renders and parses all hundred that Spark remembers to tell which are new, twice a second;
of an idle driver that was most of what it did, and of a busy one it is time that a batch waits for.
"""

import json
from typing import Any

from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from millrace_jobs.spark_internals import java_query


class BatchReports:
    """The reports of one query. Not for several threads."""

    def __init__(self, query: StreamingQuery) -> None:
        self._java_query = java_query(query)
        self._newest = ""  # the timestamp of the report that was the last one then

    @property
    def has_any(self) -> bool:
        """Whether there was one by the last time that `news` was asked."""
        return self._newest != ""

    def news(self) -> list[Any]:
        """What Spark has reported since the last time, the oldest first.

        An idle query reports, too, every ten seconds, of the batch that is to come.
        """
        last = self._java_query.lastProgress()
        if last is None or last.timestamp() == self._newest:
            return []
        found = []
        for report in reversed(self._java_query.recentProgress()):
            if report.timestamp() == self._newest:
                break
            found.append(StreamingQueryProgress.fromJson(json.loads(report.json())))
        found.reverse()
        self._newest = found[-1].timestamp
        return found
