"""`job-gateway recount`, `reconcile`, `why`: a job's rows are counted again, or explained by their
events, by a version of its code.

With a Spark of its own on this host, which systemd keeps small: neither a driver nor YARN notices.
"""

import json
import subprocess
from collections.abc import Iterable, Mapping
from typing import Protocol

from millrace_gateway.decide import Intent
from millrace_gateway.settings import Settings
from millrace_gateway.submit import Deployment, NotDeployed, deployment
from millrace_gateway.upkeep import environment

COUNT, RECONCILE = "millrace_jobs.recount.run", "millrace_jobs.reconcile.run"
EXPLAIN = "millrace_jobs.recount.why"
UNIT = "recount"  # one at a time
UPKEEP = "upkeep"
AT_WORK = {"active", "activating", "deactivating"}


class Busy(Exception):
    """This host has no memory to spare now; another one may."""


class Book(Protocol):
    """What it needs of the registry."""

    def applications(self) -> list[str]: ...
    def intent(self, application: str) -> Intent | None: ...


def running_version(book: Book, settings: Settings, job: str) -> Deployment:
    """The deployment whose driver runs a job. Raises NotDeployed."""
    for application in book.applications():
        intent = book.intent(application)
        if intent is None:
            continue
        found = deployment(settings.deployments, application, intent.version)
        found.check()
        if job in json.loads(found.config.read_text())["jobs"]:
            return found
    raise NotDeployed(f"no application was started that runs job {job}")


def run(what: Deployment, settings: Settings, module: str, question: Mapping[str, str]) -> int:
    """Ask, and let print what is found; the exit code. Raises Busy.

    Args:
        module: COUNT; or RECONCILE or EXPLAIN, which read on from this process' stdin.
        question: the module's arguments.
    """
    if busy := at_work((UPKEEP, UNIT)):
        raise Busy(f"{settings.name}: {busy} is at work, and memory is for one")
    return subprocess.run(command(what, settings, module, question)).returncode


def at_work(units: Iterable[str]) -> str:
    """The first of these units that does something; empty if none does."""
    for unit in units:
        asked = ["systemctl", "show", "--property=ActiveState", "--value", unit]
        if subprocess.run(asked, capture_output=True, text=True).stdout.strip() in AT_WORK:
            return unit
    return ""


def command(
    what: Deployment, settings: Settings, module: str, question: Mapping[str, str]
) -> list[str]:
    """Limits are those of the upkeep, in whose place it runs."""
    limits = {
        "User": settings.account,
        "MemoryMax": f"{settings.upkeep.memory_mb}M",
        "RuntimeMaxSec": f"{settings.recount_timeout_seconds:.0f}",
        "Nice": "19",
        "IOSchedulingClass": "idle",
        "CPUWeight": "10",
        "OOMScoreAdjust": "500",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "WorkingDirectory": "/tmp",
    }
    given = settings.environment | environment(what, settings, settings.environment)
    return [
        *("systemd-run", "--pipe", "--wait", "--collect", "--quiet", f"--unit={UNIT}"),
        *(f"--property={name}={value}" for name, value in limits.items()),
        *(f"--setenv={name}={value}" for name, value in given.items()),
        *(str(settings.python), "-m", module, "--config", str(what.config)),
        *(f"--{name}={value}" for name, value in question.items()),
    ]
