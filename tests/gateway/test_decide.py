"""What a gateway decides to do next, by table and by property."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from millrace_gateway.decide import (
    Intent,
    Kill,
    Limits,
    Observation,
    Order,
    Run,
    SendOrder,
    Submission,
    Submit,
    Wait,
    decide,
)

from tests.gateway.fakes import NOW, ONE, PAIR, RUNNING_V2, TOLD_V2, TWO, UPGRADE, run

LIMITS = Limits(drivers=2, submit=120, drain=90, pause=60, settled=300, warm=900, catch_up=20)


def failed(number: int, ago: float, lasted: float = 10) -> Run:
    ended = NOW - ago
    return Run(f"application_{number}", "FAILED", "v2", ended - lasted, ended)


OPEN = Submission("v2", "edge-1", NOW - 20)
NEW_ONE_IS_READY = Observation(
    NOW, RUNNING_V2, TOLD_V2, active=UPGRADE, leading=ONE, standbys=frozenset({TWO})
)
TABLE = {
    "absent: submit": (Observation(NOW, RUNNING_V2), Submit("v2"), "submitting"),
    "absent and to be stopped: nothing": (
        Observation(NOW, Intent("stopped", "v2")),
        Wait(),
        "stopped",
    ),
    "submission under way: wait": (
        Observation(NOW, RUNNING_V2, submission=OPEN),
        Wait(),
        "submitting",
    ),
    "submission of a gateway that died long ago: submit": (
        Observation(NOW, RUNNING_V2, submission=replace(OPEN, started=NOW - 121)),
        Submit("v2"),
        "submitting",
    ),
    "another version's submission may still bring a driver: wait": (
        Observation(NOW, RUNNING_V2, submission=replace(OPEN, version="v1")),
        Wait(),
        "submitting",
    ),
    "one starts: submit the second": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=[run("v2", "ACCEPTED")]),
        Submit("v2"),
        "submitting",
    ),
    "one leads: submit a standby": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=[run("v2")], leading=ONE),
        Submit("v2"),
        "running",
    ),
    "one has just taken over: let it catch up": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=[run("v2")], leading=ONE, led_since=NOW - 19),
        Wait(),
        "running",
    ),
    "one has caught up: submit a standby": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=[run("v2")], leading=ONE, led_since=NOW - 20),
        Submit("v2"),
        "running",
    ),
    "one leads, a standby is being submitted: wait": (
        Observation(NOW, RUNNING_V2, TOLD_V2, OPEN, [run("v2")], leading=ONE),
        Wait(),
        "running",
    ),
    "one leads, standbys fail: back off": (
        Observation(
            NOW, RUNNING_V2, TOLD_V2, None, [run("v2")], [failed(2, 50), failed(3, 1)], leading=ONE
        ),
        Wait(),
        "running",
    ),
    "two, of which one leads: nothing": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=PAIR, leading=ONE),
        Wait(),
        "running",
    ),
    "two on one host: the standby goes, to come elsewhere": (
        Observation(
            NOW,
            RUNNING_V2,
            TOLD_V2,
            active=PAIR,
            leading=ONE,
            standbys=frozenset({TWO}),
            sharing=frozenset({TWO}),
        ),
        Kill(TWO),
        "removing",
    ),
    "two on one host, one of which has only just come there: nothing": (
        Observation(
            NOW,
            RUNNING_V2,
            TOLD_V2,
            active=[run("v2"), run("v2", number=2, started=NOW - 300)],
            leading=ONE,
            standbys=frozenset({TWO}),
            sharing=frozenset({TWO}),
        ),
        Wait(),
        "running",
    ),
    "one of two hangs before it is warm: it goes, for another to come": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=PAIR, leading=ONE, stuck=frozenset({TWO})),
        Kill(TWO),
        "removing",
    ),
    "the new version hangs before it is warm: it goes, the old one leads": (
        Observation(NOW, RUNNING_V2, active=UPGRADE, leading=ONE, stuck=frozenset({TWO})),
        Kill(TWO),
        "removing",
    ),
    "two, of which none leads yet: nothing": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=PAIR),
        Wait(),
        "starting",
    ),
    "told to stop, but wanted again: tell them to run": (
        Observation(NOW, RUNNING_V2, Order("stopped", "v2", NOW - 5), active=PAIR, leading=ONE),
        SendOrder("running", "v2"),
        "running",
    ),
    "old pair: its standby makes room": (
        Observation(NOW, RUNNING_V2, active=[run("v1"), run("v1", number=2)], leading=ONE),
        Kill(TWO),
        "removing",
    ),
    "old leader alone: submit the new version": (
        Observation(NOW, RUNNING_V2, active=[run("v1")], leading=ONE),
        Submit("v2"),
        "submitting",
    ),
    "old leader, new one starts: wait": (
        Observation(NOW, RUNNING_V2, active=UPGRADE, leading=ONE),
        Wait(),
        "handing-over",
    ),
    "old leader, new one stands by: hand over": (
        NEW_ONE_IS_READY,
        SendOrder("stopped", "v1"),
        "draining",
    ),
    "handing over: wait": (
        replace(NEW_ONE_IS_READY, order=Order("stopped", "v1", NOW - 30)),
        Wait(),
        "draining",
    ),
    "handing over for too long: kill": (
        replace(NEW_ONE_IS_READY, order=Order("stopped", "v1", NOW - 91)),
        Kill(ONE),
        "draining",
    ),
    "the old one no longer leads: it goes": (
        Observation(NOW, RUNNING_V2, TOLD_V2, active=UPGRADE, leading=TWO),
        Kill(ONE),
        "removing",
    ),
    "old version without a driver: kill": (
        Observation(NOW, RUNNING_V2, active=[run("v1", "ACCEPTED")]),
        Kill(ONE),
        "removing",
    ),
    "to be stopped: the standby first": (
        Observation(NOW, Intent("stopped", "v2"), TOLD_V2, active=PAIR, leading=ONE),
        Kill(TWO),
        "removing",
    ),
    "to be stopped: then the leader drains": (
        Observation(NOW, Intent("stopped", "v2"), TOLD_V2, active=[run("v2")], leading=ONE),
        SendOrder("stopped", "v2"),
        "draining",
    ),
    "three: the latest that doesn't lead goes": (
        Observation(
            NOW, RUNNING_V2, TOLD_V2, active=[*PAIR, run("v2", number=3)], leading="application_3"
        ),
        Kill(TWO),
        "removing",
    ),
    "ended after a long run: submit at once": (
        Observation(NOW, RUNNING_V2, ended=[failed(1, ago=0.5, lasted=301)]),
        Submit("v2"),
        "submitting",
    ),
    "failed once, 2 s ago: submit": (
        Observation(NOW, RUNNING_V2, ended=[failed(1, ago=2)]),
        Submit("v2"),
        "submitting",
    ),
    "failed three times, 2 s ago: back off": (
        Observation(NOW, RUNNING_V2, ended=[failed(1, 90), failed(2, 50), failed(3, 2)]),
        Wait(),
        "backing-off",
    ),
    "failed three times, 5 s ago: submit": (
        Observation(NOW, RUNNING_V2, ended=[failed(1, 90), failed(2, 50), failed(3, 5)]),
        Submit("v2"),
        "submitting",
    ),
    "spark-submit failed ten times: back off": (
        Observation(NOW, RUNNING_V2, submission=Submission("v2", "edge-1", NOW - 60, NOW - 59, 10)),
        Wait(),
        "backing-off",
    ),
    "another version's failures don't count": (
        Observation(NOW, Intent("running", "v3"), ended=[failed(1, 50), failed(2, 0.1)]),
        Submit("v3"),
        "submitting",
    ),
}


@pytest.mark.parametrize(("seen", "action", "phase"), TABLE.values(), ids=TABLE)
def test_decision(seen, action, phase):
    decision = decide(seen, LIMITS)
    assert (decision.action, decision.phase) == (action, phase)


def test_backing_off_says_when_it_tries_again_and_where_to_look():
    seen = Observation(NOW, RUNNING_V2, ended=[failed(1, 50), failed(2, 1)])
    decision = decide(seen, LIMITS)
    assert decision.detail == (
        "version v2, failure 2, again at 02:46:41 UTC: "
        "application_2 ended FAILED; yarn logs -applicationId application_2"
    )
    assert decision.run == "application_2"


def test_what_a_decision_says_stays_the_same_while_the_situation_does():
    seen = Observation(NOW, RUNNING_V2, ended=[failed(1, 90), failed(2, 50), failed(3, 0)])
    said = {decide(replace(seen, now=NOW + second), LIMITS).detail for second in range(4)}
    assert len(said) == 1


# --- properties ---------------------------------------------------------------------------------

versions = st.sampled_from(["v1", "v2"])
moments = st.floats(min_value=NOW - 1000, max_value=NOW)
intents = st.builds(Intent, st.sampled_from(["running", "stopped"]), versions)
orders = st.builds(Order, st.sampled_from(["running", "stopped"]), versions, moments)
submissions = st.builds(
    Submission,
    version=versions,
    gateway=st.just("edge-1"),
    started=moments,
    ended=st.none() | moments,
    failures=st.integers(0, 40),
)
active_runs = st.builds(
    Run,
    id=st.uuids().map(str),
    state=st.sampled_from(["NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING"]),
    version=versions,
    started=moments,
)
ended_runs = st.builds(
    Run, st.uuids().map(str), st.sampled_from(["FAILED", "KILLED"]), versions, moments, moments
)


@st.composite
def situations(draw):
    active = draw(st.lists(active_runs, max_size=4))
    drivers = [r.id for r in active if r.state == "RUNNING"]
    leading = draw(st.sampled_from(["", *drivers]))
    ready = draw(st.sets(st.sampled_from(drivers))) if drivers else set()
    stuck = draw(st.sets(st.sampled_from(drivers))) if drivers else set()
    return Observation(
        NOW,
        draw(intents),
        draw(st.none() | orders),
        draw(st.none() | submissions),
        active,
        draw(st.lists(ended_runs, max_size=30)),
        leading,
        frozenset(ready - {leading}),
        stuck=frozenset(stuck - ready),
    )


@examples(deadline=None)
@given(situations())
def test_never_submits_more_than_are_wanted_or_beside_one_that_may_still_come(seen):
    if isinstance(decide(seen, LIMITS).action, Submit):
        assert len(seen.active) < LIMITS.drivers
        assert seen.intent.state == "running"
        last = seen.submission
        assert last is None or last.ended is not None or NOW - last.started > LIMITS.submit


@examples(deadline=None)
@given(situations())
def test_who_leads_is_only_killed_when_it_was_told_to_stop_and_hangs(seen):
    action = decide(seen, LIMITS).action
    if isinstance(action, Kill) and action.run == seen.leading:
        version = next(r.version for r in seen.active if r.id == seen.leading)
        assert (seen.order.state, seen.order.version) == ("stopped", version)
        assert NOW - seen.order.since > LIMITS.drain


@examples(deadline=None)
@given(situations())
def test_who_leads_is_only_told_to_stop_when_another_is_ready_or_all_are_to_stop(seen):
    action = decide(seen, LIMITS).action
    if (
        isinstance(action, SendOrder)
        and action.state == "stopped"
        and seen.intent.state == "running"
    ):
        ready = [r for r in seen.active if r.id in seen.standbys]
        assert seen.intent.version in {r.version for r in ready}


@examples(deadline=None)
@given(situations())
def test_submits_at_the_latest_after_the_longest_wait_when_nothing_is_there(seen):
    later = replace(
        seen,
        now=NOW + LIMITS.submit + LIMITS.pause + 1,
        active=[],
        leading="",
        standbys=frozenset(),
    )
    expected = Submit if seen.intent.state == "running" else Wait
    assert isinstance(decide(later, LIMITS).action, expected)


@dataclass
class World:
    """ZooKeeper, YARN, drivers and a gateway, as far as a decision can tell."""

    now: float = NOW
    intent: Intent = RUNNING_V2
    order: Order | None = None
    submission: Submission | None = None
    in_flight: str = ""  # version of the spark-submit that is under way
    active: list[Run] = field(default_factory=list)
    ended: list[Run] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)  # in line for the lease; the first one leads
    submitted: int = 0

    @property
    def leader(self) -> Run | None:
        return next((r for r in self.active if self.ready and r.id == self.ready[0]), None)

    def look(self) -> None:
        """One turn of the gateway."""
        leading = self.ready[0] if self.ready else ""
        seen = Observation(
            self.now,
            self.intent,
            self.order,
            self.submission,
            self.active,
            self.ended,
            leading,
            frozenset(self.ready[1:]),
        )
        match decide(seen, LIMITS).action:
            case Submit(version):
                assert not self.in_flight
                self.order = Order("running", version, self.now)
                self.submission = Submission(version, "edge-1", self.now)
                self.in_flight = version
            case SendOrder(state, version):
                self.order = Order(state, version, self.now)
            case Kill(killed):
                self._end(killed, "KILLED")

    def arrive(self) -> None:
        """spark-submit is through, and its gateway lives to write that down."""
        if self.in_flight:
            self._accept()
            self.submission = replace(self.submission, ended=self.now)

    def arrive_orphaned(self) -> None:
        """spark-submit is through, but its gateway has died."""
        if self.in_flight:
            self._accept()

    def vanish(self) -> None:
        """The gateway dies, and its spark-submit with it, before YARN hears of anything."""
        self.in_flight = ""

    def warm_up(self) -> None:
        """A driver gets in line."""
        waiting = [r.id for r in self.active if r.id not in self.ready]
        self.ready += waiting[:1]

    def crash(self) -> None:
        if self.active:
            self._end(self.active[0].id, "FAILED")

    def obey(self) -> None:
        """Only who leads reads orders."""
        leader = self.leader
        if leader and self.order == replace(self.order, state="stopped", version=leader.version):
            self._end(leader.id, "FINISHED")

    def deploy(self, version: str) -> None:
        self.intent = Intent("running", version)

    def stop(self) -> None:
        self.intent = replace(self.intent, state="stopped")

    def _accept(self) -> None:
        self.submitted += 1
        run_id = f"application_{self.submitted}"
        self.active.append(Run(run_id, "RUNNING", self.in_flight, self.now))
        self.in_flight = ""

    def _end(self, run_id: str, state: str) -> None:
        ended = next(r for r in self.active if r.id == run_id)
        self.active.remove(ended)
        self.ready = [r for r in self.ready if r != run_id]
        self.ended.append(replace(ended, state=state, finished=self.now))


steps = st.sampled_from(
    [
        *[lambda w: w.look()] * 4,
        lambda w: w.arrive(),
        lambda w: w.arrive_orphaned(),
        lambda w: w.vanish(),
        *[lambda w: w.warm_up()] * 2,
        lambda w: w.crash(),
        lambda w: w.obey(),
        lambda w: w.deploy("v1"),
        lambda w: w.deploy("v2"),
        lambda w: w.stop(),
    ]
)


def settle(world: World, rounds: int = 150) -> None:
    for _ in range(rounds):
        world.look()
        world.arrive()
        world.warm_up()
        world.obey()
        world.now += 3


@examples(deadline=None)
@given(st.lists(st.tuples(steps, st.floats(0.1, 20)), max_size=60))
def test_whatever_happens_there_are_never_three_and_in_the_end_there_is_the_right_pair(story):
    world = World()
    for step, seconds in story:
        step(world)
        assert len(world.active) + bool(world.in_flight) <= LIMITS.drivers
        world.now += seconds
        if world.in_flight and world.now - world.submission.started > LIMITS.submit:
            world.vanish()  # its gateway kills it, and a dead gateway's children are dead
    world.deploy("v2")
    settle(world)
    assert [r.version for r in world.active] == ["v2", "v2"]
    assert len(world.ready) == 2


def test_an_upgrade_and_its_back_out_leave_no_moment_without_a_ready_driver():
    world = World()
    settle(world, 10)
    for version in ("v3", "v2"):
        world.deploy(version)
        for _ in range(40):
            world.look()
            world.arrive()
            world.warm_up()
            world.obey()
            world.now += 3
            assert world.ready
        assert {r.version for r in world.active} == {version}
