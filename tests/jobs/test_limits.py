"""What a declared job may take: keys of state, rows of a batch; and where its state is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from millrace_jobs.query import limits
from millrace_jobs.query.limits import BeyondLimit
from pyspark.sql import DataFrame, SparkSession

from millrace.plan import load_plan
from tests.jobs.samples import settings_of

HDFS_BACKED = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "spark.sql.streaming.stateStore.rocksdb."

Run = Callable[..., Exception | None]


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A declared job's, with what executors are told of RocksDB."""
    session = spark.newSession()
    defaults = load_plan("local").spark.rendered()["settings"]["spark-defaults.conf"]
    for name, value in defaults.items():
        if name.startswith(ROCKS):
            session.conf.set(name, str(value).lower())
    session.conf.set("spark.sql.limit.initialNumPartitions", 2)
    return session


@pytest.fixture
def run(session: SparkSession, tmp_path: Path) -> Run:
    """Counts each file's words as a batch; says why the query ended.

    Keyword arguments are the job's settings, and the provider that the session has.
    """
    (tmp_path / "words").mkdir()
    counted: dict[str, int] = {}

    def batch(*words: str, provider: str = "", **changes: Any) -> Exception | None:
        settings = settings_of("sessions", **changes)
        session.conf.set(PROVIDER, provider or settings.state_store)
        number = len(list((tmp_path / "words").iterdir()))
        lines = "\n".join(json.dumps({"word": word}) for word in words)
        (tmp_path / "words" / f"{number}.json").write_text(lines)
        raised: list[Exception] = []

        def write(frame: DataFrame, _: int) -> None:
            id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
            try:
                rows = limits.collect(frame, "mine", settings)
                limits.check_keys(session, str(id), "mine", settings)
            except BeyondLimit as error:
                raised.append(error)
                raise
            counted.update({row.word: row["count"] for row in rows})

        words_of = session.readStream.schema("word string").json(str(tmp_path / "words"))
        writer = words_of.groupBy("word").count().writeStream.outputMode("update")
        query = (
            writer.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except Exception as error:
            return raised[0] if raised else error
        return None

    batch.counted = counted  # type: ignore[attr-defined]
    return batch


def test_too_many_keys_fail_the_batch_that_brings_them_until_they_may(run: Run) -> None:
    assert run("a", "b", "a", max_keys=3) is None
    assert run("b", "c", max_keys=3) is None
    for _ in range(2):  # a driver, and its successor: in the same batch, before anything is written
        error = run("d", max_keys=3)
        assert isinstance(error, BeyondLimit)
        assert "job mine: its state would have 4 keys, more than 3 (max_keys)" in str(error)
        assert run.counted == {"a": 2, "b": 2, "c": 1}  # type: ignore[attr-defined]
    assert run("a", max_keys=4) is None
    assert run.counted == {"a": 3, "b": 2, "c": 1, "d": 2}  # type: ignore[attr-defined]


def test_too_many_rows_fail_a_batch(run: Run) -> None:
    assert run("a", "b", "a", max_rows=2) is None
    error = run("b", "c", "d", max_rows=2)
    assert isinstance(error, BeyondLimit)
    assert "changes more than 2 rows (max_rows)" in str(error)
    assert run.counted == {"a": 2, "b": 1}  # type: ignore[attr-defined]
    assert run("d", max_rows=3) is None
    assert run.counted == {"a": 2, "b": 2, "c": 1, "d": 2}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("before", "kind"), [(HDFS_BACKED, "delta"), ("", "changelog")])
def test_a_checkpoint_keeps_the_store_that_it_began_with(
    run: Run, tmp_path: Path, before: str, kind: str
) -> None:
    assert run("a", "b", provider=before) is None
    assert run("a") is None
    assert run.counted == {"a": 2, "b": 1}  # type: ignore[attr-defined]
    files = {path.suffix for path in (tmp_path / "checkpoint" / "state").rglob("[0-9]*.*")}
    assert {f".{kind}"} <= files <= {f".{kind}", ".crc", ".zip"}
