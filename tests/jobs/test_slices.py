"""A job's rows are compared in slices, however many they are."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.output import Output
from millrace_jobs.recount import slices
from millrace_jobs.recount.slices import Slice, TooManyRows, in_slices
from pyspark.sql import SparkSession

NOON = datetime(2026, 1, 1, 12)
HOUR = Slice(NOON, NOON + timedelta(hours=1))
OUTPUT = Output(
    job="test",
    table="job_test",
    summary="A test.",
    window_seconds=60,
    slide_seconds=60,
    offset_seconds=0,
    join_seconds=None,
    key={"url": "string", "number": "bigint", "ok": "boolean"},
    values={"n": "bigint"},
    approximate={},
    buckets=1,
    keep_seconds=86400,
    state=[],
)


def row(minute: int, url: str, number: int, ok: bool = True) -> dict[str, Any]:
    start = NOON + timedelta(minutes=minute)
    return {"window_start": start, "url": url, "number": number, "ok": ok}


ROWS = st.lists(
    st.builds(
        row,
        st.integers(0, 1),
        st.text(st.characters(codec="utf-8"), max_size=3),
        st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=50,
    unique_by=lambda row: tuple(row.values()),
)


def of(rows: list[dict[str, Any]], part: Slice) -> Iterator[dict[str, Any]]:
    return (one for one in rows if part.has(OUTPUT, one))


@given(ROWS)
def test_each_row_is_in_one_slice_and_no_slice_is_too_large(rows: list[dict[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "ROWS", 3)
        found = list(in_slices(HOUR, OUTPUT, lambda part: part.bounded(of(rows, part))))
    assert all(len(part) <= 3 for part in found)
    by_name = [tuple(one.values()) for part in found for one in part]
    assert sorted(by_name) == sorted(tuple(one.values()) for one in rows)


@pytest.mark.parametrize("key", [{"ok": "boolean"}, OUTPUT.key])
def test_what_cannot_be_cut_is_refused(
    monkeypatch: pytest.MonkeyPatch, key: dict[str, str]
) -> None:
    monkeypatch.setattr(slices, "ROWS", 1)
    rows = [row(0, "/a", 1, ok) for ok in (True, False)]
    output = replace(OUTPUT, key=key)
    with pytest.raises(TooManyRows, match="have more than 1 rows"):
        list(in_slices(HOUR, output, lambda part: part.bounded(of(rows, part))))


def test_spark_and_python_put_a_row_into_the_same_slice(spark: SparkSession) -> None:
    urls = ["/a", "", "ü", "\U0001f600", "a\nb"]
    rows = [row(minute, url, -minute) for minute in (0, 59, 60) for url in urls]
    schema = "window_start timestamp, url string, number bigint, ok boolean"
    frame = spark.createDataFrame([tuple(one.values()) for one in rows], schema)
    for part in (HOUR, *(replace(HOUR, share=share, shares=4) for share in range(4))):
        found = [one.asDict() for one in frame.where(part.condition(OUTPUT)).collect()]
        assert found == list(of(rows, part))
