"""Two drivers, whatever happens to them: nothing is lost or doubled, and nothing goes back.

The real runner, lease, epochs, sinks and checks run in `world`, and the clock that epochs fall back
on is the slowest of all. Then one protection at a time is taken away: the same kind of histories
must show that, on the plane that it protects.
"""

import itertools
import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kazoo.exceptions import BadVersionError
from millrace_jobs.leader import running
from millrace_jobs.leadership.coordination import Coordination
from millrace_jobs.leadership.lease import Lease
from millrace_jobs.sinks import archive, results
from millrace_jobs.sinks.cassandra import Tables
from millrace_jobs.sinks.results import Results

from tests.jobs.world import Event, History, installed, run

REQUESTS = 110  # of a history in which nothing happens
APART = 24  # requests between two events


@pytest.fixture(scope="module", autouse=True)
def _world() -> Iterator[None]:
    logging.disable(logging.ERROR)  # drivers have much to say about their ends
    with installed():
        yield
    logging.disable(logging.NOTSET)


Events = tuple[Event, ...]


def histories(events: Events) -> Iterator[History]:
    """The events, beginning at each request in turn."""
    for first in range(1, REQUESTS + 1):
        yield {first + number * APART: event for number, event in enumerate(events)}


def history(events: list[tuple[int, Event]]) -> History:
    """Each event so many requests after the one before."""
    moments = itertools.accumulate(gap for gap, _ in events)
    return dict(zip(moments, (event for _, event in events), strict=True))


def test_when_nothing_happens_all_is_counted_once() -> None:
    assert run({}) == []


@pytest.mark.parametrize(
    "events",
    [
        (Event.CRASH,),
        (Event.LOSE_REPLY,),
        (Event.FREEZE,),  # until all is done
        (Event.FREEZE, Event.SWITCH),
        (Event.CRASH, Event.RESTORE_ZOOKEEPER),
        (Event.ROLL_BACK,),
        (Event.ROLL_BACK_UNTOLD,),
        (Event.LOSE_CHECKPOINT,),
    ],
)
def test_it_may_happen_at_any_request(events: Events) -> None:
    faults = [(history, run(history)) for history in histories(events)]
    assert not [found for found in faults if found[1]]


GAPS = st.integers(1, APART) | st.integers(1, REQUESTS)


@settings(derandomize=True, database=None)
@given(st.lists(st.tuples(GAPS, st.sampled_from(Event)), min_size=2, max_size=6).map(history))
def test_whatever_happens_nothing_is_lost_or_doubled_or_goes_back(happens: History) -> None:
    assert run(happens) == []


# -- Without one protection


def at_now(upsert: Any) -> Any:
    """Cassandra's own timestamps: whoever writes last wins."""
    now = itertools.count(2**62)
    return lambda self, table, columns, rows, _, partition_columns=1: upsert(
        self, table, columns, rows, next(now), partition_columns
    )


def without_token(append: Any) -> Any:
    """To Delta each append is another application's."""
    return lambda events, time, path, application, *rest: append(
        events, time, path, f"{application} {uuid.uuid4()}", *rest
    )


def as_stranger(connect: Any) -> Any:
    """A producer that shares no identity with its predecessor's fences nobody."""

    def connect_as_stranger(self: Results, *arguments: Any, **more: Any) -> None:
        connect(self, *arguments, **more)
        self._settings |= {"transactional.id": str(uuid.uuid4())}
        self._producer = results.Producer(self._settings)

    return connect_as_stranger


def unconditional(_: Any) -> Any:
    """A node is set whoever leads."""

    def write(self: Lease, path: str, value: bytes, version: int) -> bool:
        try:
            self._client.set(path, value, version)
        except BadVersionError:
            return False
        return True

    return write


def above_nothing(take_epoch: Any) -> Any:
    """An epoch above those that ZooKeeper knows of, whatever has written."""
    return lambda self, job, above: take_epoch(self, job, 0)


def saying(value: Any) -> Any:
    return lambda _: lambda *_, **__: value


@dataclass(frozen=True)
class Protection:
    """``without`` makes of the function at each of the ``places`` one that doesn't protect.

    Then the ``events`` show on one of the ``planes``; on none if other protections are enough.
    """

    places: list[tuple[Any, str]]
    without: Any
    events: Events
    planes: tuple[str, ...]


CASSANDRA = ("traffic", "pages", "page_lists", "job_progress", "dead_letter_counts")
ALL = (*CASSANDRA, "results", "archive")
WAKES = (Event.FREEZE, Event.SWITCH)
PROTECTIONS = {
    "Cassandra's timestamps": Protection([(Tables, "upsert")], at_now, (Event.FREEZE,), CASSANDRA),
    "Delta's token": Protection([(archive, "append")], without_token, (Event.CRASH,), ("archive",)),
    "the offsets' token": Protection(
        [(Results, "_last_published")], saying((-1, False)), (Event.CRASH,), ("results",)
    ),
    "the producer's identity": Protection(
        [(Results, "__init__")], as_stranger, (Event.FREEZE,), ("results",)
    ),
    "the epoch above that of the rows": Protection(
        [(Coordination, "take_epoch")], above_nothing, (Event.CRASH, Event.RESTORE_ZOOKEEPER), ALL
    ),
    "the continuity of one that went back": Protection(
        [(running, "check_continuity")], saying(None), (Event.ROLL_BACK,), ALL
    ),
    "the continuity of one that is gone": Protection(
        [(running, "check_continuity")], saying(None), (Event.LOSE_CHECKPOINT,), ALL
    ),
    "the offsets of what is published": Protection(
        [(results, "check_published")], saying(None), (Event.ROLL_BACK_UNTOLD,), ALL
    ),
    # Verified, frozen, then its producer joins: the next leader's is fenced, and it must stop.
    "the lease before a write": Protection(
        [(Lease, "confirm")], saying(None), WAKES, (*CASSANDRA, "results")
    ),
    # A driver that wakes up fences its successor, which only joins again: the tokens and the
    # confirmation before its next batch keep it from more.
    "the lease before fencing": Protection([(Lease, "verify")], saying(None), WAKES, ()),
    # It takes an epoch above its successor's, and is stopped before its first batch: before that it
    # tells nothing that could stand above what its successor tells.
    "the lease with the epoch": Protection([(Lease, "write")], unconditional, WAKES, ()),
}


@pytest.mark.parametrize("name", PROTECTIONS)
def test_without_one_protection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = PROTECTIONS[name]
    for place, function in one.places:
        monkeypatch.setattr(place, function, one.without(getattr(place, function)))
    found = next(filter(None, map(run, histories(one.events))), [])
    assert {plane for plane, _ in found} <= set(one.planes)
    assert bool(found) == bool(one.planes)
