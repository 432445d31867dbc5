"""Questions that are asked all at once, and share one deadline."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from millrace.cluster.services import BadAnswer
from millrace.common.errors import OperatorError
from millrace.status.snapshot import Fault, Reply, Silence

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Round:
    """Each question has a thread of its own, which nobody waits for after the deadline.

    What a question raises is its reply: BadAnswer and OSError (refused, unreachable) are a Fault,
    TimeoutError and all else a Silence.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self._deadline = self._began + seconds

    @property
    def left(self) -> float:
        """Seconds until the deadline; never less than an instant, which sockets take for none."""
        return max(0.01, self._deadline - self._now())

    def ask(self, whom: str, question: Callable[[], T]) -> "Pending[T]":
        return Pending(self, whom, question)

    def waited(self, whom: str) -> Silence:
        return Silence(f"{whom} gave no answer in {self._now() - self._began:.0f} s")


class Pending(Generic[T_co]):
    """A question that is on its way."""

    def __init__(self, asked: Round, whom: str, question: Callable[[], T_co]) -> None:
        self._round = asked
        self._whom = whom
        self._question = question
        self._reply: Reply[T_co] | None = None
        self._answered = threading.Event()
        threading.Thread(target=self._ask, name=f"asks {whom}", daemon=True).start()

    def reply(self) -> Reply[T_co]:
        """The answer, or what came instead by the deadline."""
        self._answered.wait(self._round.left)
        return self._round.waited(self._whom) if self._reply is None else self._reply

    def _ask(self) -> None:
        self._reply = self._outcome()
        self._answered.set()

    def _outcome(self) -> Reply[T_co]:
        try:
            return self._question()
        except TimeoutError:
            return self._round.waited(self._whom)
        except OperatorError as error:
            return Silence(f"{self._whom}: {error.message}")
        except BadAnswer as error:
            return Fault(f"{self._whom}: {error}")
        except OSError as error:
            return Fault(f"{self._whom}: {error.strerror or error}")
        except Exception as error:  # nobody can read it: that says nothing of the service
            return Silence(f"{self._whom}: {type(error).__name__}: {error}")
