"""A declared job as a running query, over files in place of topics."""

import json
import os
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from millrace_jobs.declared import job as declared_job
from millrace_jobs.declared import loader
from millrace_jobs.declared.loader import Declaration
from millrace_jobs.inputs import sources
from millrace_jobs.inputs.checkpoint import Batch, Checkpoint
from millrace_jobs.output import WINDOW_START, Output
from millrace_jobs.query.late_events import JudgedBatch, LateEvents, Touched
from millrace_jobs.settings import DeclaredSettings
from millrace_jobs.stream import Stream
from pyspark.sql import DataFrame, SparkSession

RECORD = "value binary, topic string, partition int, offset bigint, timestamp timestamp"
RECEIVED = datetime(2026, 1, 1, 20)

Events = list[dict[str, Any]]


def job_of(
    spark: SparkSession,
    job: str,
    streams: Sequence[Stream],
    settings: DeclaredSettings,
    rows: loader.Rows | None = None,
    **changes: Any,
) -> declared_job.Declared:
    """A job without its connections: one that ships, or what this function makes of its streams."""
    facts: dict[str, Any] = {
        "job": job,
        "spark": spark,
        "streams": streams,
        "settings": settings,
        "config": SimpleNamespace(kafka=""),
        "lookups": [],
        "tables": None,
        "skipped": (),
    }
    context: Any = SimpleNamespace(**facts | changes)
    given = (
        Declaration(rows, "A test.")
        if rows
        else loader.load(job, [stream.name for stream in streams])
    )
    one = declared_job.Declared(context, given, results=SimpleNamespace())  # type: ignore[arg-type]
    one.analyse()
    return one


def output_of(
    spark: SparkSession,
    rows: loader.Rows | str,
    streams: Sequence[Stream],
    settings: DeclaredSettings,
    job: str = "test",
) -> Output:
    """What is read off a function's plan, or a query's."""
    if isinstance(rows, str):
        rows = loader.query(job, rows, [stream.name for stream in streams])
    facts = {"job": job, "spark": spark, "streams": streams, "settings": settings, "lookups": []}
    context: Any = SimpleNamespace(**facts)
    return declared_job.Computation(context, Declaration(rows, "A test.")).output


def records(spark: SparkSession, events: Events, topic: str) -> DataFrame:
    """As Kafka has them, received in the evening."""
    values = [json.dumps(one, separators=(",", ":")).encode() for one in events]
    rows = [(value, topic, 0, offset, RECEIVED) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, RECORD)


