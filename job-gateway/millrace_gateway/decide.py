"""What the gateway does next for one application: a pure function of what it sees.

It keeps no memory of its own. Every clock it goes by stands in ZooKeeper or in YARN, so the gateway
that takes over decides as its predecessor would have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Literal

State = Literal["running", "stopped"]


@dataclass(frozen=True)
class Run:
    """The application as YARN has it, active or ended. Times are seconds since 1970."""

    id: str
    state: str
    version: str
    started: float
    finished: float = 0.0
    containers: int = 0  # its driver and executors that run


@dataclass(frozen=True)
class Intent:
    """What was deployed: by whoever runs `start` or `stop`."""

    state: State
    version: str


@dataclass(frozen=True)
class Order:
    """What the drivers were told last. They read it; only the gateway writes it."""

    state: State
    version: str
    since: float


@dataclass(frozen=True)
class Submission:
    """The last spark-submit. Open as long as ``ended`` is None: a driver may yet come of it."""

    version: str
    gateway: str
    started: float
    ended: float | None = None
    failures: int = 0  # how many in a row brought no application into being
    error: str = ""


@dataclass(frozen=True)
class Limits:
    """``drivers`` of an application, one of which leads; the others are seconds.
    See configs/components/job_gateway.yaml for why."""

    drivers: int
    submit: float
    drain: float
    pause: float
    settled: float
    warm: float
    catch_up: float


@dataclass(frozen=True)
class Observation:
    """Everything a decision rests on. ``active`` and ``ended`` are in the order they started.

    ``leading`` is the run whose driver leads since ``led_since``, ``standbys`` are those whose
    drivers are ready to; ``sharing`` are those of them, or on their way there, that are on the
    leader's host, though YARN has others; ``stuck`` those that warm up for longer than they may.
    """

    now: float
    intent: Intent
    order: Order | None = None
    submission: Submission | None = None
    active: Sequence[Run] = ()
    ended: Sequence[Run] = ()
    leading: str = ""
    standbys: frozenset[str] = frozenset()
    sharing: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    led_since: float = 0.0


@dataclass(frozen=True)
class Wait:
    """Do nothing before the next look."""


@dataclass(frozen=True)
class Submit:
    version: str


@dataclass(frozen=True)
class SendOrder:
    """Write the order that drivers poll."""

    state: State
    version: str


@dataclass(frozen=True)
class Kill:
    run: str


@dataclass(frozen=True)
class Decision:
    """``phase`` and ``detail`` tell operators why; they change only when the situation does.
    ``run`` is the one that they speak of, if there is one."""

    action: Wait | Submit | SendOrder | Kill
    phase: str
    detail: str
    run: str = ""


def decide(seen: Observation, limits: Limits) -> Decision:
    """The one next step from what is to what was deployed."""
    leader = next((run for run in seen.active if run.id == seen.leading), None)
    if seen.intent.state == "stopped":
        return _stop(seen, leader, limits)
    wanted = [run for run in seen.active if run.version == seen.intent.version]
    outdated = [run for run in seen.active if run not in wanted and run is not leader]
    if outdated:
        # Makes room for the new version. What leads goes on meanwhile.
        return _remove(outdated[-1], f"an earlier version than {seen.intent.version}")
    if stuck := [run for run in wanted if run.id in seen.stuck and run is not leader]:
        # YARN sees a process that runs, and would leave it so for ever.
        return _remove(stuck[-1], f"it isn't warm after {limits.warm:.0f} s")
    if len(wanted) > limits.drivers:
        # Only a gateway that was frozen while it submitted can bring this about.
        return _remove([run for run in wanted if run is not leader][-1], "one too many")
    if leader and leader not in wanted:
        return _hand_over(seen, leader, wanted, limits)
    if len(wanted) < limits.drivers:
        return _bring_up(seen, wanted, limits)
    # One host's loss would end both.
    if together := [run for run in wanted if _is_to_move(seen, run, limits)]:
        return _remove(together[-1], "the leading driver's host is its own")
    return _keep(seen, wanted)


def _is_to_move(seen: Observation, run: Run, limits: Limits) -> bool:
    """The last of YARN's attempts takes whatever host it gets; a new run can choose again."""
    return run.id in seen.sharing and seen.now - run.started > limits.settled


def _stop(seen: Observation, leader: Run | None, limits: Limits) -> Decision:
    # The standbys first: they would lead when the leader is gone.
    if others := [run for run in seen.active if run is not leader]:
        return _remove(others[-1], "all are to stop")
    if leader:
        return _drain(seen, leader, "stop", limits)
    return Decision(Wait(), "stopped", f"version {seen.intent.version}")


def _remove(run: Run, why: str) -> Decision:
    """End a run that doesn't lead: it has nothing under way that it could finish."""
    return Decision(Kill(run.id), "removing", f"{run.id}, version {run.version}: {why}", run.id)


