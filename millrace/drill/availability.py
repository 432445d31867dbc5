"""An estimate of availability: what drills measured, times how often faults are published to come.

Years are simulated: faults come independently of each other, each costs what a run of its drill
added, and a second one may come before the first is repaired. Pure, but for `load_faults`. Times
are hours of a year, costs are seconds.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, log
from random import Random
from textwrap import fill
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from millrace.common.errors import OperatorError
from millrace.common.paths import CONFIGS
from millrace.config import Model, Setting, read_yaml, validate
from millrace.drill.report import Report, Run
from millrace.drill.runbook import Plane
from millrace.plan import Plan

HOURS = 8766.0  # of a mean year
SECONDS = 3600 * HOURS
LINE = 110  # characters of the document's prose
SMALLEST_SECONDS = 0.1  # a year: causes that add less stand together
PLANES = (Plane.PRODUCE, Plane.PROCESS, Plane.READ)
CLUSTER = "cluster"

Seconds = dict[Plane, float]


class Range(Model):
    """What is known of a figure: its magnitude is anywhere from ``low`` to ``high``."""

    low: float = Field(gt=0)
    high: float = Field(gt=0)
    why: str = Field(min_length=10)
    source: str = Field(min_length=10)

    @model_validator(mode="after")
    def _ordered(self) -> "Range":
        if self.low > self.high:
            raise ValueError("low is above high")
        return self

    def draw(self, random: Random) -> float:
        return exp(log(self.low) + (log(self.high) - log(self.low)) * random.random())


class Cost(Model):
    """A drill; with ``of`` it costs only where the group's one leader is."""

    drill: str
    of: Literal["leader"] | None = None


class Fault(Model):
    """Comes to each host of ``group``, or to ``each`` zone, or to the cluster.

    A ``planned`` one doesn't begin while any host is away.
    """

    what: str
    rate: str
    group: str | None = None
    each: Literal["zone", "cluster"] | None = None
    repair: str | None = None
    planned: bool = False
    costs: list[Cost] = Field(min_length=1)

    @model_validator(mode="after")
    def _hits_somebody(self) -> "Fault":
        if (self.group is None) == (self.each is None):
            raise ValueError("either group or each")
        return self


class Quorum(Model):
    """``planes`` wait while a group's hosts are away in more than so many ``zones``."""

    group: str
    zones: int = Field(ge=0)
    planes: list[str]
    why: str = Field(min_length=10)


class Faults(Model):
    summary: str
    goal: Setting
    environment: str
    years: int = Field(gt=0)
    seed: int
    rates: dict[str, Range]
    repairs: dict[str, Range]
    faults: list[Fault]
    quorums: list[Quorum]

    @model_validator(mode="after")
    def _known(self) -> "Faults":
        for fault in self.faults:
            if fault.rate not in self.rates or (fault.repair or "host") not in self.repairs:
                raise ValueError(f"{fault.what}: no such rate or repair")
        known = {str(plane) for plane in PLANES}
        for quorum in self.quorums:
            if not {*quorum.planes} <= known:
                raise ValueError(f"{quorum.group}: the planes are {', '.join(sorted(known))}")
        return self


@dataclass(frozen=True)
class Unit:
    """What a fault takes away at once: a host, a zone's hosts, or nothing. Groups by zone."""

    zone: str
    groups: tuple[str, ...]
    leads: float  # the chance that a group's leader is on it


class Away(NamedTuple):
    """A unit that is away, in hours."""

    since: float
    until: float
    unit: Unit


@dataclass(frozen=True)
class Year:
    """Seconds in which a plane was interrupted, by what; times that each fault came."""

    lost: Mapping[str, Seconds]
    times: Mapping[str, int]

    def total(self, plane: Plane) -> float:
        return sum(cost.get(plane, 0.0) for cost in self.lost.values())


def load_faults() -> Faults:
    path = CONFIGS / "availability.yaml"
    return validate(Faults, read_yaml(path), path)


