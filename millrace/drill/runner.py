"""Runs drills: load, the floor and the experiment some times, audit, report."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import not_
from pathlib import Path

from millrace.common.console import Console
from millrace.common.errors import OperatorError, UnhealthyError
from millrace.common.machine import this_machine
from millrace.common.paths import stack_state
from millrace.common.waiting import wait_until
from millrace.config.alerts import load_alerts
from millrace.drill import experiment, standby
from millrace.drill.alerts import Expected, Firing, alert_outcomes, awaited, expected, firings
from millrace.drill.cluster import Cluster
from millrace.drill.display import Display
from millrace.drill.options import DrillOptions
from millrace.drill.picture import gaps_svg
from millrace.drill.report import (
    LOST,
    AlertOutcomes,
    Audit,
    Gaps,
    Machine,
    Report,
    combined,
    markdown,
    measured,
    when,
)
from millrace.drill.runbook import FrontMatter, Runbook
from millrace.drill.stage import ASK_EVERY_SECONDS, Drill, Stage, wait_healthy
from millrace.drill.timeline import Episode, Span, Timeline
from millrace.drill.watch import Loading
from millrace.ledger import IngestPath
from millrace.plan import Plan

# After idling the whole service is cold for a moment, the leader, too; the standby stays so.
SETTLE_SECONDS = 60.0
# Busy cores answer a question late, and a job that another command has just left catches up.
STEADY_SECONDS = 60.0
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


def require_steady(cluster: Cluster, show: Display) -> None:
    """Raises UnhealthyError unless the cluster is in its steady state, or comes to it soon."""
    if not cluster.problems():
        return
    show.phase(f"until the cluster is healthy, {STEADY_SECONDS:g} s at most")
    if problems := wait_until(cluster.problems, STEADY_SECONDS, ASK_EVERY_SECONDS, done=not_):
        raise UnhealthyError(
            "\n".join(problems), "nothing was injected; `make up` heals, `millrace status` shows it"
        )


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
    def through(self) -> IngestPath:
        return self.runbook.about.through

    def episodes(self, stage: Stage) -> Iterator[Episode]:
        for number in range(1, self.times + 1):
            episode = self._episode(stage, number)
            yield episode
            if episode.failures:
                return

    def _episode(self, stage: Stage, number: int) -> Episode:
        # A control run is itself what others stand on.
        floor = stage.floor() if self.faults else None
        stage.show.phase(f"run {number} of {self.times}")
        standby_since = standby.standby_since(stage.cluster)
        since = time.time()
        outcome = experiment.run_experiment(self.runbook, stage.folder / f"run-{number}")
        failures = [
            *outcome.failures,
            *wait_healthy(stage.cluster, stage.show),
            *stage.watch.problems(),
        ]
        # Before its injection nothing was broken.
        injected = next((mark.start for mark in outcome.marks if mark.name == "inject"), since)
        span = Span(injected, time.time())
        return Episode(span, outcome.marks, failures, standby_since, floor)


def run(cluster: Cluster, runbook: Runbook, options: DrillOptions, console: Console) -> Report:
    """Performs one runbook's drill and writes its report. Raises OperatorError when it can't
    begin.

    For a standby of some age, or alerts that are waited for, each run has a load and an audit of
    its own: no load flows meanwhile, which would be millions of events to audit.
    """
    require_allowed(cluster.plan, runbook.about)
    rules = [alert for file in load_alerts().values() for alert in file.alerts]
    wanted = expected(cluster.plan, runbook.about, rules)
    if not (options.standby_idle_minutes or options.await_alerts):
        return perform(cluster, RunbookDrill(runbook, options.times, wanted), options, console)
    if options.await_alerts and wanted.alert and not wanted.silent:
        runbook = _held(runbook, wanted.due_seconds)
    drill = RunbookDrill(runbook, 1, wanted)
    reports: list[Report] = []
    while len(reports) < options.times and not any(report.all_failures for report in reports):
        if minutes := options.standby_idle_minutes:
            with Display(console, runbook.name) as show:
                show.phase(f"until the standby has stood by for {minutes:g} min")
                standby.wait_until_idle(cluster, 60 * minutes)
        reports.append(perform(cluster, drill, options, console))
    return combined(reports)


def _held(runbook: Runbook, at_least_seconds: float) -> Runbook:
    hold = max(runbook.about.hold, at_least_seconds)
    return replace(runbook, about=runbook.about.model_copy(update={"hold": hold}))


def perform(cluster: Cluster, drill: Drill, options: DrillOptions, console: Console) -> Report:
    """Load, the drill's episodes, audit; its report is written.

    Where alerts are what is looked at, the load has no late events: those would fire one
    themselves. Raises OperatorError when it can't begin.
    """
    plan = cluster.plan
    with Display(console, drill.name) as show:
        require_steady(cluster, show)
        disabled = cluster.disabled()
        started = datetime.now(UTC)
        folder = stack_state(plan.environment) / "drills" / f"{drill.name}-{started:%Y%m%dT%H%M%SZ}"
        folder.mkdir(parents=True)
        quiet = options.await_alerts or (drill.alerts is not None and drill.alerts.alert is None)
        load = Loading(options.rate, folder.name, folder, drill.through, late=not quiet)
        settle_seconds = SETTLE_SECONDS if options.standby_idle_minutes else 0
        with cluster.watching(load, show, drill.goal, settle_seconds) as watch:
            before = cluster.last_drill()
            cluster.drill_began(drill.name, time.time())
            stage = Stage(cluster, folder, show, watch, options.floor_seconds)
            episodes = list(drill.episodes(stage))
        timeline = Timeline(watch.successes(), episodes)
        show.phase("audit")
        audit, failures = _audit(cluster, watch.ledger)
        runs = measured(timeline)
        if drill.alerts:
            try:
                found = _alert_outcomes(
                    cluster, drill.alerts, episodes, before, show, wait=options.await_alerts
                )
            except OperatorError as error:
                failures += [f"alerts: {error.message}"] if options.await_alerts else []
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
        rate=options.rate,
        jobs=[job for job in plan.jobs if job not in disabled],
        goal=drill.goal,
        alert=drill.alerts.alert if drill.alerts else None,
        runs=runs,
        failures=failures,
        audit=audit,
    )
    write(report, timeline, folder)
    console.print(f"report: {folder}/report.md")
    return report


def write(report: Report, timeline: Timeline, folder: Path) -> None:
    """The report's files; journals and blocks' output stand in their runs' folders beside them."""
    record(report, folder / "report.json")
    (folder / "report.md").write_text(markdown(report))
    (folder / "gaps.svg").write_text(gaps_svg(timeline, report.floor, report.worst))


