"""The replay itself: lines in, paced batches out."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Event
from typing import Protocol

from millrace.replay.events import Encoder, Message
from millrace.replay.pace import Pace
from millrace.replay.progress import Progress
from millrace.replay.source import Line, Lines

BATCH_MESSAGES = 10_000
BATCH_BYTES = 16 * 1024 * 1024
BATCH_SECONDS = 0.5  # no event waits longer for its transaction
SHORTEST_SLEEP = 0.02  # below this, sleeping costs more than the precision is worth


class Log(Protocol):
    def append(self, messages: list[Message], progress: Progress) -> None: ...


@dataclass
class Batch:
    """Lines that will be committed together; bounded in number, bytes, age and event time."""

    span: float  # of event time, in seconds, at most
    messages: list[Message] = field(default_factory=list)
    last: Line | None = None
    malformed: int = 0
    bytes: int = 0
    earliest: float = float("inf")
    latest: float = float("-inf")
    opened: float = 0.0

    def takes(self, message: Message) -> bool:
        if not self.messages:
            return True
        return (
            len(self.messages) < BATCH_MESSAGES
            and self.bytes + len(message.value) <= BATCH_BYTES
            and time.monotonic() - self.opened < BATCH_SECONDS
            and self._span_with(message.time) <= self.span
        )

    def add(self, line: Line, message: Message) -> None:
        if not self.messages:
            self.opened = time.monotonic()
        self.messages.append(message)
        self.last = line
        self.malformed += message.malformed
        self.bytes += len(message.value)
        if message.time is not None:
            self.earliest = min(self.earliest, message.time)
            self.latest = max(self.latest, message.time)

    def position(self, before: Progress) -> Progress:
        """The progress once this batch is committed after ``before``."""
        if self.last is None:
            return before
        return replace(
            before,
            lines=self.last.number,
            offset=self.last.end,
            malformed=before.malformed + self.malformed,
            done=False,
        )

    def _span_with(self, when: int | None) -> float:
        if when is None:
            return 0.0
        return max(self.latest, when) - min(self.earliest, when)


class Replay:
    """Sends what is left of a source. ``progress`` is always what is committed."""

    def __init__(
        self,
        log: Log,
        encode: Encoder,
        pace: Pace,
        progress: Progress,
        span: float,
        stop: Event,
        report: Callable[[Progress, float], None],
    ) -> None:
        self.progress = progress
        self._log = log
        self._encode = encode
        self._pace = pace
        self._stop = stop
        self._report = report
        self._batch = Batch(span)

    def run(self, lines: Lines) -> None:
        """Sends the lines until they end or the operator stops it."""
        for line in lines:
            if self._stop.is_set():
                break
            if line is None:
                self._commit()
            elif not self._send(line):
                break
        else:
            self._finish()
        self._commit()

    def _send(self, line: Line) -> bool:
        """Adds the line to the batch when its time has come; False when stopped before that."""
        message = self._encode(line)
        wait = self._pace.wait(message.time)
        if wait > BATCH_SECONDS or not self._batch.takes(message):
            self._commit()
        if wait > SHORTEST_SLEEP and self._stop.wait(wait):
            return False
        self._batch.add(line, message)
        return True

    def _commit(self) -> None:
        if self._batch.messages:
            self._append(self._batch.position(self.progress))

    def _finish(self) -> None:
        self._append(replace(self._batch.position(self.progress), done=True))

    def _append(self, reached: Progress) -> None:
        reached = replace(reached, updated=datetime.now(UTC).isoformat(timespec="seconds"))
        self._log.append(self._batch.messages, reached)
        self.progress = reached
        self._report(reached, self._batch.latest)
        self._batch = Batch(self._batch.span)
