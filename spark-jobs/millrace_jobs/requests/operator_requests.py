"""What an operator asks of a job, answered by the driver that leads, beside its streams.

It has Spark, the job's code and the tables; see Coordination for the way there and back.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from millrace_jobs.leadership.coordination import Coordination, Topic
from millrace_jobs.leadership.lease import LeaseLost
from millrace_jobs.query.job import StoredRows
from millrace_jobs.requests.retry import retry

TRIES = 2  # a driver may end for any reason

log = logging.getLogger(__name__)

Question = dict[str, Any]


def _retried(job: StoredRows, question: Question) -> dict[str, Any]:
    return {"outcomes": [asdict(outcome) for outcome in retry(job, question["records"])]}


ANSWERS: Mapping[Topic, Callable[[StoredRows, Question], dict[str, Any]]] = {
    "retry": _retried,
}


class OperatorRequests:
    """Answers one question after the other, on a thread of its own."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._busy: threading.Thread | None = None
        self._left: set[str] = set()  # ids of questions that are for who leads now

    def look(self, jobs: Iterable[StoredRows]) -> None:
        """Take up a question about one of the jobs, if there is one and none is being answered."""
        if self._busy and self._busy.is_alive():
            return
        for job in jobs:
            for about in ANSWERS:
                question = self._coordination.question(job.output.job, about)
                if question and question["id"] not in self._left:
                    self._busy = threading.Thread(
                        target=self._answer, args=(job, about, question), name=about, daemon=True
                    )
                    self._busy.start()
                    return

    def _answer(self, job: StoredRows, about: Topic, question: Question) -> None:
        try:
            if refusal := self._refusal(job.output.job, about, question):
                answer: dict[str, Any] = {"error": refusal}
            else:
                answer = ANSWERS[about](job, question)
        except LeaseLost:
            self._left.add(question["id"])
            return
        except Exception as error:  # whoever asked is told; the streams go on
            log.exception("%s of job %s", about, job.output.job)
            answer = {"error": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
        self._coordination.answer(job.output.job, about, answer | {"id": question["id"]})

    def _refusal(self, job: str, about: Topic, question: Question) -> str:
        """Why the question isn't taken up; empty if it is.

        Whoever asked may have left; and a question by which drivers end would end each next one.
        """
        if time.time() > question.get("until", math.inf):
            return "nobody answered in time; ask again"
        if self._coordination.count_try(job, about, question["id"]) > TRIES:
            return f"{TRIES} drivers have ended while they answered it; ask for less at once"
        return ""
