"""What an operator asks of a job is answered once, by the driver that leads."""

import threading
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.leadership.lease import LeaseLost
from millrace_jobs.requests import operator_requests as module
from millrace_jobs.requests.operator_requests import OperatorRequests
from millrace_jobs.requests.retry import Outcome

from tests.waiting import PATIENCE_SECONDS

RETRY = {"id": "r", "records": ["events-0-7"]}


@dataclass
class Coordination:
    asked: dict[str, dict[str, Any]]
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    tries: int = 0

    def question(self, job: str, about: str) -> dict[str, Any] | None:
        return None if about in self.answers else self.asked.get(about)

    def count_try(self, job: str, about: str, id: str) -> int:
        self.tries += 1
        return self.tries

    def answer(self, job: str, about: str, answer: dict[str, Any]) -> None:
        self.answers.setdefault(about, []).append(answer)


def asked(tries: int = 0, **questions: Any) -> dict[str, list[dict[str, Any]]]:
    """What is answered when a driver has looked three times.

    Args:
        tries: of drivers before it.
    """
    coordination = Coordination(questions, tries=tries)
    job: Any = SimpleNamespace(output=SimpleNamespace(job="test"))
    answering = OperatorRequests(coordination)  # type: ignore[arg-type]
    for _ in range(3):
        answering.look([job])
        for thread in threading.enumerate():
            if thread.name in module.ANSWERS:
                thread.join(PATIENCE_SECONDS)
    return coordination.answers


def counted(_: Any, ids: list[str]) -> list[Outcome]:
    return [Outcome(id, True, "counted") for id in ids]


COUNTED = {"outcomes": [{"id": "events-0-7", "counted": True, "what": "counted"}], "id": "r"}


def test_an_error_is_told_and_the_question_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("no archive\nand a plan")

    monkeypatch.setattr(module, "retry", fail)
    assert asked(retry=RETRY) == {"retry": [{"error": "ValueError: no archive", "id": "r"}]}


def test_a_question_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "retry", counted)
    assert asked(retry=RETRY) == {"retry": [COUNTED]}


def test_who_leads_no_more_leaves_the_answer_to_who_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: Any) -> None:
        raise LeaseLost

    monkeypatch.setattr(module, "retry", lose)
    assert asked(retry=RETRY) == {}


def test_a_question_by_which_drivers_end_is_not_taken_up_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "retry", counted)
    for tries in range(module.TRIES):
        assert asked(tries, retry=RETRY)["retry"] == [COUNTED]
    [answer] = asked(module.TRIES, retry=RETRY)["retry"]
    assert "2 drivers have ended while they answered it; ask for less" in answer["error"]


@pytest.mark.parametrize(("ahead", "answered"), [(60, True), (-1, False)])
def test_a_question_that_nobody_waits_for_is_not_answered(
    monkeypatch: pytest.MonkeyPatch, ahead: float, answered: bool
) -> None:
    monkeypatch.setattr(module, "retry", counted)
    [answer] = asked(retry=RETRY | {"until": time.time() + ahead})["retry"]
    assert ("outcomes" in answer) == answered
    assert answered or answer["error"] == "nobody answered in time; ask again"
