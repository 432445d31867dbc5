"""What the leading driver tells of its jobs in Cassandra."""

from datetime import UTC, datetime
from typing import Any

import pytest
from millrace_jobs.leader import job_states
from millrace_jobs.leader.job_states import JobStates
from millrace_jobs.leadership.coordination import JobReport

from millrace_shared.job_states import COLUMNS
from tests.jobs.fakes import FakeTables
from tests.jobs.world import InLine

RUNS = {"traffic": JobReport("running")}
FAILED = {"traffic": JobReport("failed", "why", 1e9, "job-failed")}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(job_states.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(job_states, "Worker", InLine)
    return now


def test_what_has_changed_is_told_at_once_and_all_of_it_now_and_then(clock: list[float]) -> None:
    tables: Any = FakeTables()
    states = JobStates(tables)
    for reports in (RUNS, RUNS, FAILED, FAILED):
        states.tell(reports)
    assert [row["state"] for row in tables.rows] == ["running", "failed"]
    clock[0] += job_states.AGAIN_SECONDS
    states.tell(FAILED)
    row = tables.rows[-1]
    assert row.keys() == {*COLUMNS}
    assert row["failed_since"] == datetime.fromtimestamp(1e9, UTC)
    assert (row["trouble"], row["runbook"]) == ("why", "job-failed")
    assert tables.timestamps == sorted(tables.timestamps)


def test_a_store_that_is_away_is_nobody_s_trouble(clock: list[float]) -> None:
    class Away(FakeTables):
        def upsert(self, *_: Any) -> None:
            raise RuntimeError("no quorum")

    away: Any = Away()
    JobStates(away).tell(RUNS)
