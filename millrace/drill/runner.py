"""Runs drills: load, baseline, the experiment some times, audit, report."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import not_
from pathlib import Path
from typing import Protocol

from millrace.alerts import load_alerts
from millrace.cluster import marks, prometheus, zookeeper
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.common.machine import this_machine
from millrace.common.paths import stack_state
from millrace.common.waiting import wait_until
from millrace.drill import experiment, standby
from millrace.drill.alerts import Expected, Firing, awaited, expected, firings, told
from millrace.drill.display import Display
from millrace.drill.picture import gaps_svg
from millrace.drill.report import (
    LOST,
    Audit,
    Gaps,
    Machine,
    Report,
    Told,
    combined,
    markdown,
    measured,
    when,
)
from millrace.drill.runbook import FrontMatter, Runbook
from millrace.drill.timeline import Episode, Span, Timeline
from millrace.drill.watch import Loading, Watch, audited, watching
from millrace.ledger.door import Door
from millrace.plan import Plan
from millrace.status import health

LONGEST_HEAL_SECONDS = 300.0  # from the end of an experiment until all is healthy
ASK_EVERY_SECONDS = 10.0  # a look at every host is work for the machine that is measured
# After idling the whole service is cold for a moment, the leader, too; the standby stays so.
SETTLE_SECONDS = 60.0
BEFORE_SECONDS = 60.0  # what fires before the injection isn't the fault's


def require_allowed(plan: Plan, about: FrontMatter) -> None:
    """Raises OperatorError where this drill must not run; nothing has been touched by then."""
    where = f"configs/environments/{plan.environment}.yaml"
    if not plan.drills:
        raise OperatorError(
            f"{plan.environment}: drills break things, and {where} does not allow them",
            f"`drills: true` in {where} does",
        )
    if not about.may_run_in(plan):
        allowed = ", ".join(about.environments)
        raise OperatorError(f"'{about.title}' may run in {allowed}, not in {plan.environment}")


def require_steady(plan: Plan) -> None:
    """Raises OperatorError unless the cluster is in its steady state."""
    if problems := health.problems(plan):
        raise OperatorError(
            "\n".join(problems), "nothing was injected; `make up` heals, `millrace status` shows it"
        )


class Drill(Protocol):
    """What is broken; what stands around it is the same for all drills. ``goal`` is seconds."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str:
        """Asked when the drill is over."""

    @property
    def faults(self) -> list[int]: ...
    @property
    def goal(self) -> Gaps: ...
    @property
    def through(self) -> Door: ...
    @property
    def alerts(self) -> Expected | None:
        """By what it is to be told; None where nobody knows."""

    def episodes(self, stage: "Stage") -> Iterable[Episode]:
        """Breaks something, takes it back, waits until all is healthy; once or several times."""


@dataclass(frozen=True)
class Stage:
    """Where a drill breaks things: load flows, and every plane is watched."""

    plan: Plan
    folder: Path
    show: Display
    watch: Watch


@dataclass(frozen=True)
class RunbookDrill:
    """A runbook's fault, ``times`` times or until a run fails."""

    runbook: Runbook
    times: int
    alerts: Expected | None = None

    @property
    def name(self) -> str:
        return self.runbook.name

    @property
    def title(self) -> str:
        return self.runbook.about.title

    @property
    def faults(self) -> list[int]:
        return self.runbook.about.faults

    @property
    def goal(self) -> Gaps:
        return self.runbook.about.goal

    @property
    def through(self) -> Door:
        return self.runbook.about.through

    def episodes(self, stage: Stage) -> Iterator[Episode]:
        for number in range(1, self.times + 1):
            episode = self._episode(stage, number)
            yield episode
            if episode.failures:
                return

    def _episode(self, stage: Stage, number: int) -> Episode:
        stage.show.phase(f"run {number} of {self.times}")
        standby_since = standby.standby_since(stage.plan)
        since = time.time()
        outcome = experiment.run_experiment(self.runbook, stage.folder / f"run-{number}")
        failures = [
            *outcome.failures,
            *wait_healthy(stage.plan, stage.show),
            *stage.watch.problems(),
        ]
        # Before its injection nothing was broken.
        injected = next((mark.start for mark in outcome.marks if mark.name == "inject"), since)
        return Episode(Span(injected, time.time()), outcome.marks, failures, standby_since)


def run(
    plan: Plan,
    runbook: Runbook,
    times: int,
    rate: float,
    console: Console,
    standby_idle_minutes: float = 0,
    *,
    await_alerts: bool = False,
) -> Report:
    """One runbook's drill with its report written; OperatorError when it can't begin.

    For a standby of some age, or alerts that are waited for, each run has a load and an audit of
    its own: no load flows meanwhile, which would be millions of events to audit. Where alerts are
    what is looked at, the load has no late events, which would fire one themselves.
    """
    require_allowed(plan, runbook.about)
    rules = [alert for file in load_alerts().values() for alert in file.alerts]
    wanted = expected(plan, runbook.about, rules)
    if not (standby_idle_minutes or await_alerts):
        return perform(plan, RunbookDrill(runbook, times, wanted), rate, console)
    if await_alerts and wanted.alert and not wanted.silent:
        runbook = _held(runbook, wanted.due_seconds)
    settle_seconds = SETTLE_SECONDS if standby_idle_minutes else 0
    reports: list[Report] = []
    while len(reports) < times and not any(report.all_failures for report in reports):
        if standby_idle_minutes:
            with Display(console, runbook.name) as show:
                show.phase(f"until the standby has stood by for {standby_idle_minutes:g} min")
                standby.wait_until_idle(plan, 60 * standby_idle_minutes)
        drill = RunbookDrill(runbook, 1, wanted)
        reports.append(
            perform(plan, drill, rate, console, settle_seconds, await_alerts=await_alerts)
        )
    return combined(reports)


