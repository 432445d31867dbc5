"""Waits until a cluster that was given traffic is at rest: for as long as it gets on.

How long that takes is the machine's affair. What has ended is what doesn't move any more.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from millrace.cluster import kafka, zookeeper
from millrace.common.console import as_text
from millrace.common.errors import OperatorError
from millrace.plan import Plan
from millrace.status.collect import collect
from millrace.status.render import MARKS
from millrace.status.verdict import HEALTHY, UNKNOWN, Component, Status, judge
from millrace_shared.driver_record import DriverRecord

# A driver is given three minutes to register and as many to warm up, and may have to begin anew.
STILL_SECONDS = 900.0
LOOK_EVERY_SECONDS = 5.0
MOST_TROUBLES = 3


@dataclass(frozen=True)
class Look:
    """What is still waited for, and by what one sees that it gets on.

    ``records`` wait for jobs. ``signs`` name what has come about: one that none of the looks before
    had is progress, and so is a smaller number of records than ever.
    """

    waits: tuple[str, ...]
    records: float
    signs: frozenset[str]
    status: Status | None = None

    @property
    def at_rest(self) -> bool:
        return not self.waits


def await_rest(
    look: Callable[[], Look],
    tell: Callable[[str], object],
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Look:
    """The first look at a cluster at rest; the last one when nothing got on for `STILL_SECONDS`."""
    fewest, seen, moved = math.inf, frozenset[str](), now()
    while True:
        found = look()
        if found.records < fewest or found.signs - seen:
            moved = now()
        fewest, seen = min(fewest, found.records), seen | found.signs
        if found.at_rest or now() - moved >= STILL_SECONDS:
            return found
        tell("; ".join(found.waits))
        sleep(LOOK_EVERY_SECONDS)


def looking(plan: Plan) -> Callable[[], Look]:
    """Looks at a cluster; at all of it once the jobs and their drivers are at rest."""
    admin = kafka.connect(plan)

    def look() -> Look:
        found = work_left(plan, _lags(plan, admin), _drivers(plan))
        return found if found.waits else state_left(found, state(plan))

    return look


def state(plan: Plan) -> Status:
    return judge(plan, collect(plan))


def work_left(
    plan: Plan, lags: Mapping[str, int | None], drivers: zookeeper.Drivers | None
) -> Look:
    """Returns what jobs and drivers have before them.

    Args:
        lags: job → records; None where Kafka doesn't answer.
        drivers: None while ZooKeeper doesn't answer.
    """
    silent = [job for job, records in lags.items() if records is None]
    behind = {job: records for job, records in lags.items() if records}
    waits, signs = [], {f"{job} has caught up" for job, records in lags.items() if records == 0}
    if silent:
        waits.append(f"Kafka says nothing of {', '.join(silent)} yet")
    if behind:
        each = ", ".join(f"{job} {records:,}" for job, records in behind.items())
        waits.append(f"jobs catch up, records to go: {each}")
    if drivers is None:
        waits.append("ZooKeeper says nothing of drivers yet")
    else:
        waits += filter(None, (_standby(name, drivers.get(name, [])) for name in plan.applications))
        signs |= {f"{name} on {d.host}: {d.state}" for name, mine in drivers.items() for d in mine}
    records = math.inf if silent else sum(behind.values())
    return Look(tuple(waits), records, frozenset(signs))


def _standby(application: str, drivers: Sequence[DriverRecord]) -> str:
    """For what is waited until a driver stands by; empty when one does."""
    states = {driver.state: driver.host for driver in drivers}
    if "standby" in states:
        return ""
    others = [f"{state} on {host}" for state, host in states.items() if state != "leading"]
    doing = ", ".join(others) or "none has registered yet"
    return f"the standby driver of '{application}': {doing}"


def state_left(work: Look, status: Status) -> Look:
    """Returns the same look with the state of all."""
    well = {f"{c.name}: {c.state}" for c in status.components if c.state == HEALTHY}
    waits = troubles(status.components) or [status.state]
    return replace(
        work,
        waits=() if status.state == HEALTHY else tuple(waits),
        signs=work.signs | well,
        status=status,
    )


def troubles(components: Sequence[Component]) -> list[str]:
    """Returns what isn't healthy and why; what gave no answer is told of together."""
    unanswered = [c.name for c in components if c.state == UNKNOWN]
    told = [
        f"{c.name} {c.state}: {c.problems[0] if c.problems else c.seen}"
        for c in components
        if c.state not in (HEALTHY, UNKNOWN)
    ]
    if len(told) > MOST_TROUBLES:
        told = [*told[:MOST_TROUBLES], f"{len(told) - MOST_TROUBLES} others, `make status` has all"]
    return [*told, *([f"not answered yet: {', '.join(unanswered)}"] if unanswered else [])]


def state_line(cluster: str, status: Status) -> Text:
    """Says the state in one line."""
    symbol, colour = MARKS[status.state]
    why = "; ".join(troubles(status.components))
    mark = as_text(f"{symbol} {cluster} {status.state}", f"bold {colour}")
    return Text.assemble(mark, as_text(f": {why}".replace("\n", " ")) if why else "")


def _lags(plan: Plan, admin: kafka.AdminClient) -> dict[str, int | None]:
    """Returns the lags of the jobs that are meant to run."""
    try:
        disabled = zookeeper.disabled(plan)
    except OperatorError:
        disabled = set()
    return {job: _lag(plan, admin, job) for job in plan.jobs if job not in disabled}


def _lag(plan: Plan, admin: kafka.AdminClient, job: str) -> int | None:
    try:
        return kafka.lag(admin, plan, job)
    except kafka.KafkaException:
        return None


def _drivers(plan: Plan) -> zookeeper.Drivers | None:
    try:
        return zookeeper.drivers(plan)
    except OperatorError:
        return None
