"""How an operator has a job skip offsets, and sees what is skipped."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from millrace.audit import skipped as audit
from millrace.audit.report import Plane
from millrace.cli import app, job_skips
from millrace.cluster.skips import Skipped
from millrace.common.errors import OperatorError

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
LOST = Skipped("archive", "events", 0, 10, 13, "retention", "ann on desk", True, SINCE)
HUGE = Skipped("archive", "events", 1, 7, 8, "too large", "the driver", False, SINCE)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["jobs", *arguments], env={"COLUMNS": "200"})


def test_the_driver_is_asked_and_its_answer_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def ask(_: Any, path: str, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        asked.append((path.rpartition("/jobs/")[2], question, seconds))
        return {"topic": "events", "partition": 0, "from": 5, "to": 9}

    monkeypatch.setattr(job_skips.zookeeper, "ask", ask)
    part = ["--partition", "0", "--from", "5", "--to", "9"]
    done = run("skip", "traffic", *part, "--why", "a bomb", "--yes")
    assert "leaves out 4 offsets of events-0, from 5 to 8" in done.output
    [(path, question, seconds)] = asked
    assert (path, seconds) == ("traffic/skip", 300)
    assert question["topic"] == "events"
    assert (question["from"], question["to"], question["lost"]) == (5, 9, False)
    assert question["why"] == "a bomb"
    assert question["who"]


def test_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_skips.zookeeper, "ask", lambda *_: {"error": "nothing is lost"})
    done = run("skip", "traffic", "--partition", "0", "--lost", "--why", "a trial", "--yes")
    assert isinstance(done.exception, OperatorError)
    assert done.exception.message == "job traffic: nothing is lost"


@pytest.mark.parametrize(
    ("start", "end", "lost"),
    [(None, None, False), (1, None, False), (1, 2, True), (None, 2, True), (2, 2, False)],
)
def test_it_is_a_range_or_a_loss(start: int | None, end: int | None, lost: bool) -> None:
    with pytest.raises(OperatorError):
        job_skips.require_range(start, end, lost)


def test_what_is_skipped_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_skips, "skipped", lambda *_: [LOST, HUGE])
    output = run("skips", "archive").output
    assert "10 to 12" in output
    assert "lost by retention: retention" in output
    assert "the driver" in output


def test_an_audit_knows_what_is_skipped() -> None:
    places = {"partition": [0, 0, 0, 1], "offset": [9, 10, 12, 7]}
    read, number = audit.without(pa.table(places), [LOST])
    assert read.to_pydict() == {"partition": [0, 1], "offset": [9, 7]}
    assert number == 2


def test_what_is_missing_and_skipped_is_not_lost() -> None:
    plane = Plane("archive")
    ledger: Any = type("Ledger", (), {"partition": np.array([0, 0]), "offset": np.array([9, 10])})
    assert audit.excuse(plane, ledger, np.array([0, 1]), [LOST]).tolist() == [0]
    assert plane.skipped == 1
    assert plane.ok
