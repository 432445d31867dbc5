"""A query is taken if none of its parts is flawed; and whatever is taken counts exactly."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.check import reason_of, refuse_unsupported
from millrace_jobs.declared import loader
from millrace_jobs.declared.job import Declared
from millrace_jobs.declared.transformation import no_events
from millrace_jobs.output import Output
from millrace_jobs.recount.comparison import compare
from millrace_jobs.transforms import parse
from pyspark.sql import SparkSession

from millrace.audit.second_truth import NotExpressible, rows_of
from tests.jobs import random_jobs
from tests.jobs.random_jobs import RandomJob, examples
from tests.jobs.running import job_of, records, rows_of_stream
from tests.jobs.samples import settings_of, stream

Row = dict[str, Any]

EVENTS = stream("events")
SETTINGS = settings_of("test", like="attribution", watermark_seconds=10 * 86_400, tables=[])


@examples(20)
@given(made=random_jobs.jobs(flawed=True))
def test_what_has_a_flaw_is_refused_in_a_sentence(spark: SparkSession, made: RandomJob) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011 - Spark's own, too
        taken(spark, made)
    said = reason_of("test", refused.value)
    assert said, made
    assert "\n" not in said, (made, said)
    assert "Py4J" not in said, (made, said)


@examples(20)
@given(made=random_jobs.jobs(flawed=False))
def test_what_has_none_is_taken(spark: SparkSession, made: RandomJob) -> None:
    taken(spark, made)


def counts_as_a_batch_does(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, made: RandomJob, seed: int
) -> str:
    """Held to Spark's own answer over all events at once, and to another engine's; why that one
    has none."""
    job = taken(spark, made)
    chance = random.Random(seed)
    batches = [[random_jobs.some_events(chance, EVENTS)] for _ in range(3)]
    stored = rows_of_stream(spark, folder, monkeypatch, job, batches)
    events = [event for [batch] in batches for event in batch]
    records_of_all = records(spark, events, EVENTS.topic).transform(parse.classify, EVENTS)
    at_once = job.rows([parse.valid(records_of_all, EVENTS)]).collect()
    hold(made, job.output, [row.asDict() for row in at_once], stored)
    try:
        tables = {EVENTS.name: random_jobs.table(events, EVENTS)}
        other = rows_of(made.query, SETTINGS.given, tables)
    except NotExpressible as why:
        return str(why)
    hold(made, job.output, other, stored)
    return ""


def hold(made: RandomJob, output: Output, truth: list[Row], stored: list[Row]) -> None:
    found = compare(output, truth, stored)
    assert found.checked > 0, made
    assert (found.lost, found.extra, found.wrong) == (0, 0, 0), (made, found.examples)


@examples(3)
@given(made=random_jobs.jobs(flawed=False), seed=st.integers(0, 2**32))
def test_what_is_taken_is_exact(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    made: RandomJob,
    seed: int,
) -> None:
    counts_as_a_batch_does(spark, tmp_path_factory.mktemp("job"), monkeypatch, made, seed)


@pytest.mark.extended
def test_what_is_taken_is_exact_many_times(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsaid = Counter[str]()

    @examples(60)
    @given(made=random_jobs.jobs(flawed=False), seed=st.integers(0, 2**32))
    def look(made: RandomJob, seed: int) -> None:
        folder = tmp_path_factory.mktemp("job")
        unsaid[counts_as_a_batch_does(spark, folder, monkeypatch, made, seed)] += 1

    look()
    assert unsaid[""] > unsaid.total() / 2, unsaid  # by two engines, as a rule


def taken(spark: SparkSession, made: RandomJob) -> Declared:
    """As `millrace jobs check` takes it. Raises what it would say."""
    rows = loader.query("test", made.query, [EVENTS.name])
    job = job_of(spark, "test", [EVENTS], SETTINGS, rows)
    refuse_unsupported(job.rows(no_events(job.context)))
    return job