def _hand_over(seen: Observation, leader: Run, wanted: list[Run], limits: Limits) -> Decision:
    """The old version leads until the new one is ready to."""
    if any(run.id in seen.standbys for run in wanted):
        return _drain(seen, leader, seen.intent.version, limits)
    if not wanted:
        return _bring_up(seen, wanted, limits)
    detail = f"{leader.id}, version {leader.version}, leads until {wanted[0].id} is ready"
    return Decision(Wait(), "handing-over", detail, wanted[0].id)


def _keep(seen: Observation, wanted: list[Run]) -> Decision:
    version = seen.intent.version
    told = SendOrder("running", version)
    action = Wait() if _was_told(seen.order, told) else told
    runs = ", ".join(f"{run.id} {_role(seen, run)}" for run in wanted)
    return Decision(action, _phase(seen, wanted), f"version {version}: {runs}", _spoken(seen))


def _role(seen: Observation, run: Run) -> str:
    if run.id == seen.leading:
        return "leads"
    return "stands by" if run.id in seen.standbys else "starts"


def _phase(seen: Observation, wanted: list[Run]) -> str:
    return "running" if any(run.id == seen.leading for run in wanted) else "starting"


def _spoken(seen: Observation) -> str:
    return seen.leading or seen.active[0].id


def _drain(seen: Observation, run: Run, goal: str, limits: Limits) -> Decision:
    detail = f"{run.id}, version {run.version} -> {goal}"
    told = SendOrder("stopped", run.version)
    if seen.order is None or not _was_told(seen.order, told):
        return Decision(told, "draining", detail, run.id)
    if seen.now - seen.order.since > limits.drain:
        late = f"{detail}; killed, as it went on for {limits.drain:.0f} s after it was told to stop"
        return Decision(Kill(run.id), "draining", late, run.id)
    return Decision(Wait(), "draining", detail, run.id)


def _bring_up(seen: Observation, wanted: list[Run], limits: Limits) -> Decision:
    """Submit what is missing, one driver at a time; the phase is that of those that are there."""
    version = seen.intent.version
    phase = "running" if any(run.id == seen.leading for run in wanted) else "submitting"
    run = seen.leading if phase == "running" else ""
    what = f"{run} leads; a standby of version {version}" if run else f"version {version}"
    submission = seen.submission
    if submission and _is_open(submission, seen.now, limits):
        detail = f"version {submission.version}, by {submission.gateway}"
        return Decision(Wait(), phase, f"{run} leads; submitting {detail}" if run else detail, run)
    if run and seen.now < (begins := seen.led_since + limits.catch_up):
        # To start a driver takes cores that the new leader has a backlog for.
        return Decision(Wait(), phase, f"{what}, from {_clock(begins)} on", run)
    failures = _failures(seen, limits)
    if failures and seen.now < (again := failures.last + _pause(failures.count, limits)):
        detail = f"{what}, failure {failures.count}, again at {_clock(again)}: {failures.why}"
        return Decision(Wait(), "running" if run else "backing-off", detail, run or failures.run)
    return Decision(Submit(version), phase, what, run)


def _was_told(order: Order | None, told: SendOrder) -> bool:
    return order is not None and (order.state, order.version) == (told.state, told.version)


def _is_open(submission: Submission, now: float, limits: Limits) -> bool:
    # Bounded: whoever started it kills it by then, or is dead and so is its child.
    return submission.ended is None and now - submission.started <= limits.submit


@dataclass(frozen=True)
class _Failures:
    """How often in a row the version didn't get going, when it last ended, and why."""

    count: int
    last: float
    why: str
    run: str = ""


def _failures(seen: Observation, limits: Limits) -> _Failures | None:
    runs = list(takewhile(partial(_was_short, seen.intent, limits), reversed(seen.ended)))
    last = seen.submission
    if last and last.failures and last.version == seen.intent.version:
        return _Failures(len(runs) + last.failures, last.ended or last.started, last.error)
    if runs:
        why = f"{runs[0].id} ended {runs[0].state}; yarn logs -applicationId {runs[0].id}"
        return _Failures(len(runs), runs[0].finished, why, runs[0].id)
    return None


def _was_short(intent: Intent, limits: Limits, run: Run) -> bool:
    return run.version == intent.version and run.finished - run.started <= limits.settled


def _pause(failures: int, limits: Limits) -> float:
    """1 s, 2 s, 4 s, … up to the limit."""
    return min(limits.pause, 2.0 ** min(failures - 1, 16))


def _clock(moment: float) -> str:
    hours, seconds = divmod(int(moment) % 86400, 3600)
    return f"{hours:02}:{seconds // 60:02}:{seconds % 60:02} UTC"
