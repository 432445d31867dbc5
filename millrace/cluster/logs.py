"""The logs of hosts: read and searched there, by `log_reader`, and handed over as they come."""

import json
import shlex
import subprocess
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from millrace.cluster import log_reader
from millrace.cluster.ssh import ssh_command
from millrace.plan import DATA_ROOT, LOGS_ROOT, Host, Plan

# What logs are of, besides the plan's services: what runs on YARN, and the rest of the journal.
CONTAINERS = ("driver", "executor")
SYSTEM = "system"


class Entry(NamedTuple):
    """What somebody said at a time, in seconds since 1970; ``text`` may have several lines."""

    time: float
    host: str
    source: str
    level: str  # of `log_reader.LEVELS`
    text: str


@dataclass(frozen=True)
class Wanted:
    """Which entries: ``since`` and ``until`` are seconds since 1970, ``pattern`` is a regular
    expression, ``parts`` are services of the plan, `CONTAINERS` or `SYSTEM`, ``level`` is the least
    one. ``follow``: also what comes from now on."""

    since: float
    until: float
    parts: Collection[str]
    pattern: str = ""
    gc: bool = False
    level: str = log_reader.LEVELS[0]
    follow: bool = False

    def question(self, plan: Plan, host: Host) -> dict[str, Any]:
        """Returns the question as `log_reader` on that host takes it."""
        services = [plan.services[name] for name in host.services if name in self.parts]
        runs_containers = "nodemanager" in host.services and {*CONTAINERS} & {*self.parts}
        worker = f"{DATA_ROOT}/{plan.services['nodemanager'].unit}/logs"
        return {
            "since": self.since,
            "until": self.until,
            "pattern": self.pattern,
            "level": self.level,
            "units": {service.unit: f"{LOGS_ROOT}/{service.unit}" for service in services},
            "containers": worker if runs_containers else None,
            "kinds": [kind for kind in CONTAINERS if kind in self.parts],
            "system": SYSTEM in self.parts,
            "gc": self.gc,
            "follow": self.follow,
        }


class HostLog:
    """The entries of one host, the oldest first; read while they come.

    Of a log that is followed these are the past; `coming` goes on from there. ``problem`` says,
    once they have ended, why they aren't all: None unless the host didn't answer, or wasn't done in
    time.
    """

    def __init__(self, plan: Plan, host: Host, wanted: Wanted, within: float | None) -> None:
        self.host = host.name
        self.problem: str | None = None
        question = shlex.quote(json.dumps(wanted.question(plan, host)))
        with Path(log_reader.__file__).open() as program:
            # Whatever else the host does goes first.
            self._process = subprocess.Popen(
                [*ssh_command(plan, host), f"sudo nice python3 - {question}"],
                stdin=program,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        self._timer = threading.Timer(within, self._give_up) if within else None
        if self._timer:
            self._timer.start()

    def __iter__(self) -> Iterator[Entry]:
        for entry in self._entries():
            if entry is None:
                return
            yield entry

    def coming(self) -> Iterator[Entry]:
        """Yields what is said from then on, until the host isn't heard any more."""
        return (entry for entry in self._entries() if entry)

    def _entries(self) -> Iterator[Entry | None]:
        """None for the empty lines that end the past, and show that somebody is there."""
        assert self._process.stdout
        assert self._process.stderr
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # cut off
            if line == "\n":
                yield None
                continue
            time, source, level, text = json.loads(line)
            yield Entry(time, self.host, source, level, text)
        said = self._process.stderr.read().strip()
        if self._process.wait() and not self.problem:
            self.problem = said.splitlines()[-1] if said else "unreachable"
        self.end()

    def end(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._process.kill()
        self._process.wait()

    def _give_up(self) -> None:
        if self._process.poll() is None:
            self.problem = "not done in time"
            self._process.kill()


@contextmanager
def reading(
    plan: Plan, hosts: Sequence[Host], wanted: Wanted, within: float | None = None
) -> Iterator[list[HostLog]]:
    """The logs of hosts, all of which are asked at once; ``within`` seconds, if that is given."""
    logs = [HostLog(plan, host, wanted, within) for host in hosts]
    try:
        yield logs
    finally:
        for log in logs:
            log.end()
