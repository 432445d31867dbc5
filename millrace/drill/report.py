"""What a drill measured, and whether that is good enough: the record that is kept. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from pydantic import Field

from millrace.config import Model
from millrace.drill.runbook import Plane
from millrace.drill.timeline import Episode, Timeline, longest_gaps

PASSED, MISSED, FAILED, LOST = "passed", "missed", "failed", "lost"
Gaps = dict[Plane, float]  # the longest interruption, s


class Added(NamedTuple):
    """By how much a fault made a plane's longest interruption longer than the ``floor``, both s."""

    seconds: float
    floor: float


class Fired(Model):
    """An alert that began to fire: ``after_seconds`` from the injection's begin.

    ``resolved_after_seconds`` counts from when all was healthy, 0 if it had ended by then; None if
    it still fired when somebody last looked.
    """

    severity: str
    after_seconds: float
    resolved_after_seconds: float | None


class AlertOutcomes(Model):
    """What became of each alert in a run, by Prometheus.

    ``note`` is why nothing can be said of the fault's own alert; ``problems`` are what shouldn't
    have been told, or should have.
    """

    fired: dict[str, Fired] = Field(default_factory=dict)
    note: str | None = None
    problems: list[str] = Field(default_factory=list)


class Run(Model):
    """From the fault's injection until the cluster is whole again.

    ``floor`` are the longest interruptions before the fault, under the same load and with the same
    probes; None where none was measured. ``standby_idle_seconds`` is how long the standby driver
    had stood by when the fault was injected; None where none did, or nobody looked. ``alerts`` is
    None if no Prometheus was asked.
    """

    gaps: Gaps
    floor: Gaps | None = None
    standby_idle_seconds: float | None = None
    alerts: AlertOutcomes | None = None
    failures: list[str] = Field(default_factory=list)

    @property
    def added(self) -> dict[Plane, Added]:
        """Returns what the fault added, never below 0; without a floor all that was measured.

        To the hundredth, as it was measured: a goal isn't missed by a float's last digit.
        """
        floor = self.floor or {}
        return {
            plane: Added(max(0.0, round(gap - floor.get(plane, 0.0), 2)), floor.get(plane, 0.0))
            for plane, gap in self.gaps.items()
        }


class Machine(Model):
    """``cpus`` are the processors' names, of all runs; older records have none."""

    cores: int
    cpus: list[str] = Field(default_factory=list)
    memory_gib: float

    @property
    def description(self) -> str:
        kinds = f" ({' and '.join(self.cpus)})" if self.cpus else ""
        return f"{self.cores} cores{kinds}, {self.memory_gib:.0f} GiB"


class JobAudit(Model):
    """A declared job's rows, compared with a recount from the archive."""

    rows: int
    lost: int
    duplicated: int
    wrong: int


class Audit(Model):
    """Of all events of the drill, in every sink, and of all rows that declared jobs made of them.

    The oldest records count nothing but faults. ``jobs`` are those that were counted again.
    """

    lost: int
    duplicated: int
    wrong: int
    acknowledged: int | None = None
    failed: int | None = None
    in_doubt: int | None = None
    jobs: dict[str, JobAudit] = Field(default_factory=dict)


