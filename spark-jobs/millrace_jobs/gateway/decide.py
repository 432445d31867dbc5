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
    """Seconds. See configs/components/job_gateway.yaml for why."""

    submit: float
    drain: float
    pause: float
    settled: float


@dataclass(frozen=True)
class Seen:
    """Everything a decision rests on. ``active`` and ``ended`` are in the order they started."""

    now: float
    intent: Intent
    order: Order | None = None
    submission: Submission | None = None
    active: Sequence[Run] = ()
    ended: Sequence[Run] = ()


@dataclass(frozen=True)
class Wait:
    """Nothing to do before the next look."""


@dataclass(frozen=True)
class Submit:
    version: str


@dataclass(frozen=True)
class Tell:
    """Give drivers this order."""

    state: State
    version: str


@dataclass(frozen=True)
class Kill:
    run: str


@dataclass(frozen=True)
class Decision:
    """``phase`` and ``detail`` tell operators why; they change only when the situation does.
    ``run`` is the one that they speak of, if there is one."""

    action: Wait | Submit | Tell | Kill
    phase: str
    detail: str
    run: str = ""


def decide(seen: Seen, limits: Limits) -> Decision:
    """The one next step from what is to what was deployed."""
    if len(seen.active) > 1:
        return _single_out(seen)
    if not seen.active:
        return _bring_up(seen, limits)
    if _is_wanted(seen.active[0], seen.intent):
        return _keep(seen, seen.active[0])
    return _drain(seen, seen.active[0], limits)


def _is_wanted(run: Run, intent: Intent) -> bool:
    return intent.state == "running" and run.version == intent.version


def _single_out(seen: Seen) -> Decision:
    # Only a gateway that was frozen while it submitted can bring this about. The runner's lock and
    # its fencing epoch keep the data right meanwhile.
    wanted = [run for run in seen.active if _is_wanted(run, seen.intent)]
    keep = (wanted or list(seen.active))[0]
    surplus = next(run for run in seen.active if run is not keep)
    detail = f"{surplus.id} is killed, {keep.id} stays"
    return Decision(Kill(surplus.id), "surplus", detail, keep.id)


def _keep(seen: Seen, run: Run) -> Decision:
    told = Tell("running", run.version)
    action = Wait() if _was_told(seen.order, told) else told
    phase = "running" if run.state == "RUNNING" else "starting"
    return Decision(action, phase, f"{run.id}, version {run.version}", run.id)


def _drain(seen: Seen, run: Run, limits: Limits) -> Decision:
    goal = seen.intent.version if seen.intent.state == "running" else "stop"
    detail = f"{run.id}, version {run.version} -> {goal}"
    if run.state != "RUNNING":
        # It has no driver that could obey, and so nothing under way that it could finish.
        return Decision(Kill(run.id), "draining", detail, run.id)
    told = Tell("stopped", run.version)
    if seen.order is None or not _was_told(seen.order, told):
        return Decision(told, "draining", detail, run.id)
    if seen.now - seen.order.since > limits.drain:
        late = f"{detail}; killed, as it went on for {limits.drain:.0f} s after it was told to stop"
        return Decision(Kill(run.id), "draining", late, run.id)
    return Decision(Wait(), "draining", detail, run.id)


def _bring_up(seen: Seen, limits: Limits) -> Decision:
    if seen.intent.state == "stopped":
        return Decision(Wait(), "stopped", f"version {seen.intent.version}")
    version = seen.intent.version
    submission = seen.submission
    if submission and _is_open(submission, seen.now, limits):
        detail = f"version {submission.version}, by {submission.gateway}"
        return Decision(Wait(), "submitting", detail)
    failures = _failures(seen, limits)
    if failures and seen.now < (again := failures.last + _pause(failures.count, limits)):
        what = f"version {version}, failure {failures.count}, again at {_clock(again)}"
        return Decision(Wait(), "backing-off", f"{what}: {failures.why}", failures.run)
    return Decision(Submit(version), "submitting", f"version {version}")


def _was_told(order: Order | None, told: Tell) -> bool:
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


def _failures(seen: Seen, limits: Limits) -> _Failures | None:
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
