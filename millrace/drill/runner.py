"""Runs drills: load, calm, the experiment some times, audit, report."""

import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from operator import not_
from pathlib import Path
from typing import Any

from rich.console import Console

from millrace.common.errors import OperatorError
from millrace.common.paths import stack_state
from millrace.common.waiting import wait_until
from millrace.drill import experiment, watch
from millrace.drill.display import Display
from millrace.drill.picture import gaps_svg
from millrace.drill.report import (
    LOST,
    Audit,
    Machine,
    Mark,
    Report,
    Run,
    Span,
    Successes,
    gaps_between,
    markdown,
)
from millrace.drill.runbook import FrontMatter, Runbook
from millrace.drill.tables import SUMMARIES
from millrace.plan import Plan
from millrace.status import health

LONGEST_HEAL_SECONDS = 300.0  # from the end of an experiment until all is healthy
ASK_EVERY_SECONDS = 10.0  # a look at every host is work for the machine that is measured
GIB = 2**30


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


def run(plan: Plan, runbook: Runbook, times: int, rate: float, console: Console) -> Report:
    """One drill with its report written; raises OperatorError when it can't begin."""
    require_allowed(plan, runbook.about)
    require_steady(plan)
    folder, started = new_folder(plan, runbook.name)
    runs: list[tuple[float, float, experiment.Outcome]] = []
    with Display(console, runbook.name) as show:
        goals = runbook.about.goal
        with watch.watching(plan, rate, folder.name, folder, show, goals) as seen:
            for number in range(1, times + 1):
                show.phase(f"run {number} of {times}")
                since = time.time()
                outcome = experiment.run_experiment(runbook, folder / f"run-{number}")
                outcome.failures.extend(wait_healthy(plan, show))
                outcome.failures.extend(_load_problems(seen))
                runs.append((since, time.time(), outcome))
                if outcome.failures:
                    break
        successes = seen.successes()
        report = Report(
            name=runbook.name,
            title=runbook.about.title,
            faults=runbook.about.faults,
            goal=runbook.about.goal,
            runs=[
                measured(successes, since, until, outcome.marks, outcome.failures)
                for since, until, outcome in runs
            ],
            calm=Span(
                since=seen.calm[0],
                until=seen.calm[1],
                gaps=gaps_between(successes, *seen.calm),
            ),
            **judged(plan, seen, rate, started, show),
        )
    write(report, successes, folder)
    console.print(f"report: {folder}/report.md")
    return report


def new_folder(plan: Plan, name: str) -> tuple[Path, datetime]:
    started = datetime.now(UTC)
    folder = stack_state(plan.environment) / "drills" / f"{name}-{started:%Y%m%dT%H%M%SZ}"
    folder.mkdir(parents=True)
    return folder, started


def judged(
    plan: Plan, seen: watch.Watch, rate: float, started: datetime, show: Display
) -> dict[str, Any]:
    """What every report says in the end: where and when it was, and what the audit found."""
    show.phase("audit")
    found, failures = _audit(plan, seen.ledger)
    return {
        "date": f"{started:%Y-%m-%d %H:%M}Z",
        "stack": plan.environment,
        "machine": this_machine(),
        "rate": rate,
        "audit": found,
        "failures": failures,
    }


def measured(
    successes: Successes, since: float, until: float, marks: list[Mark], failures: list[str]
) -> Run:
    """A run's interruptions, from its injection on: before it, nothing was broken."""
    injected = next((mark.start for mark in marks if mark.name == "inject"), since)
    return Run(
        since=injected,
        until=until,
        gaps=gaps_between(successes, injected, until),
        marks=marks,
        failures=failures,
    )


def wait_healthy(plan: Plan, show: Display) -> list[str]:
    """Waits until the cluster is in its steady state; else what is wrong in the end."""
    show.phase("until the cluster is healthy")
    problems = wait_until(
        lambda: health.problems(plan), LONGEST_HEAL_SECONDS, ASK_EVERY_SECONDS, done=not_
    )
    return [f"not healed after {LONGEST_HEAL_SECONDS:g} s: {problem}" for problem in problems]


def write(report: Report, successes: Successes, folder: Path) -> None:
    """The report's files; journals and blocks' output stand in their runs' folders beside them."""
    (folder / "report.json").write_text(report.model_dump_json(indent=2) + "\n")
    (folder / "report.md").write_text(markdown(report))
    (folder / "gaps.svg").write_text(gaps_svg(report, successes))


def record(report: Report, folder: Path = SUMMARIES) -> None:
    """Keeps the summary in the repository; the documents' tables are made of these."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{report.name}.json").write_text(report.summary().model_dump_json(indent=2) + "\n")


def run_all(
    plan: Plan, runbooks: Iterable[Runbook], times: int, rate: float, console: Console
) -> Iterable[Report]:
    """One drill after the other; a missed goal doesn't stop them, loss or a sick cluster does."""
    for runbook in runbooks:
        report = run(plan, runbook, times, rate, console)
        yield report
        if report.verdict == LOST or health.problems(plan):
            return


def this_machine() -> Machine:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(cores=os.cpu_count() or 1, memory_gib=round(pages / GIB, 1))


def _audit(plan: Plan, ledger: Path) -> tuple[Audit | None, list[str]]:
    try:
        return watch.audited(plan, ledger), []
    except OperatorError as error:
        return None, [f"audit: {error.message}"]


def _load_problems(seen: watch.Watch) -> list[str]:
    return [] if seen.load.poll() is None else ["the load ended before the drill did"]