def record(report: Report, path: Path) -> None:
    """Keeps a report as JSON; the documents' tables are made of what is in `docs/drills/`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.model_dump_json(indent=2) + "\n")


def run_all(
    cluster: Cluster, runbooks: Iterable[Runbook], options: DrillOptions, console: Console
) -> Iterator[Report]:
    """Performs drills one after the other; a missed goal doesn't stop them, loss or a sick cluster
    does."""
    for runbook in runbooks:
        report = run(cluster, runbook, options, console)
        yield report
        if report.verdict == LOST or cluster.problems():
            return


def _machine() -> Machine:
    found = this_machine()
    return Machine(cores=found.cores, cpus=[found.cpu], memory_gib=found.memory_gib)


def _audit(cluster: Cluster, ledger: Path) -> tuple[Audit | None, list[str]]:
    try:
        return cluster.audited(ledger), []
    except OperatorError as error:
        return None, [f"audit: {error.message}"]


def _alert_outcomes(
    cluster: Cluster,
    wanted: Expected,
    episodes: Sequence[Episode],
    before: float | None,
    show: Display,
    *,
    wait: bool,
) -> list[AlertOutcomes]:
    """Returns what Prometheis tell of each episode. Raises UnreachableError when none answers.

    The drill ``before`` this one began then (Unix seconds).
    """
    first, last = episodes[0].span.since, episodes[-1].span.until
    waited_for: list[str] = []
    show.phase("alerts")

    def look() -> list[Firing]:
        now = time.time()
        return firings(cluster.firing(now - first + BEFORE_SECONDS), wanted, now)

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
        alert_outcomes(wanted, found, episode, end, broken)
        for episode, end, broken in zip(episodes, ends, faults_before, strict=True)
    ]
