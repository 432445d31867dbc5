"""Processor time and memory of every process on this machine, by role.

The hosts of the stack `local` are containers: their processes are this machine's. What ends between
two looks is charged as last seen; the machine's own counters say how much is missing.
"""

import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import yaml

from millrace.common.errors import OperatorError

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
ROLES = Path(__file__).with_name("roles.yaml")
LOOK_SECONDS = 2.0
KERNEL_PARENT = 2
HOSTS, KERNEL, OTHERS = "hosts", "kernel", "others"


@dataclass(frozen=True)
class Process:
    """``cpu`` in seconds since it began, ``started`` in ticks: with the id it is unique."""

    pid: int
    parent: int
    started: int
    cpu: float
    command: str
    contained: bool


class Roles:
    def __init__(self, declared: Mapping[str, Any]) -> None:
        self._patterns = {role: re.compile(text) for role, text in declared["roles"].items()}
        self.strangers = frozenset(declared["strangers"])
        self.observers = frozenset(declared["observers"])

    @classmethod
    def load(cls) -> Self:
        return cls(yaml.safe_load(ROLES.read_text()))

    def of(self, processes: Iterable[Process]) -> dict[int, str]:
        """Process id → role."""
        known = {process.pid: process for process in processes}
        return {pid: self._role(process, known) for pid, process in known.items()}

    def _role(self, process: Process, known: Mapping[int, Process]) -> str:
        at: Process | None = process
        while at and at.pid > KERNEL_PARENT:
            for role, pattern in self._patterns.items():
                if pattern.search(at.command):
                    return role
            # A container's processes are not the engine's that started it.
            above = known.get(at.parent)
            at = above if above and above.contained == process.contained else None
        if process.contained:
            return HOSTS
        return KERNEL if KERNEL_PARENT in (process.pid, process.parent) else OTHERS


class Usage:
    """Seconds of processor time by role since the first look; every look may find new processes."""

    def __init__(self, roles: Roles, first: Sequence[Process]) -> None:
        self._roles = roles
        self._before = {(each.pid, each.started): each.cpu for each in first}
        self._used: dict[tuple[int, int], tuple[str, float]] = {}

    def look(self, processes: Sequence[Process]) -> None:
        roles = self._roles.of(processes)
        for each in processes:
            identity = each.pid, each.started
            used = each.cpu - self._before.get(identity, 0.0)
            self._used[identity] = roles[each.pid], used

    def by_role(self) -> dict[str, float]:
        sums: dict[str, float] = {}
        for role, used in self._used.values():
            sums[role] = sums.get(role, 0.0) + used
        return dict(sorted(sums.items(), key=lambda item: -item[1]))


class Meter:
    """A context manager that looks all the time; afterwards ``cores`` has what was used."""

    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="meter", daemon=True)
        self.seconds = 0.0
        self.unseen = 0.0

    def __enter__(self) -> Self:
        self._began, self._busy = _uptime(), _busy_seconds()
        self._usage = Usage(self.roles, list(processes()))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._usage.look(list(processes()))
        self.seconds = _uptime() - self._began
        used = sum(self._usage.by_role().values())
        self.unseen = (_busy_seconds() - self._busy - used) / self.seconds

    @cached_property
    def cores(self) -> dict[str, float]:
        """Cores in use on average, by role; ``unseen`` is what no known process has used."""
        return {role: used / self.seconds for role, used in self._usage.by_role().items()}

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self._usage.look(list(processes()))


def service(cores: Mapping[str, float], roles: Roles) -> float:
    """All but those who offer load, look on or have nothing to do with it."""
    return sum(used for role, used in cores.items() if role not in roles.observers)


def memory_mib(roles: Roles) -> dict[str, float]:
    """Resident memory by role; what processes share is divided among them where the kernel says."""
    found = list(processes())
    named = roles.of(found)
    sums: dict[str, float] = {}
    for each in found:
        if role := named[each.pid]:
            sums[role] = sums.get(role, 0.0) + _resident_mib(each.pid)
    return {role: mib for role, mib in sorted(sums.items(), key=lambda item: -item[1]) if mib}


def require_stack(roles: Roles) -> None:
    """Raises OperatorError where the service's processes aren't this machine's."""
    if "brokers" not in roles.of(processes()).values():
        raise OperatorError(
            "no broker runs on this machine: processor time is charged by process",
            "`make up` makes the stack local, whose hosts are containers here",
        )


def processes() -> Iterable[Process]:
    """All that are there; one that ends meanwhile is left out."""
    for folder in PROC.iterdir():
        if folder.name.isdecimal():
            try:
                yield parse(
                    (folder / "stat").read_text(),
                    (folder / "cmdline").read_bytes(),
                    (folder / "cgroup").read_text(),
                )
            except (OSError, ValueError):
                continue


def parse(stat: str, command: bytes, cgroup: str) -> Process:
    """Of /proc: a process's name may have brackets and spaces in it."""
    pid, _, rest = stat.partition(" ")
    fields = rest[rest.rindex(")") + 2 :].split()
    return Process(
        pid=int(pid),
        parent=int(fields[1]),
        started=int(fields[19]),
        cpu=(int(fields[11]) + int(fields[12])) / TICKS,
        command=command.replace(b"\0", b" ").decode(errors="replace"),
        contained="docker" in cgroup,
    )


def processor_seconds(pid: int) -> float:
    """That a process has used until now."""
    stat = (PROC / str(pid) / "stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS


def _resident_mib(pid: int) -> float:
    try:
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def _busy_seconds() -> float:
    """Of all cores: user, nice, system, and both kinds of interrupts."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, (PROC / "stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq) / TICKS


def _uptime() -> float:
    return float((PROC / "uptime").read_text().split()[0])
