"""A known load and the samplers of all planes, running while a drill breaks things."""

import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from millrace.common.errors import OperatorError
from millrace.common.waiting import wait_until
from millrace.drill.display import Display
from millrace.drill.gaps import Times
from millrace.drill.planes import Sampler, sampling, successes
from millrace.drill.report import Audit, JobAudit
from millrace.drill.runbook import Plane
from millrace.drill.timeline import Successes
from millrace.ledger import IngestPath
from millrace.ledger.advertisements import CLICKS, IMPRESSIONS
from millrace.ledger.session import ledgers
from millrace.ledger.store import Ledger
from millrace.plan import Plan

LOG = "load.log"
ADVERTISING_LOG = "advertise.log"
ADVERTISEMENTS = (IMPRESSIONS, CLICKS)
ADVERTISED = 50.0  # impressions/s
LOAD_LENGTH = "12h"  # at most; the load is stopped when the drill ends
FLOWING_BATCHES = 3
LONGEST_START_SECONDS = 120.0  # until results flow
LONGEST_STOP_SECONDS = 120.0  # until the last events are acknowledged
AUDIT_WAIT_SECONDS = 180.0  # until the jobs have counted the last event


@dataclass(frozen=True)
class Loading:
    """``rate`` is events/s, ``ledger`` the run's name; ``folder`` has what the load says.

    Without ``late`` no event comes too late to be counted, which an alert would tell of.
    """

    rate: float
    ledger: str
    folder: Path
    through: IngestPath
    late: bool = True


@dataclass(frozen=True)
class Watch:
    """Load and samplers that are running; ``log`` and ``ledger`` are the load's."""

    samplers: dict[Plane, Sampler]
    load: subprocess.Popen[bytes]
    log: Path
    ledger: Path

    def successes(self) -> Successes:
        """To be asked when the load has ended: its ledger tells of `produce`."""
        seen = {plane: [times] for plane, times in successes(self.samplers).items()}
        return {Plane.PRODUCE: _acknowledged(Ledger.open(self.ledger))} | seen

    def problems(self) -> list[str]:
        if self.load.poll() is None:
            return []
        said = _said(self.log)
        return [f"the load ended before the drill did, with {self.load.returncode}: {said[-2000:]}"]


@contextmanager
def watching(
    plan: Plan,
    asked: Loading,
    show: Display,
    goals: Collection[str] = (),
    settle_seconds: float = 0,
) -> Iterator[Watch]:
    """Load and samplers run inside the context, results flow, and ``settle_seconds`` have passed.

    ``goals`` are the planes to look at closely.
    """
    show.phase(f"load of {asked.rate:,.0f} events/s, until results flow")
    ads = advertising(asked.folder) if is_advertised(plan) else nullcontext()
    with sampling(plan, goals) as samplers, loading(asked) as load, ads:
        show.samplers = samplers
        _wait_for_results(samplers[Plane.READ], load, asked.folder)
        if settle_seconds:
            show.phase(f"settle, {settle_seconds:g} s")
            time.sleep(settle_seconds)
        yield Watch(samplers, load, asked.folder / LOG, ledgers(plan) / asked.ledger)
        show.phase("the last events are acknowledged")


def loading(asked: Loading) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """`millrace load`, ended in order when the context is left."""
    arguments = ["--rate", f"{asked.rate:g}", "--for", LOAD_LENGTH, "--run", asked.ledger]
    arguments += ["--through", asked.through, *([] if asked.late else ["--late", "0"])]
    return _sending(["load", *arguments], asked.folder / LOG)


def advertising(folder: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """`millrace advertise` likewise, for the jobs that read advertisements."""
    arguments = ["--rate", f"{ADVERTISED:g}", "--for", LOAD_LENGTH]
    return _sending(["advertise", *arguments], folder / ADVERTISING_LOG)


def is_advertised(plan: Plan) -> bool:
    """Returns whether a job that is running reads advertisements. Raises OperatorError if nobody
    knows."""
    from millrace.audit.declared import jobs_of

    return bool(jobs_of(plan, ADVERTISEMENTS))


@contextmanager
def _sending(arguments: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "millrace.cli", *arguments]
    with log.open("wb") as out:
        # A session of its own: Ctrl-C undoes the fault first, then ends the load.
        sender = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield sender
        finally:
            sender.send_signal(signal.SIGTERM)
            try:
                sender.wait(LONGEST_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                sender.kill()
                sender.wait()


def audited(plan: Plan, ledger: Path) -> Audit:
    """Looks for every event of the load in every sink, and counts declared jobs' rows again: those
    of the jobs that read advertisements, too.

    Raises OperatorError when that can't be done.
    """
    from millrace.audit.declared import audit_job_since, jobs_of
    from millrace.audit.run import audit

    fates = Ledger.open(ledger)
    events = audit(plan, [ledger], wait=AUDIT_WAIT_SECONDS)
    since = datetime.fromtimestamp(fates.started, UTC)
    rows = {
        job: audit_job_since(plan, job, since, AUDIT_WAIT_SECONDS)
        for job in jobs_of(plan, {plan.spark.settings.common.stream, *ADVERTISEMENTS})
    }
    reports = [events, *rows.values()]
    return Audit(
        lost=sum(report.lost for report in reports),
        duplicated=sum(report.duplicated for report in reports),
        wrong=sum(report.wrong for report in reports),
        acknowledged=int(fates.acked.sum()),
        failed=fates.failed,
        in_doubt=fates.in_doubt,
        jobs={
            job: JobAudit(
                rows=report.truth,
                lost=report.lost,
                duplicated=report.duplicated,
                wrong=report.wrong,
            )
            for job, report in rows.items()
        },
    )


def _said(log: Path) -> str:
    return log.read_text(errors="replace").strip()


def _wait_for_results(results: Sampler, load: subprocess.Popen[bytes], folder: Path) -> None:
    def flowing() -> bool:
        if load.poll() is not None:
            raise OperatorError(f"the load did not start:\n{_said(folder / LOG)}")
        return len(results.growths()) >= FLOWING_BATCHES

    if not wait_until(flowing, LONGEST_START_SECONDS, every_seconds=0.5):
        raise OperatorError(
            f"no results flow after {LONGEST_START_SECONDS:g} s of load; {results.error}",
            "`millrace status` shows what is down; nothing was injected",
        )


def _acknowledged(ledger: Ledger) -> list[Times]:
    """Returns by partition the times of its acknowledgements, ascending."""
    times = ledger.started + ledger.acked_ms / 1000
    return [
        np.sort(times[ledger.partition == partition]) for partition in range(ledger.spec.partitions)
    ]
