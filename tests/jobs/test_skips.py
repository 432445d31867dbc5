"""What a job leaves out, as its table has it, and what a rehearsal begins behind."""

from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.inputs.skipped import SkippedRange
from millrace_jobs.query import skips
from millrace_jobs.query.skips import DRIVER


class Table:
    """Cassandra's: of one job, or all."""

    def __init__(self, *rows: tuple[str, str, int, int, int, str]) -> None:
        names = ("job", "topic", "part", "first_offset", "end_offset", "who")
        self._rows = [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in rows]

    def select(self, query: str, parameters: list[str]) -> list[Any]:
        assert ("WHERE job = ?" in query) == bool(parameters)
        return [row for row in self._rows if not parameters or row.job == parameters[0]]


@pytest.fixture
def context() -> Any:
    table = Table(
        ("traffic", "events", 0, 10, 11, DRIVER),
        ("archive", "events", 0, 11, 12, DRIVER),
        ("archive", "events", 1, 5, 6, DRIVER),
        ("archive", "events", 2, 0, 900, "root"),  # by somebody's word, of that job alone
        ("crowd", "events", 0, 1, 3, "root"),
    )
    return SimpleNamespace(job="crowd", tables=table, skipped=())


def test_a_job_leaves_out_what_is_its_own(context: Any) -> None:
    skips.look_up(context)
    assert context.skipped == (SkippedRange("events", 0, 1, 3),)


def test_a_rehearsal_begins_behind_what_any_job_s_executors_died_by(context: Any) -> None:
    with skips.rehearsed_around(context):
        assert context.skipped == (
            SkippedRange("events", 0, 1, 3),
            SkippedRange("events", 0, 10, 12),
            SkippedRange("events", 1, 5, 6),
        )
    assert context.skipped == (SkippedRange("events", 0, 1, 3),)


def test_the_job_itself_meets_them_when_it_leads(context: Any) -> None:
    with pytest.raises(RuntimeError), skips.rehearsed_around(context):
        raise RuntimeError
    assert context.skipped == (SkippedRange("events", 0, 1, 3),)
