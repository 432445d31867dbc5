"""Batches of a query that runs are sized by what the last ones took, and wait for their turn."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.inputs.skipped import SkippedRange
from millrace_jobs.leader import turns
from millrace_jobs.leader.turns import LONGEST_WAIT_SECONDS, TOLD_SECONDS, Turns
from millrace_jobs.query import pacing
from millrace_jobs.query.pacing import Pacing
from py4j.protocol import Py4JError

from tests.jobs.samples import settings_of

LEAST, MOST = 500, 60_000


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time


class Limits:
    """What queries were told, by job; ``error`` is raised instead."""

    def __init__(self) -> None:
        self.told: dict[str, list[int]] = {}
        self.knows = True
        self.error: Exception | None = None

    def set(self, _: Any, query: Any, records: int) -> bool:
        if self.error:
            raise self.error
        if self.knows:
            self.told.setdefault(query.name, []).append(records)
        return self.knows


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pacing, "time", clock)
    monkeypatch.setattr(turns, "time", clock)
    return clock


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Limits:
    limits = Limits()
    monkeypatch.setattr(pacing, "set_read_limit", limits.set)
    return limits


def paced(job: str, **settings: Any) -> Pacing:
    context: Any = SimpleNamespace(
        job=job,
        settings=settings_of(job, like=job.partition("_")[0], **settings),
        least_offsets=LEAST,
        max_offsets=MOST,
        batch_size=None,
        skips_ahead=(),
        spark=SimpleNamespace(sparkContext=None),
    )
    query: Any = SimpleNamespace(name=job, status={"isTriggerActive": True}, isActive=True)
    return Pacing(context, query)


def report(records: int, seconds: float, left: int = 0) -> Any:
    """Spark's, of a batch after which so many records of a topic are left."""
    metrics = {"maxOffsetsBehindLatest": str(left)}
    half = records // 2
    sources = [
        SimpleNamespace(
            startOffset=json.dumps({"events": {"0": 100, "1": 7}}),
            endOffset=json.dumps(
                {"events": {"0": 100 + half, "1": 7 + records - half, "2": 10**6}}
            ),
            metrics=metrics,
        ),
        SimpleNamespace(startOffset=None, endOffset='{"clicks": {"0": 10000000}}', metrics=metrics),
    ]
    return SimpleNamespace(sources=sources, durationMs={"triggerExecution": int(1000 * seconds)})


def test_a_query_is_told_when_its_size_changes(clock: Clock, limits: Limits) -> None:
    one = paced("traffic")
    one.apply(is_held=False)
    assert limits.told == {}  # it has been started with the least
    one.take_in(report(LEAST, 1.0, left=9))
    one.apply(is_held=False)
    one.apply(is_held=False)
    assert limits.told == {"traffic": [4 * LEAST]}


def test_a_query_that_goes_on_here_knows_the_cores(clock: Clock, limits: Limits) -> None:
    one = paced("traffic")
    one.take_in(report(LEAST, 1.0, left=9))
    next_one = Pacing(one._context, one._query)
    next_one.apply(is_held=False)
    assert limits.told == {"traffic": [4 * LEAST]}


def test_a_query_that_has_yet_to_look_for_its_sources_is_told_later(
    clock: Clock, limits: Limits
) -> None:
    one = paced("traffic")
    one.take_in(report(LEAST, 1.0))
    limits.knows = False
    one.apply(is_held=False)
    limits.knows = True
    one.apply(is_held=False)
    assert limits.told == {"traffic": [4 * LEAST]}


