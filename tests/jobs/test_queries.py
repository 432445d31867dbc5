"""The queries of docs/queries.yaml: each is taken and exact, or refused as the page says."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from millrace_jobs.declared import loader
from millrace_jobs.recount.comparison import compare
from millrace_jobs.stream import Stream
from pyspark.sql import SparkSession

from millrace.audit.second_truth import rows_of
from millrace.common.paths import REPO
from tests.jobs.random_jobs import some_events, table
from tests.jobs.running import job_of, rows_of_stream
from tests.jobs.samples import settings_of, stream

QUESTIONS: list[dict[str, Any]] = yaml.safe_load((REPO / "docs" / "queries.yaml").read_text())[
    "queries"
]
TAKEN = [one for one in QUESTIONS if "refused" not in one]
REFUSED = [one for one in QUESTIONS if "refused" in one]
SETTINGS = settings_of("test", like="attribution", watermark_seconds=10 * 86_400, tables=[])


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
    chance = random.Random(question["ask"])
    batches = [[some_events(chance, one) for one in streams] for _ in range(3)]
    stored = rows_of_stream(spark, tmp_path, monkeypatch, job, batches)
    events = {
        one.name: table([event for batch in batches for event in batch[number]], one)
        for number, one in enumerate(streams)
    }
    truth = rows_of(question["query"], SETTINGS.given, events)
    found = compare(job.output, truth, stored)
    assert found.checked > 0
    assert (found.lost, found.extra, found.wrong) == (0, 0, 0), found.examples
