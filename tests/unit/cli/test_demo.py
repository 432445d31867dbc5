"""The demo's end: what it waits for, how long, and what it says then."""

import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.cli import demo, settling
from millrace.cli.settling import (
    LOOK_EVERY_SECONDS,
    STILL_SECONDS,
    Look,
    await_rest,
    state_left,
    state_line,
    work_left,
)
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.plan import load_plan
from millrace.status.verdict import Component, Status
from millrace_shared.driver_record import DriverRecord
from tests.unit.results import Api

PLAN = load_plan("local")
[APPLICATION] = PLAN.applications
HEALTHY = Component("HDFS", "healthy", "3 of 3", [])
LEADS = DriverRecord("run", "edge-1", "leading", since=1.0)
STANDS_BY = DriverRecord("run", "edge-2", "standby", since=1.0)
IDLE = dict.fromkeys(PLAN.jobs, 0)
AT_REST = Look((), 0, frozenset())
LONG = 1_000  # looks, and no more: an endless wait has to be red


class Clock:
    """Moved by who sleeps, and by looks, which take their time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def waited(looks: Iterable[Look], look_seconds: float = 0.0) -> tuple[Look, Clock, list[str]]:
    """How it ended, when, and what was said meanwhile."""
    clock, told, coming = Clock(), list[str](), iter(looks)

    def look() -> Look:
        clock.sleep(look_seconds)
        return next(coming)

    found = await_rest(look, told.append, now=clock.now, sleep=clock.sleep)
    return found, clock, told


def stuck(records: float = 7) -> Iterator[Look]:
    for _ in range(LONG):
        yield Look((f"{records} to go",), records, frozenset({"edge-1: leading"}))


def status(*components: Component, state: str) -> Status:
    return Status(
        state=state,
        components=list(components),
        hosts={},
        applications=[],
        progress=[],
        alerts=[],
        events=[],
        at=0.0,
        figures_age=None,
        resident=None,
        endpoints={},
    )


# --- how long it waits ----------------------------------------------------------------------------


@given(st.integers(0, 400), st.floats(0, STILL_SECONDS - LOOK_EVERY_SECONDS - 1))
def test_it_waits_as_long_as_records_become_fewer(looks: int, look_seconds: float) -> None:
    """Whatever a look takes: a slow machine is no reason to give up."""
    falling = [Look((f"{n} to go",), n, frozenset()) for n in range(looks, 0, -1)]
    found, _, told = waited([*falling, AT_REST], look_seconds)
    assert found is AT_REST
    assert told == [f"{n} to go" for n in range(looks, 0, -1)]


@given(st.floats(0, 100))
def test_it_gives_up_when_nothing_moves_for_long(look_seconds: float) -> None:
    found, clock, _ = waited(stuck(), look_seconds)
    assert found.waits == ("7 to go",)
    assert clock.seconds >= STILL_SECONDS
    assert clock.seconds <= STILL_SECONDS + 2 * (look_seconds + LOOK_EVERY_SECONDS)


def test_what_comes_and_goes_is_no_progress() -> None:
    """As a driver that is begun again and again, or records of somebody else."""

    def flapping() -> Iterator[Look]:
        for _ in range(LONG):
            yield Look(("a standby: warming",), 9, frozenset({"edge-2: warming"}))
            yield Look(("a standby: none",), 7, frozenset())

    assert not waited(flapping())[0].at_rest


def test_a_sign_that_was_not_there_before_is_progress() -> None:
    signs = [frozenset({f"component {n}: healthy"}) for n in range(10)]
    looks = [Look(("the others",), 0, sign) for sign in signs for _ in range(150)]
    assert waited([*looks, AT_REST])[0] is AT_REST


def test_no_answer_is_none_of_progress_and_not_the_end() -> None:
    silent = Look(("Kafka says nothing of traffic yet",), math.inf, frozenset())
    assert waited([silent] * 100 + [AT_REST])[0] is AT_REST
    assert not waited([silent] * 1000)[0].at_rest


# --- what it waits for ----------------------------------------------------------------------------


def test_jobs_that_have_caught_up_and_a_standby_are_at_rest() -> None:
    assert work_left(PLAN, IDLE, {APPLICATION: [LEADS, STANDS_BY]}).at_rest


@pytest.mark.parametrize(
    ("lags", "drivers", "waits", "records"),
    [
        (
            IDLE | {"traffic": 84_000, "archive": 5},
            [LEADS, STANDS_BY],
            "jobs catch up, records to go: archive 5, traffic 84,000",
            84_005,
        ),
        (
            IDLE,
            [LEADS],
            f"the standby driver of '{APPLICATION}': none has registered yet",
            0,
        ),
        (
            IDLE,
            [LEADS, replace(STANDS_BY, state="warming")],
            f"the standby driver of '{APPLICATION}': warming on edge-2",
            0,
        ),
        (IDLE, None, "ZooKeeper says nothing of drivers yet", 0),
        (
            IDLE | {"traffic": None},
            [LEADS, STANDS_BY],
            "Kafka says nothing of traffic yet",
            math.inf,
        ),
    ],
)
def test_it_says_what_it_waits_for(
    lags: dict[str, int | None], drivers: Any, waits: str, records: float
) -> None:
    found = work_left(PLAN, lags, drivers and {APPLICATION: drivers})
    assert found.waits == (waits,)
    assert found.records == records


def test_a_job_that_catches_up_and_a_driver_s_new_state_are_signs() -> None:
    before = work_left(PLAN, IDLE | {"traffic": 5}, {APPLICATION: [LEADS]})
    after = work_left(PLAN, IDLE, {APPLICATION: [LEADS, STANDS_BY]})
    assert after.signs - before.signs == {
        "traffic has caught up",
        f"{APPLICATION} on edge-2: standby",
    }


@pytest.mark.parametrize("state", ["degraded", "down", "unknown"])
def test_a_state_that_is_not_healthy_is_waited_for(state: str) -> None:
    broken = Component("YARN", state, "1 of 2", ["no standby"])
    found = state_left(AT_REST, status(HEALTHY, broken, state=state))
    assert not found.at_rest
    assert found.signs == {"HDFS: healthy"}
    assert state_left(AT_REST, status(HEALTHY, state="healthy")).at_rest


# --- what it says in the end ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("components", "state", "line"),
    [
        ([HEALTHY], "healthy", "● millrace-local healthy"),
        (
            [HEALTHY, Component("YARN", "degraded", "1 of 2", ["no standby\nthere"])],
            "degraded",
            "▲ millrace-local degraded: YARN degraded: no standby there",
        ),
        (
            [Component(name, "unknown", "", []) for name in ("HDFS", "YARN")],
            "unknown",
            "? millrace-local unknown: not answered yet: HDFS, YARN",
        ),
        (
            [Component(f"C{n}", "down", "gone", []) for n in range(5)],
            "down",
            "✖ millrace-local down: C0 down: gone; C1 down: gone; C2 down: gone;"
            " 2 others, `make status` has all",
        ),
    ],
)
def test_the_state_is_one_line(components: list[Component], state: str, line: str) -> None:
    found = state_line("millrace-local", status(*components, state=state)).plain
    assert found == line
    assert "\n" not in found


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A demo whose steps do nothing and whose results are there."""
    for name in ("run_setup", "make_hosts", "make_services", "run_playbook", "_generated_traffic"):
        monkeypatch.setattr(demo, name, lambda *_, **__: None)
    monkeypatch.setattr(demo, "InsightApi", lambda plan: Api("/a[/b][link=x]\x1b[2J"))
    return io.StringIO()


