"""What Prometheus is told: who drives, who stands by, what each job does and how far it is behind.

Every gateway looks for itself, whether it acts or not: what it tells stands in ZooKeeper, Kafka and
YARN, and the one that acts may be the one that is lost. A scrape gets the last look and asks
nobody.

Jobs are told apart by the label `name`: `job` is Prometheus' own word for a kind of target.
The text is made here: `prometheus_client` would be one more package on every worker.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from millrace_gateway.backlog import Backlog, Backlogs
from millrace_gateway.books.account import Figures
from millrace_gateway.decide import Intent, Submission
from millrace_gateway.lag import Lag
from millrace_gateway.registry import Registry
from millrace_gateway.submit import deployment
from millrace_gateway.yarn import Unreachable, Yarn
from millrace_shared.driver_record import STATES, DriverRecord, leader

log = logging.getLogger("gateway.metrics")

LOOK_SECONDS = 10.0

HELP = {
    "millrace_gateway_acting": "Whether this gateway holds the lock.",
    "millrace_gateway_looked_timestamp_seconds": "When what follows was true.",
    "millrace_application_wanted": "Whether it is to run; 0 while it is suspended.",
    "millrace_application_info": "The version that is to run, and the phase it is in.",
    "millrace_application_containers": "That run, as YARN has it: drivers and executors.",
    "millrace_drivers": "Registered drivers, by what they do.",
    "millrace_driver_leading_since_timestamp_seconds": "Changes with each hand-over and take-over.",
    "millrace_driver_standby_since_timestamp_seconds": "Of the driver that stands by for longest.",
    "millrace_driver_rehearsed_timestamp_seconds": "The last rehearsal of any standby driver.",
    "millrace_submission_started_timestamp_seconds": "Changes with each start of a driver.",
    "millrace_submission_failures": "Submissions in a row that brought no driver.",
    "millrace_job_state": "What the leading driver's job does.",
    "millrace_job_trouble": "Whether the job is kept out, fails and is tried again, or isolates.",
    "millrace_job_failed_since_timestamp_seconds": "Of a job that has failed; names what to do.",
    "millrace_job_epoch_given": "The highest epoch that ZooKeeper knows of.",
    "millrace_job_lag_records": "Records that no committed batch has read.",
    "millrace_job_overdue_records": "Those that wait for longer than the job's lag_seconds.",
    "millrace_job_behind_since_timestamp_seconds": "Since when some do; none while none does.",
    "millrace_job_catch_up_seconds": "Until none waits at today's rate; none while they grow.",
    "millrace_job_expires_seconds": "Until Kafka forgets what the job has yet to read.",
    "millrace_ledger_missing_records": "Of a day's batches: in Kafka, and no archive or letter.",
    "millrace_ledger_surplus_records": "Of a day's batches: archived, or letters, more than once.",
    "millrace_ledger_closed_timestamp_seconds": "What was archived before then is in the books.",
}

Sample = tuple[str, dict[str, str], float]


@dataclass(frozen=True)
class Application:
    """What ZooKeeper knows of one, and YARN; ``drivers`` as they tell of themselves."""

    name: str
    intent: Intent | None
    submission: Submission | None
    phase: str
    drivers: Sequence[DriverRecord]
    containers: int | None = None  # while no ResourceManager is active


@dataclass(frozen=True)
class Snapshot:
    """What was seen at a time, in seconds since 1970."""

    at: float = 0.0
    applications: Sequence[Application] = ()
    epochs: Mapping[str, int] = field(default_factory=dict)
    lags: Mapping[str, Lag] = field(default_factory=dict)
    jobs: Collection[str] = ()


def look(
    registry: Registry,
    yarn: Yarn,
    deployments: Path,
    lags: Callable[[Mapping[str, int], float], Mapping[str, Lag]],
    now: float,
) -> Snapshot:
    """``lags`` as `Lags.ask`. Raises what ZooKeeper's client raises."""
    applications = [
        Application(
            name,
            registry.intent(name),
            registry.submission(name),
            registry.status(name).get("phase", ""),
            registry.drivers(name),
            _containers(yarn, name),
        )
        for name in registry.applications()
    ]
    jobs: dict[str, int] = {}
    for application in applications:
        if application.intent:
            version = application.intent.version
            jobs |= deployment(deployments, application.name, version).lag_seconds()
    epochs = {job: epoch for job in jobs if (epoch := registry.epoch(job))}
    return Snapshot(now, applications, epochs, lags(jobs, now), jobs)


def _containers(yarn: Yarn, application: str) -> int | None:
    try:
        return sum(run.containers for run in yarn.active(application))
    except Unreachable:
        return None


