"""A declared job's rows are counted again from the archive; every kind of difference is found."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from millrace_jobs.output import Output
from millrace_jobs.recount.comparison import compare

OUTPUT = Output(
    job="test",
    table="job_test",
    summary="A test.",
    window_seconds=60,
    slide_seconds=60,
    offset_seconds=0,
    join_seconds=None,
    key={"url": "string"},
    values={"n": "bigint", "mean": "double", "visitors": "bigint", "sketch": "binary"},
    approximate={"visitors": 0.01, "sketch": 0.01},
    buckets=1,
    keep_seconds=86400,
    state=[],
)


def row(url: str, **values: Any) -> dict[str, Any]:
    start = datetime(2026, 1, 1)
    counted = {"n": 1, "mean": 0.1 + 0.2, "visitors": 1000, "sketch": b"a"}
    return {"window_start": start, "url": url} | counted | values


def test_what_a_window_lacks_because_it_came_late_excuses_its_own_rows_alone() -> None:
    start = row("/a")["window_start"]
    another = row("/a", window_start=start + timedelta(minutes=1))
    truth = [row("/a"), row("/b"), another]
    stored = [row("/a", n=2), row("/c")]
    findings = compare(OUTPUT, truth, stored, {start})
    assert (findings.excused, findings.lost, findings.extra, findings.wrong) == (2, 1, 1, 0)


def test_equal_rows_are_exact() -> None:
    stored = row("/a", mean=0.3, visitors=1020, sketch=b"b")  # as order and sketches may have it
    findings = compare(OUTPUT, [row("/a")], [stored])
    assert (findings.checked, findings.lost, findings.extra, findings.wrong) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        ([], "lost"),
        ([row("/a"), row("/b")], "extra"),
        ([row("/a", n=2)], "wrong"),
        ([row("/a", mean=0.31)], "wrong"),
        ([row("/a", mean=None)], "wrong"),
        ([row("/a", visitors=1100)], "wrong"),
    ],
)
def test_each_difference_is_found(stored: list[dict[str, Any]], kind: str) -> None:
    findings = compare(OUTPUT, [row("/a")], stored)
    counts = {name: getattr(findings, name) for name in ("lost", "extra", "wrong")}
    assert counts == {"lost": 0, "extra": 0, "wrong": 0} | {kind: 1}
    assert findings.examples[0].startswith(kind)
