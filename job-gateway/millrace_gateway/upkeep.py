"""`job-gateway upkeep`: once a day what has grown is cut back, by whichever edge host comes first.

Each host's timer looks every hour. So one that fails, or dies with its host, is made good by the
next look on either host.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from millrace_gateway.decide import Intent
from millrace_gateway.settings import Settings
from millrace_gateway.submit import Deployment, deployment, first_error
from millrace_shared.driver_record import DriverRecord, leader

DAY = 86_400
HOUR = 3600
PATIENCE_HOURS = 3  # of a night in which jobs are behind; then it is done beside them
MODULE = "millrace_jobs.upkeep"


class Failed(Exception):
    """It ended before all was done; says why, and where to read more."""


@dataclass(frozen=True)
class Record:
    """What the last ones came to. ``since`` is when the last that succeeded began, or when one was
    first looked for; ``host`` did it. ``error`` is why the one after it failed, empty if none did.
    Times are seconds since 1970."""

    since: float
    host: str = ""
    error: str = ""


class Book(Protocol):
    """What it needs of the registry."""

    def applications(self) -> list[str]: ...
    def intent(self, application: str) -> Intent | None: ...
    def drivers(self, application: str) -> list[DriverRecord]: ...
    def upkeep(self) -> Record | None: ...
    def put_upkeep(self, record: Record) -> None: ...


def is_due(since: float, now: float, hour: int) -> bool:
    """Whether the clock (UTC) has struck this hour since then."""
    return (now - hour * HOUR) // DAY > (since - hour * HOUR) // DAY


def due(last: Record | None, now: float) -> Record:
    """The record by which the next look has to do it."""
    return replace(last or Record(now), since=(last.since if last else now) - DAY)


def waits_for(drivers: Iterable[DriverRecord | None], now: float, hour: int) -> list[str]:
    """Jobs of leading drivers that need the cores more, for some hours after the clock struck."""
    if (now - hour * HOUR) % DAY >= PATIENCE_HOURS * HOUR:
        return []
    return sorted(job for leads in drivers if leads for job in leads.behind_since)


def look(
    book: Book,
    settings: Settings,
    work: Callable[[Deployment], None],
    clock: Callable[[], float] = time.time,
) -> str:
    """Do it if it is due; says what was done. Only for who holds the lock. Raises Failed.

    A cluster that has never had one waits for its first night, with all that is new in it.
    """
    began = clock()
    last = book.upkeep()
    if last is None:
        book.put_upkeep(Record(since=began))
        return "looked for the first time: nothing is due yet"
    if not is_due(last.since, began, settings.upkeep.hour_utc):
        return "done already"
    applications = book.applications()
    leads = (leader(book.drivers(application)) for application in applications)
    if behind := waits_for(leads, began, settings.upkeep.hour_utc):
        return f"due, but {', '.join(behind)} is behind: the next look"
    try:
        for application in applications:
            if intent := book.intent(application):
                work(deployment(settings.deployments, application, intent.version))
    except Exception as error:
        book.put_upkeep(Record(last.since, settings.name, str(error)))
        raise Failed(str(error)) from error
    book.put_upkeep(Record(began, settings.name))
    return "done"


def cut_back(what: Deployment, settings: Settings, running: Iterable[str]) -> None:
    """Have a version's own code do it, with a Spark of its own on this host. Raises Failed.

    Not on YARN: that would take containers which a driver's successor may need at that moment.
    """
    what.check()
    log = settings.logs / f"upkeep-{what.application}.log"  # of the last one only
    with tempfile.TemporaryDirectory(prefix="upkeep-") as folder, log.open("wb") as output:
        try:
            done = subprocess.run(
                command(what, settings, running),
                cwd=folder,
                env=os.environ | environment(what, settings, os.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=settings.upkeep.timeout_seconds,
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"not done after {error.timeout:.0f} s ({log})") from error
    if done.returncode:
        raise Failed(first_error(log))


def command(what: Deployment, settings: Settings, running: Iterable[str]) -> list[str]:
    upkeep = settings.upkeep
    return [
        *(sys.executable, "-m", MODULE, "--config", str(what.config)),
        *("--logs", upkeep.application_logs, "--left-days", str(upkeep.left_days)),
        *("--running", *running),
    ]


def environment(
    what: Deployment, settings: Settings, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Of a Spark on this host; everything else that it needs to know is in spark-defaults.conf."""
    path = [str(what.package), *filter(None, [inherited.get("PYTHONPATH")])]
    local = {
        "spark.driver.memory": f"{settings.upkeep.heap_mb}m",
        "spark.driver.host": "localhost",
        "spark.ui.enabled": "false",
    }
    confs = " ".join(f"--conf {key}={value}" for key, value in local.items())
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "PYSPARK_SUBMIT_ARGS": f"--master local[{settings.upkeep.cores}] {confs} pyspark-shell",
    }
