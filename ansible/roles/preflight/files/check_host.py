"""Compares this host with what the plan expects of it: a sentence per problem, or nothing.

Runs on the host, by its own Python and nothing else, with the expectation (JSON) as argument.
"""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

MIB = 2**20


def problems(expected: dict) -> Iterator[str]:
    yield from cluster_problems(Path(expected["config"], "cluster"), expected["cluster"])
    yield from system_problems()
    yield from memory_problems(expected["memory"])
    yield from disk_problems(Path(expected["data"]), expected["disk"])
    yield from port_problems(expected["services"])
    yield from clock_problems(expected["artifacts"], expected["clock"])


def cluster_problems(owner: Path, expected: str) -> Iterator[str]:
    """A second cluster's configuration would take this host from the first one."""
    if owner.exists() and (cluster := owner.read_text().strip()) != expected:
        yield (
            f"belongs to the cluster {cluster}, not to {expected}; take it out of the environment,"
            " or wipe it first"
        )


def system_problems() -> Iterator[str]:
    release = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text().splitlines()
        if "=" in line
    )
    version = f"{release.get('ID')} {release.get('VERSION_ID', '').strip(chr(34))}"
    if version != "debian 12":
        yield f"the system is {version}; the roles are written for debian 12"
    state = output("systemctl", "is-system-running")
    # "degraded": a unit has failed, which may be the very one that this run repairs.
    if state not in ("running", "degraded"):
        yield f"systemd says '{state}'; it must be running to keep services alive"


def memory_problems(expected: int) -> Iterator[str]:
    total = memory() // MIB
    # The kernel keeps a few percent of a machine's memory to itself.
    if total < expected * 0.95:
        yield f"{total} MiB of memory; the plan gives this host {expected} MiB"


def memory() -> int:
    """Bytes this host may use: the machine's, or less if a control group says so."""
    kib = re.search(r"MemTotal: +(\d+)", Path("/proc/meminfo").read_text())
    limits = [int(kib[1]) * 1024] if kib else []
    for line in Path("/proc/1/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            limits += group_limits("/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes")
        elif not controllers:
            limits += group_limits("/sys/fs/cgroup" + path, "memory.max")
    return min(limits)


def group_limits(group: str, name: str) -> Iterator[int]:
    """A control group's own limit and those of the groups it lies in."""
    for folder in (Path(group), *Path(group).parents):
        file = folder / name
        if file.exists() and (limit := file.read_text().strip()) != "max":
            yield int(limit)


def disk_problems(data: Path, expected: int) -> Iterator[str]:
    folder = data if data.exists() else data.parent
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize // MIB
    if free < expected:
        yield f"{free} MiB free under {folder}; at least {expected} MiB are needed"


def port_problems(services: dict[str, dict[str, int]]) -> Iterator[str]:
    owners = listeners()
    for unit, ports in services.items():
        for name, port in ports.items():
            owner = owners.get(port, unit)
            if owner != unit:
                yield f"port {port} ({unit}'s {name}) is taken by {owner}"


def listeners() -> dict[int, str]:
    """Listening TCP port to the systemd unit that listens, or the process if it has none."""
    owners = {}
    for line in output("ss", "-Hltnp").splitlines():
        port = int(line.split()[3].rpartition(":")[2])
        if process := re.search(r'"(?P<name>[^"]+)",pid=(?P<pid>\d+)', line):
            owners[port] = unit_of(process["pid"]) or process["name"]
    return owners


def unit_of(pid: str) -> str | None:
    try:
        groups = Path("/proc", pid, "cgroup").read_text()
    except FileNotFoundError:
        return None
    unit = re.search(r"([^/\n]+)\.service", groups)
    return unit[1] if unit else None


def clock_problems(reference: str, allowed: float) -> Iterator[str]:
    try:
        least, most = clock_offset(reference)
    except OSError as error:
        yield f"the artifact store {reference} doesn't answer: {error}"
        return
    if least > allowed or most < -allowed:
        off = least if least > allowed else most
        yield f"the clock is {off:+.1f} s off the artifact store's; {allowed} s are allowed"


def clock_offset(reference: str) -> tuple[float, float]:
    """How many seconds, at least and at most, this clock is ahead of a web server's.

    The server's header shows whole seconds, and an answer may be slow. Neither can make a right
    clock look wrong, because each answer only narrows what is possible.
    """
    least, most = float("-inf"), float("inf")
    for _ in range(5):
        before = time.time()
        shown = server_time(reference)
        least = max(least, before - (shown + 1))
        most = min(most, time.time() - shown)
        time.sleep(0.2)
    return least, most


def server_time(url: str) -> float:
    server = urlsplit(url)
    secure = server.scheme == "https"
    connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = connect(server.hostname, server.port, timeout=5)
    connection.request("HEAD", "/")
    return parsedate_to_datetime(connection.getresponse().headers["Date"]).timestamp()


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    for problem in problems(json.loads(sys.argv[1])):
        print(f"{socket.gethostname()}: {problem}")