def run(shown: io.StringIO, monkeypatch: pytest.MonkeyPatch, looks: Iterable[Look]) -> list[str]:
    clock, coming = Clock(), iter(looks)
    monkeypatch.setattr(demo, "looking", lambda plan: lambda: next(coming))
    monkeypatch.setattr(
        demo,
        "await_rest",
        lambda look, tell: await_rest(look, tell, now=clock.now, sleep=clock.sleep),
    )
    try:
        demo.run_demo(PLAN, None, "", Console(file=shown))
    finally:
        lines = shown.getvalue().splitlines()
    return lines


def test_it_ends_with_the_insights_the_state_and_the_address(
    shown: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = replace(AT_REST, status=status(HEALTHY, state="healthy"))
    lines = run(shown, monkeypatch, [*[next(stuck(n)) for n in (3, 2, 1)], end])
    assert any("/a[/b][link=x]␛[2J" in line for line in lines)
    [state] = [n for n, line in enumerate(lines) if line == "● millrace-local healthy"]
    page, keeps = lines[state + 1 :]
    assert page.startswith("The live page: http://")
    assert keeps.endswith("`make down` removes it.")


def test_it_has_not_ended_well_unless_all_is_at_rest(
    shown: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = status(Component("HDFS", "unknown", "", []), state="unknown")
    monkeypatch.setattr(demo, "state", lambda plan: unknown)
    with pytest.raises(OperatorError, match="nothing got on for 15 min: 7 to go"):
        run(shown, monkeypatch, stuck())
    assert "? millrace-local unknown: not answered yet: HDFS" in shown.getvalue()
    assert "views" not in shown.getvalue()  # results that aren't all there yet


def test_all_of_the_cluster_is_asked_once_the_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    drivers = [LEADS]
    monkeypatch.setattr(settling.kafka, "connect", lambda plan: None)
    monkeypatch.setattr(settling, "_lags", lambda plan, admin: IDLE)
    monkeypatch.setattr(settling, "_drivers", lambda plan: {APPLICATION: drivers})

    def state(plan: Any) -> Status:
        asked.append("all")
        return status(HEALTHY, state="healthy")

    monkeypatch.setattr(settling, "state", state)
    look = settling.looking(PLAN)
    assert not look().at_rest
    assert not asked
    drivers.append(STANDS_BY)
    assert look().at_rest
    assert asked == ["all"]