def simulate(faults: Faults, plan: Plan, records: Mapping[str, Report]) -> list[Year]:
    """Years, each with rates of its own; the same for the same inputs.

    Raises:
        OperatorError: a drill isn't recorded, or the plan has no hosts of a group.
    """
    random = Random(faults.seed)
    units = {fault.what: units_of(fault, plan) for fault in faults.faults}
    drills = dict.fromkeys(cost.drill for fault in faults.faults for cost in fault.costs)
    if missing := [drill for drill in drills if drill not in records]:
        raise OperatorError(
            f"configs/availability.yaml: no record of {', '.join(missing)}",
            "`millrace drill run NAME --record` makes one",
        )
    runs = {drill: [_added(run) for run in records[drill].runs] for drill in drills}
    return [_year(faults, units, runs, random) for _ in range(faults.years)]


def _added(run: Run) -> Seconds:
    return {plane: run.added[plane].seconds for plane in PLANES if plane in run.added}


def units_of(fault: Fault, plan: Plan) -> list[Unit]:
    """Raises OperatorError if the plan has no such group."""
    if fault.each == CLUSTER:
        return [Unit("", (), 1.0)]
    if fault.each == "zone":
        return [
            Unit(zone, tuple({host.group for host in plan.hosts if host.zone == zone}), 1.0)
            for zone in plan.zones
        ]
    hosts = [host for host in plan.hosts if host.group == fault.group]
    if not hosts:
        raise OperatorError(
            f"configs/availability.yaml: {plan.environment} has no group {fault.group}"
        )
    return [Unit(host.zone, (host.group,), 1 / len(hosts)) for host in hosts]


def _year(
    faults: Faults,
    units: Mapping[str, Sequence[Unit]],
    runs: Mapping[str, Sequence[Seconds]],
    random: Random,
) -> Year:
    rates = {name: rate.draw(random) for name, rate in faults.rates.items()}
    lost: dict[str, Seconds] = {}
    times = Counter[str]()
    away: list[Away] = []

    def come(moment: float, fault: Fault, unit: Unit) -> float:
        """Counts a fault; returns when its unit is back."""
        times[fault.what] += 1
        _add(lost.setdefault(fault.what, {}), _cost(fault, unit, runs, random))
        if fault.repair is None:
            return moment
        until = min(moment + faults.repairs[fault.repair].draw(random), HOURS)
        away.append(Away(moment, until, unit))
        return until

    planned: list[tuple[float, Fault, Unit]] = []
    for fault in faults.faults:
        for unit in units[fault.what]:
            for moment in moments(rates[fault.rate], random):
                if fault.planned:
                    planned.append((moment, fault, unit))
                else:
                    come(moment, fault, unit)
    unplanned, free = [*away], 0.0
    for moment, fault, unit in sorted(planned, key=lambda one: one[0]):
        if moment >= free and not any(one.since <= moment < one.until for one in unplanned):
            free = come(moment, fault, unit)
    for quorum in faults.quorums:
        if seconds := 3600 * too_few(away, quorum.group, quorum.zones):
            cost = {Plane(plane): seconds for plane in quorum.planes}
            _add(lost.setdefault(second(quorum), {}), cost)
    return Year(lost, times)


def second(quorum: Quorum) -> str:
    return f"Too many of {quorum.group} are away at once"


def moments(rate: float, random: Random) -> Iterator[float]:
    """When something comes that comes so many times a year, and doesn't know of the last time."""
    hour = 0.0
    while (hour := hour - log(1 - random.random()) * HOURS / rate) < HOURS:
        yield hour


def too_few(away: Iterable[Away], group: str, zones: int) -> float:
    """Hours in which hosts of a group are away in more than so many zones."""
    own = [one for one in away if group in one.unit.groups]
    changes = [(one.since, 1, one.unit.zone) for one in own]
    changes += [(one.until, -1, one.unit.zone) for one in own]
    hosts = Counter[str]()  # that are away now, by zone
    hours = since = 0.0
    for moment, change, zone in sorted(changes):
        if sum(number > 0 for number in hosts.values()) > zones:
            hours += moment - since
        hosts[zone] += change
        since = moment
    return hours


