"""Declared jobs are analysed before they are deployed: what is wrong is told with its place."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs import check, config, jobs
from pyspark.sql import SparkSession

from millrace.cli.job_check import check_jobs
from millrace.common.errors import OperatorError
from millrace.inventory import deployment
from millrace.plan import load_plan
from millrace.plan.spark import Job

PLAN = load_plan("local")
SETTINGS = PLAN.spark.rendered()["settings"]
QUERY = """-- Requests by status.
SELECT window(event_time, '$every seconds') AS window,
       status, count(*) AS requests
FROM events
GROUP BY 1, 2
"""
FUNCTION = '''"""Requests by status."""

from pyspark.sql import functions as F


def theirs(events, settings):
    window = F.window("event_time", f"{settings['every']} seconds")
    return events.groupBy(window, "status").agg(F.count("*").alias("requests"))
'''


@pytest.fixture
def checked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Any]:
    """What is said of a job `theirs`, in a folder of its own beside ours."""
    monkeypatch.setattr(jobs, "__path__", [*jobs.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{jobs.__name__}.theirs", raising=False)
    content = deployment(PLAN, "insights") | {"version": "", "jobs": ["theirs"]}
    content["settings"] = SETTINGS | {"theirs": SETTINGS["status_by_minute"] | {"every": 60}}
    parsed = config.parse(json.loads(json.dumps(content)))

    def of(text: str) -> list[str]:
        is_query = text.lstrip().startswith(("--", "SELECT"))
        (tmp_path / f"theirs.{'sql' if is_query else 'py'}").write_text(text)
        monkeypatch.setattr(check.loader, "sql", lambda _: text if is_query else None)
        return check.check(spark, "theirs", parsed)

    return of


@pytest.mark.parametrize("text", [QUERY, FUNCTION])
def test_a_job_that_can_be_run(checked: Callable[[str], Any], text: str) -> None:
    assert checked(text) == {
        "windows": "1m",
        "join": "",
        "key": ["status int"],
        "values": ["requests bigint"],
        "state": "a row for each key and window, until 1d behind the window's end",
        "notes": [],
    }


@pytest.mark.parametrize(
    ("right", "wrong", "place", "reason"),
    [
        ("       status,", "       stauts,", ":3:8", "stauts` cannot be resolved"),
        ("FROM", "FORM", ":4:1", "PARSE_SYNTAX_ERROR"),
        # Behind a setting that is shorter once it is filled in.
        ("AS window,", "AS window, stauts,", ":2:56", "`status`"),
        ("FROM events", "FROM evnets", ":4:6", "TABLE_OR_VIEW_NOT_FOUND"),
        ("$every", "$seconds", "", "no such setting"),
        ("count(*)", "max(current_timestamp())", ":3:20", "when a batch runs again"),
        ("status,", "campaign AS c,", ":3:8", "campaign may be null"),
        ("count(*)", "count(DISTINCT url)", ":3:16", "approx_count_distinct"),
        ("GROUP BY 1, 2", "GROUP BY 1, 2 LIMIT 3", ":5:15", "rows have no order"),
    ],
)
def test_a_query_that_cant_be_run(
    checked: Callable[[str], Any], right: str, wrong: str, place: str, reason: str
) -> None:
    line = checked(QUERY.replace(right, wrong))
    assert line.startswith(f"theirs.sql{place}: ")
    assert reason in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("right", "wrong", "place", "reason"),
    [
        ('"status"', '"stauts"', ":8", "stauts` cannot be resolved"),
        ("settings['every']", "settings['seconds']", ":7", "KeyError: 'seconds'"),
        ("def theirs(", "def theirs((", ":6", ""),
        ("import functions", "import funktions", ":3", "ImportError"),
        ("def theirs", "def others", "", "no function theirs(events, settings)"),
        ('groupBy(window, "status")', 'groupBy("status")', "", "no column window"),
        ('F.count("*")', 'F.first("url")', "", "first() takes what comes first"),
        ('"status"', 'F.lower("campaign").alias("c")', ":8", "lower(campaign) may be null"),
    ],
)
def test_a_function_that_cant_be_run(
    checked: Callable[[str], Any], right: str, wrong: str, place: str, reason: str
) -> None:
    line = checked(FUNCTION.replace(right, wrong))
    assert line.startswith(f"theirs.py{place}: ")
    assert reason in line
    assert "\n" not in line


NAMES = {"a": "x", "longer_name": 86400, "empty": ""}


@given(st.lists(st.sampled_from(["SELECT ", ", ", "${a}", "${longer_name}", "$empty ", "$$"])))
def test_a_column_is_where_it_was_written(parts: list[str]) -> None:
    line = "".join(parts)
    marked = f"{line} HERE"
    column = Template(marked).substitute(NAMES).index("HERE")
    assert check.written_column(marked, NAMES, column) == marked.index("HERE")


# The command begins a Spark of its own.
@pytest.mark.spark
def test_the_command_analyses_with_the_hosts_spark() -> None:
    check_jobs(PLAN, ["archive", "sessions"])


@pytest.mark.spark
def test_the_command_tells_what_the_analysis_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that the job doesn't get are one of the things that can be wrong."""
    sessions = Job(checkpoint="sessions", lag_seconds=60, trigger_seconds=1)
    settings = PLAN.spark.settings.model_copy(update={"sessions": sessions})
    spark = PLAN.spark.model_copy(update={"settings": settings})
    with pytest.raises(
        OperatorError, match=r"job sessions: approximate_columns: is missing"
    ) as refused:
        check_jobs(PLAN.model_copy(update={"spark": spark}))
    assert "nothing was deployed" in refused.value.hint