class Report(Model):
    """A whole drill. ``rate`` is events/s; goals and interruptions are seconds.

    A goal holds for what the fault added in the worst run. ``audit`` is None when it couldn't be
    made; ``failures`` then says why. ``alert`` is the fault's own. ``jobs`` ran when it began; what
    older records don't say. Theirs is the ``baseline``, too: ten seconds before the first fault,
    by which nothing is judged.
    """

    name: str
    title: str
    faults: list[int]
    date: str
    stack: str
    machine: Machine
    rate: float
    jobs: list[str] = Field(default_factory=list)
    goal: Gaps
    alert: str | None = None
    baseline: Gaps | None = Field(default=None, exclude=True)
    runs: list[Run]
    failures: list[str]
    audit: Audit | None

    def of_variant(self, words: str) -> "Report":
        """Returns the drill on a cluster that ``words`` describe; the drill itself without
        words."""
        if not words:
            return self
        name = "-".join([self.name, *words.lower().split()])
        return self.model_copy(update={"name": name, "title": f"{self.title} ({words})"})

    @property
    def worst(self) -> Gaps:
        """Plane → the longest interruption of all runs."""
        return worst_of([run.gaps for run in self.runs])

    @property
    def floor(self) -> Gaps:
        """Plane → the highest floor of all runs, of those planes of which each run has one."""
        return worst_of([run.floor or {} for run in self.runs])

    @property
    def added(self) -> dict[Plane, Added]:
        """Plane → what the fault added in the run in which it added most, beside its floor."""
        runs = [run.added for run in self.runs]
        return {plane: max(run[plane] for run in runs) for plane in self.worst}

    @property
    def missed(self) -> list[str]:
        """Goals that the worst run missed, and alerts that any run did, in words."""
        added = self.added
        gaps = [
            f"{plane}: {too_long(added[plane].seconds, limit)} s added, the goal is {limit:g} s"
            for plane, limit in self.goal.items()
            if plane in added and added[plane].seconds > limit
        ]
        of_alerts = [problem for each in self.alert_outcomes for problem in each.problems]
        return [*gaps, *dict.fromkeys(of_alerts)]

    @property
    def alert_outcomes(self) -> list[AlertOutcomes]:
        return [run.alerts for run in self.runs if run.alerts]

    def times_of(self, alert: str) -> tuple[float, float | None] | None:
        """The latest that it fired, and resolved, in any run; None if it did in none."""
        fired = [each.fired[alert] for each in self.alert_outcomes if alert in each.fired]
        if not fired:
            return None
        resolved = latest([one.resolved_after_seconds for one in fired])
        return max(one.after_seconds for one in fired), resolved

    @property
    def standby_idle_seconds(self) -> float | None:
        """The youngest standby of all runs; None unless each run has one."""
        ages = [run.standby_idle_seconds for run in self.runs]
        known = [age for age in ages if age is not None]
        return min(known) if known and len(known) == len(ages) else None

    @property
    def all_failures(self) -> list[str]:
        runs = enumerate(self.runs, start=1)
        return [*(f"run {n}: {what}" for n, run in runs for what in run.failures), *self.failures]

    @property
    def verdict(self) -> str:
        """Loss is worse than a failed drill, which is worse than a slow recovery."""
        if self.audit and (self.audit.lost or self.audit.duplicated or self.audit.wrong):
            return LOST
        if self.all_failures or self.audit is None:
            return FAILED
        return MISSED if self.missed else PASSED


def measured(timeline: Timeline) -> list[Run]:
    """Returns each episode as a run."""

    def run(episode: Episode) -> Run:
        since = episode.standby_since
        idle = None if since is None else round(episode.span.since - since, 1)
        return Run(
            gaps=longest_gaps(timeline.successes, episode.span),
            floor=longest_gaps(timeline.successes, episode.floor) if episode.floor else None,
            standby_idle_seconds=idle,
            failures=episode.failures,
        )

    return list(map(run, timeline.episodes))


def combined(reports: Sequence[Report]) -> Report:
    """Makes one report of several of the same drill, each with a load and an audit of its own."""
    audits = [report.audit for report in reports if report.audit]
    return reports[0].model_copy(
        update={
            "machine": _together([report.machine for report in reports]),
            "runs": [run for report in reports for run in report.runs],
            "failures": [failure for report in reports for failure in report.failures],
            "audit": _sum(audits) if len(audits) == len(reports) else None,
        }
    )


def _together(machines: Sequence[Machine]) -> Machine:
    """The first one's size, and every processor that is known."""
    kinds = dict.fromkeys(cpu for machine in machines for cpu in machine.cpus)
    return machines[0].model_copy(update={"cpus": list(kinds)})


def _sum(audits: Sequence[Audit]) -> Audit:
    jobs = {
        job: JobAudit(**_sums([audit.jobs[job] for audit in audits if job in audit.jobs]))
        for job in dict.fromkeys(job for audit in audits for job in audit.jobs)
    }
    return Audit(**_sums(audits), jobs=jobs)


def _sums(parts: Sequence[Model]) -> dict[str, int]:
    """Adds up each count that the parts have."""
    counts = [part.model_dump(exclude={"jobs"}) for part in parts]
    return {name: sum(count[name] for count in counts) for name in counts[0]}


def worst_of(parts: Sequence[Gaps]) -> Gaps:
    """Plane → its longest interruption of all parts, of the planes that each part has."""
    return {
        plane: max(gaps[plane] for gaps in parts)
        for plane in Plane
        if parts and all(plane in gaps for gaps in parts)
    }


def when(moment: datetime) -> str:
    """A report's ``date``, of a moment in UTC."""
    return f"{moment:%Y-%m-%d %H:%M}Z"


def markdown(report: Report) -> str:
    """Writes the report as a person reads it."""
    lines = [
        f"# {report.title}: {report.verdict}",
        "",
        *details(report),
        "",
        "![Interruptions over time](gaps.svg)",
    ]
    return "\n".join(lines) + "\n"