def _cost(
    fault: Fault, unit: Unit, runs: Mapping[str, Sequence[Seconds]], random: Random
) -> Seconds:
    """What one run of each drill added, of several the most."""
    found: Seconds = {}
    for cost in fault.costs:
        if cost.of and random.random() >= unit.leads:
            continue
        own = runs[cost.drill]
        for plane, seconds in own[int(random.random() * len(own))].items():
            found[plane] = max(seconds, found.get(plane, 0.0))
    return found


def _add(to: Seconds, cost: Seconds) -> None:
    for plane, seconds in cost.items():
        to[plane] = to.get(plane, 0.0) + seconds


# --- As the document shows it.


def availability_tables(faults: Faults, plan: Plan, records: Mapping[str, Report]) -> str:
    """Results, what they are made of, and every input."""
    years = simulate(faults, plan, records)
    parts = [_results(faults, years), _causes(faults, years), _inputs(faults)]
    return "\n".join(parts)


def _results(faults: Faults, years: Sequence[Year]) -> str:
    goal = faults.goal.value
    assert isinstance(goal, float)
    most = (1 - goal) * SECONDS
    rows = [
        "| plane | available | interrupted, minutes a year | nine of ten years"
        f" | the worst year | years within {goal:.3%} |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for plane in PLANES:
        totals = sorted(year.total(plane) for year in years)
        mean = sum(totals) / len(totals)
        within = sum(total <= most for total in totals) / len(totals)
        low, high = percentile(totals, 0.05), percentile(totals, 0.95)
        rows.append(
            f"| {plane} | {1 - mean / SECONDS:.5%} | {_minutes(mean)} "
            f"| {_minutes(low)} to {_minutes(high)} | {_minutes(totals[-1])} | {within:.1%} |"
        )
    told = (
        f"\nOf `{faults.environment}`, in {len(years):,} simulated years."
        f" {goal:.3%} of a year leaves {_minutes(most)} minutes.\n"
    )
    return "\n".join([*rows, told])


def _causes(faults: Faults, years: Sequence[Year]) -> str:
    """The mean year by cause, the dearest first."""
    names = [fault.what for fault in faults.faults] + [second(each) for each in faults.quorums]
    means = {
        name: {
            plane: sum(year.lost.get(name, {}).get(plane, 0.0) for year in years) / len(years)
            for plane in PLANES
        }
        for name in names
    }
    times = {name: sum(year.times.get(name, 0) for year in years) / len(years) for name in names}
    causes = {
        fault.what: ", ".join(cost.drill for cost in fault.costs) for fault in faults.faults
    } | {second(each): each.why for each in faults.quorums}
    rows = [
        "| cause | times a year | "
        + " | ".join(f"{plane}, s a year" for plane in PLANES)
        + " | by |",
        "|---|---:|" + "---:|" * len(PLANES) + "---|",
    ]
    dearest = sorted(names, key=lambda name: -sum(means[name].values()))
    shown = [name for name in dearest if max(means[name].values()) >= SMALLEST_SECONDS]
    for name in shown:
        often = f"{times[name]:.1f}" if times[name] else "–"
        cells = " | ".join(f"{means[name][plane]:.1f}" for plane in PLANES)
        rows.append(f"| {name} | {often} | {cells} | {causes[name]} |")
    rest = "; ".join(name for name in names if name not in shown)
    told = f"Each of the others adds less than {SMALLEST_SECONDS} s a year: {rest}."
    return "\n".join(["", *rows, "", *([fill(told, LINE)] if rest else []), ""])


def _inputs(faults: Faults) -> str:
    rows = ["| input | from | to | why | source |", "|---|---:|---:|---|---|"]
    for unit, ranges in (("times a year", faults.rates), ("hours", faults.repairs)):
        for name, one in ranges.items():
            said = f"{name.replace('_', ' ')}, {unit}"
            rows.append(f"| {said} | {one.low:g} | {one.high:g} | {one.why} | {one.source} |")
    return "\n".join(["", *rows, ""])


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that so many of all don't exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f}"