class Query:
    """Started again over the same folder, it goes on from its checkpoint."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        job: declared_job.Computation,
        write: Callable[[DataFrame], None],
    ) -> None:
        self._folder = folder
        self._topics = [stream.topic for stream in job.context.streams]

        def read(_: Any, __: str, topic: str, *___: Any, **____: Any) -> DataFrame:
            (folder / topic).mkdir(exist_ok=True)
            files = spark.readStream.schema(RECORD).option("maxFilesPerTrigger", 1)
            return files.json(str(folder / topic))

        monkeypatch.setattr(sources, "stream", read)
        self.checkpoint = Checkpoint(spark, str(folder / "checkpoint"))
        self.query = (
            job.frame(1000)
            .writeStream.outputMode(declared_job.Declared.output_mode)
            .foreachBatch(lambda frame, _: write(frame))
            .option("checkpointLocation", self.checkpoint.location)
            .start()
        )

    def send(self, *sent: Events) -> None:
        """A batch of its own, of each topic; returns when it is taken in."""
        parts = []
        for topic, events in zip(self._topics, sent, strict=True):
            batch = len(list((self._folder / topic).glob("*.json")))
            lines = [json.dumps(_record(topic, event)) for event in events]
            parts.append(self._folder / topic / f".{batch}")
            parts[-1].write_text("\n".join(lines))
            os.utime(parts[-1], (batch, batch))
        for part in parts:  # at once: the query looks all the time
            part.rename(part.with_name(f"{part.name[1:]}.json"))
        self.query.processAllAvailable()

    @property
    def batches(self) -> list[Any]:
        return [p for p in self.query.recentProgress if p.numInputRows]

    @property
    def dropping(self) -> list[int]:
        """Which of them dropped what came too late."""
        return [
            number
            for number, progress in enumerate(self.batches)
            if any(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
        ]


def rows_of_stream(
    spark: SparkSession,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    job: declared_job.Declared,
    batches: Sequence[Sequence[Events]],
) -> list[dict[str, Any]]:
    """What is stored once these batches, of each topic, have gone through the job, one after the
    other; none of their events came too late."""
    stored: dict[tuple[Any, ...], dict[str, Any]] = {}

    def write(frame: DataFrame) -> None:
        for row in frame.collect():
            found = row.asDict()
            stored[tuple(found[name] for name in (WINDOW_START, *job.output.key))] = found

    query = Query(spark, folder, monkeypatch, job, write)
    try:
        for batch in batches:
            query.send(*batch)
        assert query.dropping == []
    finally:
        query.query.stop()
    return [*stored.values()]


def _record(topic: str, event: dict[str, Any]) -> dict[str, Any]:
    value = b64encode(json.dumps(event, separators=(",", ":")).encode()).decode()
    return {"topic": topic, "partition": 0, "value": value, "timestamp": f"{RECEIVED.isoformat()}Z"}


class Late(NamedTuple):
    """Late events by batch and window's name, and the starts of the windows that lack some."""

    counts: dict[tuple[int, str], int]
    starts: set[datetime]


def late_counts(
    monkeypatch: pytest.MonkeyPatch,
    job: declared_job.Declared,
    query: Query,
    sent: Sequence[Sequence[Events]],
) -> Late:
    """What is written of late events; ``sent`` are the query's batches, of each topic."""
    context, topics = job.context, [stream.topic for stream in job.context.streams]
    written, starts = dict[tuple[int, str], int](), set[datetime]()

    def read(spark: SparkSession, __: str, topic: str, ___: Any, batch: Batch, _: Any) -> DataFrame:
        assert batch.end.keys() == batch.start.keys() == {topic}
        number = topics.index(topic)
        return records(spark, [event for batch in sent for event in batch[number]], topic)

    def upsert(table: str, _: Any, rows: list[Any], *__: Any, **___: Any) -> None:
        if table == "late_windows":
            starts.update(row[2] for row in rows)
            return
        assert table == "late_events"
        written.update({(row[4], row[1]): row[5] for row in rows})

    monkeypatch.setattr(sources, "records", read)
    tables = SimpleNamespace(upsert=upsert)
    known = SimpleNamespace(**vars(context) | {"tables": tables, "version": lambda batch: batch})
    output = job.output
    touched = Touched(output.window, output.join_seconds or 0)
    late = LateEvents(known, declared_job.late_for(output), touched)  # type: ignore[arg-type]
    missing = late.count("query", _judged(query, topics, sent))
    by_window = Counter[str]()
    for (_, window), events in written.items():
        by_window[window] += events
    assert missing == max(by_window.values(), default=0)
    return Late(written, starts)


def _judged(
    query: Query, topics: Sequence[str], sent: Sequence[Sequence[Events]]
) -> list[JudgedBatch]:
    judged, ends = [], Counter[str]()
    for progress, batch in zip(query.batches, sent, strict=True):
        start = {topic: {"0": number} for topic, number in ends.items()}
        ends.update({topic: len(events) for topic, events in zip(topics, batch, strict=True)})
        end = {topic: {"0": number} for topic, number in ends.items()}
        watermark = query.checkpoint.watermark_ms(progress.batchId)
        judged.append(JudgedBatch(progress.batchId, Batch.between(start, end), watermark))
    return judged
