"""The queries of docs/queries.yaml: each is taken and exact, or refused as the page says."""

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from millrace_jobs.declared import loader
from millrace_jobs.recount.comparison import compare
from millrace_jobs.stream import Stream
from pyspark.sql import SparkSession

from millrace.audit.second_truth import rows_of
from millrace.common.paths import REPO
from tests.jobs.running import Events, Query, job_of
from tests.jobs.samples import EVENT, settings_of, stream

QUESTIONS: list[dict[str, Any]] = yaml.safe_load((REPO / "docs" / "queries.yaml").read_text())[
    "queries"
]
TAKEN = [one for one in QUESTIONS if "refused" not in one]
REFUSED = [one for one in QUESTIONS if "refused" in one]
SETTINGS = settings_of("test", like="attribution", watermark_seconds=10 * 86_400, tables=[])
NOON = datetime(2026, 1, 1, 12)
TYPES = {"text": pa.string(), "time": pa.timestamp("us"), "integer": pa.int32(), "long": pa.int64()}


def streams_of(question: dict[str, Any]) -> list[Stream]:
    return [stream(name) for name in question.get("streams", ["events"])]


@pytest.mark.parametrize("question", REFUSED, ids=lambda one: one["ask"])
def test_what_can_not_be_exact_is_refused_as_the_page_says(
    spark: SparkSession, question: dict[str, Any]
) -> None:
    streams = streams_of(question)
    rows = loader.query("test", question["query"], [one.name for one in streams])
    with pytest.raises(Exception) as refused:  # noqa: PT011 - Spark's own, too
        job_of(spark, "test", streams, SETTINGS, rows)
    assert str(refused.value).removeprefix("job test: ").startswith(question["refused"])


@pytest.mark.extended
@pytest.mark.parametrize("question", TAKEN, ids=lambda one: one["ask"])
def test_what_is_taken_is_what_another_engine_counts(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    question: dict[str, Any],
) -> None:
    streams = streams_of(question)
    rows = loader.query("test", question["query"], [one.name for one in streams])
    job = job_of(spark, "test", streams, SETTINGS, rows)
    stored: dict[tuple[Any, ...], dict[str, Any]] = {}

    def write(frame: Any) -> None:
        for row in frame.collect():
            found = row.asDict()
            stored[tuple(found[name] for name in ("window_start", *job.output.key))] = found

    chance = random.Random(question["ask"])
    batches = [[some_events(chance, one) for one in streams] for _ in range(3)]
    query = Query(spark, tmp_path, monkeypatch, job, write)
    try:
        for batch in batches:
            query.send(*batch)
        assert query.dropping == []
    finally:
        query.query.stop()
    events = {
        one.name: table([event for batch in batches for event in batch[number]], one)
        for number, one in enumerate(streams)
    }
    truth = rows_of(question["query"], SETTINGS.given, events)
    found = compare(job.output, truth, stored.values())
    assert found.checked > 0
    assert (found.lost, found.extra, found.wrong) == (0, 0, 0), found.examples


def some_events(chance: random.Random, of: Stream) -> Events:
    return [one_event(chance, of) for _ in range(60)]


def one_event(chance: random.Random, of: Stream) -> dict[str, Any]:
    seconds = chance.choice([60, 3600, 25_000]) * chance.random()
    moment = NOON + timedelta(seconds=seconds)
    at = f"{moment.isoformat(timespec='milliseconds')}Z"
    ad = {"impression_id": f"ad-{chance.randrange(20)}", "campaign": chance.choice("xy")}
    if of.name == "impressions":
        return ad | {"event_time": at}
    if of.name == "clicks":
        return ad | {"event_time": at, "click_id": f"click-{chance.random()}"}
    return EVENT | {
        "event_id": f"event-{chance.random()}",
        "event_time": at,
        "visitor_id": chance.choice("abcd"),
        "url": chance.choice(["/a", "/b", "/c", "/a/b?x=1", "/"]),
        "status": chance.choice([200, 404, 500, 503]),
        "bytes": chance.choice([0, 10, 12_345, 10**7]),
        "campaign": chance.choice([None, "", "spring"]),
        "referrer": chance.choice([None, "https://example.org/x", "nothing"]),
    }


def table(events: Events, of: Stream) -> pa.Table:
    """As the archive has them."""
    schema = pa.schema([(field.name, TYPES[field.type]) for field in of.fields])
    rows = [
        event | {"event_time": datetime.fromisoformat(event["event_time"]).replace(tzinfo=None)}
        for event in events
    ]
    return pa.Table.from_pylist([{n: row.get(n) for n in schema.names} for row in rows], schema)
