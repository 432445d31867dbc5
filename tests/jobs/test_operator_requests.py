"""What an operator asks of a job is answered once, by the driver that leads."""

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.leadership.lease import LeaseLost
from millrace_jobs.requests import operator_requests as module
from millrace_jobs.requests.operator_requests import OperatorRequests
from millrace_jobs.requests.retry import Outcome

from tests.waiting import PATIENCE_SECONDS

RECOUNT = {"id": "q", "start": "2026-01-01T00:00:00", "end": "2026-01-02T00:00:00"}
RETRY = {"id": "r", "records": ["events-0-7"]}


@dataclass
class Coordination:
    asked: dict[str, dict[str, Any]]
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def question(self, job: str, about: str) -> dict[str, Any] | None:
        return None if about in self.answers else self.asked.get(about)

    def answer(self, job: str, about: str, answer: dict[str, Any]) -> None:
        self.answers.setdefault(about, []).append(answer)


def asked(**questions: Any) -> dict[str, list[dict[str, Any]]]:
    """What is answered when a driver has looked three times."""
    coordination = Coordination(questions)
    job: Any = SimpleNamespace(output=SimpleNamespace(job="test"))
    answering = OperatorRequests(coordination)  # type: ignore[arg-type]
    for _ in range(3):
        answering.look([job])
        for thread in threading.enumerate():
            if thread.name in module.ANSWERS:
                thread.join(PATIENCE_SECONDS)
    return coordination.answers


def test_an_error_is_told_and_the_question_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("no archive\nand a plan")

    monkeypatch.setattr(module, "recount", fail)
    assert asked(recount=RECOUNT) == {
        "recount": [{"error": "ValueError: no archive", "id": "q"}],
    }


def test_both_questions_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "recount", lambda *_: Outcome("", True, "a recount"))
    monkeypatch.setattr(
        module, "retry", lambda _, ids: [Outcome(id, True, "counted") for id in ids]
    )
    answers = asked(recount=RECOUNT, retry=RETRY)
    assert answers["recount"][0]["what"] == "a recount"
    assert answers["retry"] == [
        {"outcomes": [{"id": "events-0-7", "counted": True, "what": "counted"}], "id": "r"}
    ]


def test_who_leads_no_more_leaves_the_answer_to_who_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: Any) -> None:
        raise LeaseLost

    monkeypatch.setattr(module, "retry", lose)
    assert asked(retry=RETRY) == {}
