"""A ledger's files, written while the load runs and readable at any time, even after a crash.

``spec.json`` never changes. ``acks.bin`` only grows: a record for each event whose fate is known.
``state.json`` is replaced as a whole: how many events were sent, and how far behind schedule.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from millrace.common.errors import OperatorError
from millrace.ledger import events
from millrace.ledger.spec import Spec

FATE = np.dtype([("number", "<u4"), ("partition", "i1"), ("offset", "<i8"), ("ms", "<i4")])
PORTION = 1_000_000  # events that are made anew at once
FAILED = -1  # in place of a partition: the producer gave the event up


@dataclass(frozen=True)
class State:
    """``sent`` is at least as many as were sent; ``behind`` is in seconds, the worst so far."""

    sent: int = 0
    behind: float = 0.0
    finished: bool = False


class Ledger:
    """What is known of a run, as it was when opened; arrays are by event number.

    Neither acknowledged nor failed is *in doubt*: such an event may or may not be in the log. So
    may a failed one, of which the producer only knows that it never heard.
    """

    def __init__(self, path: Path, spec: Spec, state: State, fates: np.ndarray) -> None:
        self.path = path
        self.spec = spec
        self.behind_seconds = state.behind
        self.finished = state.finished
        numbers = fates["number"].astype(np.int64)
        count = max(state.sent, int(numbers.max(initial=-1)) + 1)
        self.partition = np.full(count, FAILED, np.int8)
        self.offset = np.full(count, -1, np.int64)
        self.acked_ms = np.full(count, -1, np.int32)
        self.partition[numbers] = fates["partition"]
        self.offset[numbers] = fates["offset"]
        self.acked_ms[numbers] = fates["ms"]
        self.acked = self.partition != FAILED
        self.failed = int((fates["partition"] == FAILED).sum())

    @classmethod
    def open(cls, path: Path | str) -> "Ledger":
        """Opens the ledger in a folder. Raises OperatorError when there is none."""
        folder = Path(path)
        try:
            spec = Spec.from_json((folder / "spec.json").read_text())
            state = State(**json.loads((folder / "state.json").read_text()))
            content = (folder / "acks.bin").read_bytes()
        except (OSError, ValueError, TypeError) as error:
            raise OperatorError(
                f"{folder} is no ledger: {error}", "`millrace load` writes one and prints its path"
            ) from None
        whole = len(content) // FATE.itemsize * FATE.itemsize  # a crash may cut the last record
        return cls(folder, spec, state, np.frombuffer(content[:whole], FATE))

    @property
    def started(self) -> float:
        """Returns when the run began, in seconds since 1970."""
        return self.spec.started_ms / 1000

    @property
    def in_doubt(self) -> int:
        return len(self.acked) - int(self.acked.sum()) - self.failed

    def events(self, numbers: np.ndarray) -> pa.Table:
        """Returns the events with these numbers; see `millrace.ledger.events`."""
        return events.events(self.spec, numbers)

    def portions(self, numbers: np.ndarray) -> Iterator[pa.Table]:
        """Yields events some at a time: twenty million at once would take gigabytes."""
        for portion in np.split(numbers, range(PORTION, len(numbers), PORTION)):
            yield self.events(portion)

    def produce_gaps(self, since: float, until: float) -> dict[int, float]:
        """For each partition the longest time (s) without an acknowledgement in that span.

        Both are seconds since 1970. A partition that got nothing counts the whole span.
        """
        first, last = 1000 * (since - self.started), 1000 * (until - self.started)
        return {
            partition: _longest_gap(times, first, last) / 1000
            for partition, times in enumerate(self._ack_times)
        }

    @cached_property
    def _ack_times(self) -> list[np.ndarray]:
        """Returns by partition, in order, when acknowledgements came, in ms since the start."""
        return [
            np.sort(self.acked_ms[self.partition == partition])
            for partition in range(self.spec.partitions)
        ]


def _longest_gap(times: np.ndarray, first: float, last: float) -> float:
    inside = times[(times >= first) & (times <= last)]
    return float(np.diff(np.concatenate([[first], inside, [last]])).max())


class Writer:
    """Makes a new ledger. What was recorded is on file after `write`, and survives this process."""

    def __init__(self, path: Path, spec: Spec) -> None:
        """Raises OperatorError when the run's name is taken."""
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise OperatorError(
                f"there is a ledger of run {spec.run} already: {path}",
                "--run NAME takes another name",
            ) from None
        self.path = path
        self._fates: list[tuple[int, int, int, int]] = []
        (path / "spec.json").write_text(spec.to_json())
        self._acks = (path / "acks.bin").open("ab", buffering=0)
        self.write(State())

    def record(self, number: int, partition: int, offset: int, ms: int) -> None:
        """An event's fate; called for each, hence as short as can be."""
        self._fates.append((number, partition, offset, ms))

    def record_all(self, fates: np.ndarray) -> None:
        """Records the fates of many events, as an array of FATE; they are on file when this
        returns."""
        self._acks.write(fates.tobytes())

    def write(self, state: State) -> None:
        fates, self._fates = self._fates, []
        if fates:
            self._acks.write(np.array(fates, FATE).tobytes())
        new = self.path / "state.json.new"
        new.write_text(json.dumps(asdict(state)))
        os.replace(new, self.path / "state.json")

    def close(self, state: State) -> None:
        self.write(state)
        self._acks.close()


def newest(folder: Path) -> Path:
    """The ledger that was begun last; raises OperatorError when there is none."""
    ledgers = [path.parent for path in folder.glob("*/spec.json")]
    if not ledgers:
        raise OperatorError("there is no ledger yet", "`millrace load` writes one")
    return max(
        ledgers, key=lambda path: Spec.from_json((path / "spec.json").read_text()).started_ms
    )