def _held(runbook: Runbook, at_least_seconds: float) -> Runbook:
    hold = max(runbook.about.hold, at_least_seconds)
    return replace(runbook, about=runbook.about.model_copy(update={"hold": hold}))


def perform(
    plan: Plan,
    drill: Drill,
    rate: float,
    console: Console,
    settle_seconds: float = 0,
    *,
    await_alerts: bool = False,
) -> Report:
    """Load, baseline, the drill's episodes, audit; its report is written.

    ``settle_seconds`` pass under load before the baseline. With ``await_alerts`` it is over when
    what fired has resolved. OperatorError when it can't begin.
    """
    require_steady(plan)
    disabled = zookeeper.disabled(plan)
    started = datetime.now(UTC)
    folder = stack_state(plan.environment) / "drills" / f"{drill.name}-{started:%Y%m%dT%H%M%SZ}"
    folder.mkdir(parents=True)
    with Display(console, drill.name) as show:
        quiet = await_alerts or (drill.alerts is not None and drill.alerts.alert is None)
        load = Loading(rate, folder.name, folder, drill.through, late=not quiet)
        with watching(plan, load, show, drill.goal, settle_seconds) as watch:
            before = marks.last_drill(plan)
            marks.drill_began(plan, drill.name, time.time())
            episodes = list(drill.episodes(Stage(plan, folder, show, watch)))
        timeline = Timeline(watch.successes(), watch.baseline, episodes)
        show.phase("audit")
        audit, failures = _audit(plan, watch.ledger)
        baseline, runs = measured(timeline)
        if drill.alerts:
            try:
                found = _told(plan, drill.alerts, episodes, before, show, wait=await_alerts)
            except OperatorError as error:
                failures += [f"alerts: {error.message}"] if await_alerts else []
            else:
                runs = [
                    run.model_copy(update={"alerts": one})
                    for run, one in zip(runs, found, strict=True)
                ]
    report = Report(
        name=drill.name,
        title=drill.title,
        faults=drill.faults,
        date=when(started),
        stack=plan.environment,
        machine=_machine(),
        rate=rate,
        jobs=[job for job in plan.jobs if job not in disabled],
        goal=drill.goal,
        alert=drill.alerts.alert if drill.alerts else None,
        baseline=baseline,
        runs=runs,
        failures=failures,
        audit=audit,
    )
    write(report, timeline, folder)
    console.print(f"report: {folder}/report.md")
    return report


def wait_healthy(plan: Plan, show: Display) -> list[str]:
    """Waits until the cluster is in its steady state; else what is wrong in the end."""
    show.phase("until the cluster is healthy")
    problems = wait_until(
        lambda: health.problems(plan), LONGEST_HEAL_SECONDS, ASK_EVERY_SECONDS, done=not_
    )
    return [f"not healed after {LONGEST_HEAL_SECONDS:g} s: {problem}" for problem in problems]


def write(report: Report, timeline: Timeline, folder: Path) -> None:
    """The report's files; journals and blocks' output stand in their runs' folders beside them."""
    record(report, folder / "report.json")
    (folder / "report.md").write_text(markdown(report))
    (folder / "gaps.svg").write_text(gaps_svg(timeline, report.baseline, report.worst))


def record(report: Report, path: Path) -> None:
    """As JSON; what stands in `docs/drills/` is what the documents' tables are made of."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.model_dump_json(indent=2) + "\n")


def run_all(
    plan: Plan,
    runbooks: Iterable[Runbook],
    times: int,
    rate: float,
    console: Console,
    standby_idle_minutes: float = 0,
    *,
    await_alerts: bool = False,
) -> Iterator[Report]:
    """One drill after the other; a missed goal doesn't stop them, loss or a sick cluster does."""
    for runbook in runbooks:
        report = run(
            plan, runbook, times, rate, console, standby_idle_minutes, await_alerts=await_alerts
        )
        yield report
        if report.verdict == LOST or health.problems(plan):
            return


def _machine() -> Machine:
    found = this_machine()
    return Machine(cores=found.cores, cpus=[found.cpu], memory_gib=found.memory_gib)


def _audit(plan: Plan, ledger: Path) -> tuple[Audit | None, list[str]]:
    try:
        return audited(plan, ledger), []
    except OperatorError as error:
        return None, [f"audit: {error.message}"]


def _told(
    plan: Plan,
    wanted: Expected,
    episodes: Sequence[Episode],
    before: float | None,
    show: Display,
    *,
    wait: bool,
) -> list[Told]:
    """What Prometheis tell of each episode; OperatorError when none answers.

    The drill ``before`` this one began then (Unix seconds).
    """
    first, last = episodes[0].span.since, episodes[-1].span.until
    waited_for: list[str] = []
    show.phase("alerts")

    def look() -> list[Firing]:
        now = time.time()
        return firings(prometheus.firing(plan, now - first + BEFORE_SECONDS), wanted, now)

    def over(found: list[Firing]) -> bool:
        nonlocal waited_for
        still = sorted({firing.alert for firing in awaited(wanted, found, first)})
        if wait and still not in ([], waited_for):
            show.phase(f"until {', '.join(still)} has resolved")
            waited_for = still
        return not still

    longest = last + wanted.gone_seconds + 2 * wanted.known_seconds - time.time()
    found = wait_until(look, max(0.0, longest) if wait else 0.0, ASK_EVERY_SECONDS, done=over)
    ends = [*(episode.span.since for episode in episodes[1:]), time.time()]
    faults_before = [before, *(episode.span.until for episode in episodes[:-1])]
    return [
        told(wanted, found, episode, end, broken)
        for episode, end, broken in zip(episodes, ends, faults_before, strict=True)
    ]