def samples(look: Snapshot) -> Iterator[Sample]:
    """Name, labels and value of each; those of one name may stand apart."""
    yield "millrace_gateway_looked_timestamp_seconds", {}, look.at
    for application in look.applications:
        labels = {"application": application.name}
        for name, more, value in _of_application(application):
            yield name, labels | more, value
    for job, epoch in look.epochs.items():
        yield "millrace_job_epoch_given", {"name": job}, epoch
    for job, lag in look.lags.items():
        yield "millrace_job_lag_records", {"name": job}, lag.records
        yield "millrace_job_overdue_records", {"name": job}, lag.overdue
        if lag.expires_seconds is not None:
            yield "millrace_job_expires_seconds", {"name": job}, lag.expires_seconds


def of_backlogs(behind: Mapping[str, Backlog]) -> Iterator[Sample]:
    for job, backlog in behind.items():
        yield "millrace_job_behind_since_timestamp_seconds", {"name": job}, backlog.since
        if backlog.seconds is not None:
            yield "millrace_job_catch_up_seconds", {"name": job}, backlog.seconds


def of_books(figures: Mapping[str, Figures]) -> Iterator[Sample]:
    for stream, told in figures.items():
        labels = {"stream": stream}
        yield "millrace_ledger_missing_records", labels, told.missing
        yield "millrace_ledger_surplus_records", labels, told.surplus
        yield "millrace_ledger_closed_timestamp_seconds", labels, told.closed


def _of_application(application: Application) -> Iterator[Sample]:
    if intent := application.intent:
        yield "millrace_application_wanted", {}, intent.state == "running"
        info = {"version": intent.version, "phase": application.phase}
        yield "millrace_application_info", info, 1
    if submission := application.submission:
        yield "millrace_submission_started_timestamp_seconds", {}, submission.started
        yield "millrace_submission_failures", {}, submission.failures
    if application.containers is not None:
        yield "millrace_application_containers", {}, application.containers
    yield from _of_drivers(application.drivers)


def _of_drivers(drivers: Sequence[DriverRecord]) -> Iterator[Sample]:
    for state in STATES:
        count = sum(driver.state == state for driver in drivers)
        yield "millrace_drivers", {"state": state}, count
    leads = leader(drivers)
    if leads:
        yield "millrace_driver_leading_since_timestamp_seconds", {}, leads.since
    standbys = [driver for driver in drivers if driver.state == "standby"]
    if standbys:
        since = min(driver.since for driver in standbys)
        yield "millrace_driver_standby_since_timestamp_seconds", {}, since
    if rehearsed := [d.rehearsed_at for d in standbys if d.rehearsed_at]:
        yield "millrace_driver_rehearsed_timestamp_seconds", {}, max(rehearsed)
    if leads:
        for job, state in leads.jobs.items():
            yield "millrace_job_state", {"name": job, "state": state}, 1
            yield "millrace_job_trouble", {"name": job}, job in leads.troubles
        for job, failed_since in leads.failed_since.items():
            labels = {"name": job, "runbook": leads.runbooks.get(job, "")}
            yield "millrace_job_failed_since_timestamp_seconds", labels, failed_since


def exposition(found: Iterator[Sample]) -> str:
    """Prometheus' text format, one family after the other."""
    lines: dict[str, list[str]] = {}
    for name, labels, value in found:
        if name not in lines:
            lines[name] = [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge"]
        told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        lines[name].append(f"{name}{{{told}}} {float(value)!r}")
    return "".join(f"{line}\n" for family in lines.values() for line in family)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class Metrics:
    """The last look; a scraper's thread reads it at any time. The gateway sets ``acting``, and
    ``books``: nobody keeps any here while it stands by."""

    def __init__(self) -> None:
        self.acting = False
        self.books: Callable[[], Mapping[str, Figures]] = dict
        self.look = Snapshot()
        self.backlogs = Backlogs.none()

    def take_in(self, look: Snapshot) -> None:
        self.look = look
        self.backlogs = self.backlogs.after(look.lags, look.jobs, look.at)

    def text(self) -> str:
        def told() -> Iterator[Sample]:
            yield "millrace_gateway_acting", {}, self.acting
            yield from samples(self.look)
            yield from of_backlogs(self.backlogs.behind())
            yield from of_books(self.books())

        return exposition(told())

    def keep_looking(self, take: Callable[[float], Snapshot]) -> None:
        """In a thread of its own, for as long as the process lives."""

        def watch() -> None:
            while True:
                try:
                    self.take_in(take(time.time()))
                except Exception as error:  # of ZooKeeper, Kafka, files: none is worth an end
                    log.debug("nothing new for metrics: %r", error)
                time.sleep(LOOK_SECONDS)

        threading.Thread(target=watch, name="metrics", daemon=True).start()

    @contextmanager
    def served(self, port: int) -> Iterator[int]:
        """At /metrics of this port, or of one that is free for 0; gives which."""
        metrics = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10  # s: whoever opens a connection and says nothing

            def do_GET(self) -> None:
                if self.path != "/metrics":
                    self.send_error(404)
                    return
                text = metrics.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                """Not a line each 15 seconds."""

        with ThreadingHTTPServer(("", port), Handler) as server:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, name="scrapes", daemon=True).start()
            try:
                yield server.server_address[1]
            finally:
                server.shutdown()