def details(report: Report) -> Iterator[str]:
    """Lines of Markdown: circumstances, every plane of every run, what was lost and what failed."""
    runs = "1 run" if len(report.runs) == 1 else f"{len(report.runs)} runs"
    jobs = [" and ".join(report.jobs)] if report.jobs else []
    yield (
        f"`{report.name}` on {report.stack}, {report.date}; "
        + ", ".join([f"{report.rate:,.0f} events/s", *jobs, runs])
        + f", {report.machine.description}."
    )
    yield ""
    yield from _planes(report)
    yield from _alerts(report)
    if report.audit:
        yield ""
        yield _audited(report.audit)
    for heading, problems in (("Goals missed", report.missed), ("Failures", report.all_failures)):
        if problems:
            yield from ("", f"{heading}:", "")
            yield from (f"- {problem}".replace("\n", "\n  ") for problem in problems)


def _planes(report: Report) -> Iterator[str]:
    """Returns every plane of every run; a control run has no floor, as it is one, and adds
    nothing."""
    broken = bool(report.faults)
    numbers = [f"run {number}" for number in range(1, len(report.runs) + 1)]
    columns = [*(["floor"] if broken else []), *numbers, *(["added", "goal"] if broken else [])]
    yield f"| longest interruption (s) | {' | '.join(columns)} |"
    yield "|---|" + "---:|" * len(columns)
    added = report.added
    for plane in Plane:
        gaps = [run.gaps.get(plane) for run in report.runs]
        if all(gap is None for gap in gaps):
            continue
        cells = ["" if gap is None else f"{gap:.2f}" for gap in gaps]
        if broken:
            floors = [run.floor[plane] for run in report.runs if run.floor and plane in run.floor]
            goal = f"{report.goal[plane]:g}" if plane in report.goal else ""
            cells = [_range(floors), *cells, _added(added, plane), goal]
        yield f"| {plane} | {' | '.join(cells)} |"
    ages = [minutes(run.standby_idle_seconds) for run in report.runs]
    cells = ["", *ages, "", ""] if broken else ages
    yield f"| *standby idle before* | {' | '.join(cells)} |"


def _range(values: Sequence[float]) -> str:
    """Of each run's; one value where they are the same."""
    ends = dict.fromkeys(f"{value:.2f}" for value in (min(values), max(values))) if values else []
    return "–".join(ends)


def _added(added: Mapping[Plane, Added], plane: Plane) -> str:
    return f"{added[plane].seconds:.2f}" if plane in added else ""


def _alerts(report: Report) -> Iterator[str]:
    """Returns what fired in each run, the fault's own alert first."""
    if len(report.alert_outcomes) < len(report.runs):
        return
    names = dict.fromkeys(name for outcomes in report.alert_outcomes for name in outcomes.fired)
    yield ""
    if not names:
        yield "No alert fired."
        return
    numbers = range(1, len(report.runs) + 1)
    yield (
        "| alert fired after (s), resolved after all was healthy (s) | severity | "
        + "".join(f"run {n} | " for n in numbers)
    ).rstrip()
    yield "|---|---|" + "---:|" * len(report.runs)
    for name in sorted(names, key=lambda name: (name != report.alert, name)):
        fired = [outcomes.fired.get(name) for outcomes in report.alert_outcomes]
        severity = next(one.severity for one in fired if one)
        cells = " | ".join(_times(one) for one in fired)
        yield f"| {name} | {severity} | {cells} |"


def _times(fired: Fired | None) -> str:
    if fired is None:
        return "–"
    return after(fired.after_seconds, fired.resolved_after_seconds)


def after(fired: float, resolved: float | None) -> str:
    """Seconds until an alert fired and until it had resolved, if anybody saw that."""
    return f"{whole(fired)}, {whole(resolved)}"


def whole(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.0f}"


def latest(ends: Sequence[float | None]) -> float | None:
    """Returns the latest end; None if one of them isn't known."""
    known = [end for end in ends if end is not None]
    return max(known) if len(known) == len(ends) else None


def too_long(seconds: float, goal: float) -> str:
    """To the tenth, or the hundredth where a tenth would hide that the goal was missed."""
    tenths = f"{seconds:.1f}"
    return tenths if float(tenths) > goal else f"{seconds:.2f}"


def minutes(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds / 60:.0f} min"


def _audited(audit: Audit) -> str:
    found = f"{audit.lost} lost, {audit.duplicated} duplicated, {audit.wrong} results wrong"
    if audit.acknowledged is None:
        return f"{found}."
    jobs = ", ".join(f"{job.rows:,} of `{name}`" for name, job in audit.jobs.items())
    return (
        f"Of {audit.acknowledged:,} acknowledged events: {found}. "
        f"{audit.failed} events failed, {audit.in_doubt} are in doubt."
        + (f" Rows counted again: {jobs}." if jobs else "")
    )
