"""Spark's own reports, of a query that runs."""

from pathlib import Path

import pytest
from millrace_jobs.query.batch_reports import BatchReports
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


@pytest.fixture
def query(spark: SparkSession, files: Path) -> StreamingQuery:
    """Reads each file, as it comes, in a batch of its own."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(files))
    started = lines.writeStream.foreachBatch(lambda frame, _: frame.count()).start()
    yield started
    started.stop()


def arrive(files: Path, query: StreamingQuery, *names: str) -> None:
    for name in names:
        (files / name).write_text("a line\n")
    query.processAllAvailable()


def rows(reports: list[StreamingQueryProgress]) -> list[tuple[int, int]]:
    return [(one.batchId, one.numInputRows) for one in reports if one.numInputRows]


def test_each_report_is_read_once_and_as_pyspark_has_it(files: Path, query: StreamingQuery) -> None:
    reports = BatchReports(query)
    assert not reports.has_any
    arrive(files, query, "a", "b")
    news = reports.news()
    assert reports.has_any
    assert rows(news) == [(0, 1), (1, 1)]
    assert news == query.recentProgress[: len(news)]
    arrive(files, query, "c")
    assert rows(reports.news()) == [(2, 1)]


def test_a_report_that_is_known_is_not_rendered_again(files: Path, query: StreamingQuery) -> None:
    reports = BatchReports(query)
    arrive(files, query, *"abc")
    reports.news()
    rendered: list[str] = []
    java_query = reports._java_query

    class Watched:
        def __init__(self, report: object) -> None:
            self._report = report

        def timestamp(self) -> str:
            return self._report.timestamp()  # type: ignore[attr-defined]

        def json(self) -> str:
            rendered.append(self.timestamp())
            return self._report.json()  # type: ignore[attr-defined]

    class WatchedQuery:
        def lastProgress(self) -> Watched:
            return Watched(java_query.lastProgress())

        def recentProgress(self) -> list[Watched]:
            return [Watched(report) for report in java_query.recentProgress()]

    reports._java_query = WatchedQuery()
    arrive(files, query, "d")
    news = reports.news()
    assert rows(news) == [(3, 1)]
    assert len(rendered) == len(news)