@pytest.mark.parametrize("error", [Py4JError("no such method"), TypeError("no such class")])
def test_a_query_that_can_t_be_told_goes_on_and_says_so_once(
    clock: Clock, limits: Limits, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    one = paced("traffic")
    one.take_in(report(LEAST, 1.0))
    limits.error = error
    one.apply(is_held=False)
    one.apply(is_held=False)
    assert [record.message for record in caplog.records] == [
        f"traffic: batches stay as they are: {error}"
    ]
    limits.error = None
    one.apply(is_held=False)
    assert limits.told == {"traffic": [4 * LEAST]}


def test_who_takes_too_long_or_leaves_records_behind_is_behind(clock: Clock) -> None:
    one = paced("traffic", batch_target_seconds=4)
    assert one.is_behind()  # it has just started
    one.take_in(report(100, 1.0))
    assert not one.is_behind()
    one.take_in(report(100, 1.0, left=1))
    assert one.is_behind()
    one.take_in(report(100, 4.1))
    assert not one.is_behind()  # slow, and level
    one.take_in(report(100, 12.1))
    assert one.is_behind()
    one._query.isActive = False  # type: ignore[misc]
    assert not one.is_behind()
    one.take_in(report(0, 0.1))
    assert not one.is_behind()
    clock.now += 13  # in one batch
    assert one.is_behind()
    one._query.status["isTriggerActive"] = False  # type: ignore[index]
    assert not one.is_behind()


def test_an_archive_waits_while_results_are_behind_but_not_for_ever(
    clock: Clock, limits: Limits
) -> None:
    traffic, archive, clicks = paced("traffic"), paced("archive"), paced("archive_clicks")
    both, order = [traffic, archive], Turns()
    order.look(both)
    assert limits.told == {"archive": [0]}
    clock.now += LONGEST_WAIT_SECONDS
    order.look(both)
    held = LONGEST_WAIT_SECONDS / archive._context.settings.batch_target_seconds
    assert limits.told == {"archive": [0, (1 + held) * LEAST]}  # with what came meanwhile
    archive.take_in(report(LEAST, 15.0, left=10**6))
    order.look(both)
    assert limits.told["archive"][2:] == [0]  # it has had its batch
    traffic.take_in(report(10, 0.5))
    order.look(both)
    assert limits.told["archive"][3:] == [666]
    assert clicks.waits


def test_an_archive_that_has_to_wait_again_and_again_keeps_up(clock: Clock, limits: Limits) -> None:
    """Results stay behind; it has a batch a minute, and what comes in a minute."""
    traffic, archive, order = paced("traffic"), paced("archive"), Turns()
    target = archive._context.settings.batch_target_seconds
    rate, got, began = LEAST / target, 0.0, clock.now
    for _ in range(10):
        order.look([traffic, archive])
        clock.now += LONGEST_WAIT_SECONDS
        order.look([traffic, archive])
        records = limits.told["archive"][-1]
        clock.now += records / rate  # the cores carry no more than a first batch in its target
        archive.take_in(report(records, records / rate, left=10**6))
        got += records
    assert got / (clock.now - began) == pytest.approx(rate / 2, rel=0.2)


def test_an_archive_doesn_t_wait_while_its_batches_end_before_skips(
    clock: Clock, limits: Limits
) -> None:
    """They are small, whatever it is allowed: it would pass a skip a minute."""
    traffic, archive, order = paced("traffic"), paced("archive"), Turns()
    archive._context.skips_ahead = (SkippedRange("events", 0, 5, 6),)
    order.look([traffic, archive])
    assert limits.told == {}
    archive._context.skips_ahead = ()
    order.look([traffic, archive])
    assert limits.told == {"archive": [0]}


def test_an_archive_doesn_t_wait_for_another_one(clock: Clock, limits: Limits) -> None:
    traffic, archive = paced("traffic"), paced("archive")
    traffic.take_in(report(10, 0.5))
    archive.take_in(report(LEAST, 60.0, left=10**6))
    Turns().look([traffic, archive])
    assert 0 not in limits.told.get("archive", [])


def test_others_are_told_who_is_behind_for_more_than_a_moment(clock: Clock, limits: Limits) -> None:
    traffic, order = paced("traffic"), Turns()
    order.look([traffic])
    assert order.behind_since() == {}
    began = clock.now
    clock.now += TOLD_SECONDS
    order.look([traffic])
    assert order.behind_since() == {"traffic": began}
    traffic.take_in(report(10, 0.5))
    order.look([traffic])
    assert order.behind_since() == {}
