"""Runs on a host, fed to its ``python3 -`` over SSH: standard library only.

Reads one JSON object from argv[1] and prints what this host's logs say, the oldest first: a line
for each, as a JSON list ``[seconds since 1970, source, level, text]``. A text may have several
lines, such as a stack trace.

    since, until   seconds since 1970
    pattern        a regular expression; only texts in which it is found
    level          the least of `LEVELS`
    units          unit → folder of its log files; of these the journal is read, too
    containers     where a NodeManager keeps its containers' logs, or null
    kinds          which of them: driver, executor
    system         whether to read what the journal has of others
    gc             whether to read the logs of garbage collectors

A source is a unit's name; ``driver`` or ``executor``, with the number of its application and of its
container; or ``system``.
"""

import gzip
import heapq
import json
import os
import re
import subprocess
import sys
from datetime import datetime
from operator import itemgetter

# How log4j, Log4j 2, Logback, Python's logging and a JVM begin a line; the times are this host's.
STAMP = re.compile(
    r"(?P<level>\w+ +\[.*?\] )?"
    r"\[?(?P<second>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)[.,](?P<fraction>\d+)"
    r"(?P<zone>[+-]\d{4})?\]? ?"
)
LEVELS = ("debug", "info", "warning", "error")
# How those and Python's daemons, logfmt (Prometheus and its like) and Redis say how bad it is.
LEVEL = re.compile(
    r"\[?(?P<word>TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b"
    r"|(?:\S+ )*?level=(?P<logfmt>\w+)"
    r"|\d+:[XCSM] \d+ \w+ \d+ [\d:.]+ (?P<redis>[-.*#]) ",
    re.IGNORECASE,
)
OTHER_NAMES = {
    "trace": "debug",
    "notice": "info",
    "warn": "warning",
    "#": "warning",
} | dict.fromkeys(("critical", "fatal"), "error")
SYSLOG = ("error",) * 4 + ("warning", "info", "info", "debug")  # by journald's PRIORITY
LOG = re.compile(r"(?P<name>.+?)\.log\b")  # what follows is added when a full file is put aside
GC = "gc"
CONTAINER = re.compile(r"container_(?:e\d+_)?\d+_0*(?P<application>\d+)_\d+_0*(?P<number>\d+)$")
MASTER = "org.apache.spark.deploy.yarn.ApplicationMaster"
LINES = 1000  # of one text; what never says the time comes in parts
# What looking at a host says of itself, and what Ansible does.
OWN = re.compile(r"sshd|sudo|systemd-logind|ansible-.*")


def entries(lines, otherwise):
    """(time, text) of each that begins with a time; the lines below it are part of it.

    What stands before the first one has its time, or ``otherwise`` where there is none.
    """
    time = None
    text: list[str] = []
    for line in lines:
        line = line.rstrip("\n")
        if found := STAMP.match(line):
            now = datetime.fromisoformat(found["second"] + (found["zone"] or "")).timestamp()
            now += float(f"0.{found['fraction']}")
            if text:
                yield now if time is None else time, "\n".join(text)
            time, text, line = now, [], (found["level"] or "") + line[found.end() :]
        elif len(text) == LINES:
            yield otherwise if time is None else time, "\n".join(text)
            text = []
        text.append(line)
    if text:
        yield otherwise if time is None else time, "\n".join(text)


def level_of(text, otherwise="info"):
    """Returns one of `LEVELS`; ``otherwise`` for a line that doesn't say."""
    found = LEVEL.match(text)
    said = next(filter(None, found.groups())).lower() if found else otherwise
    said = OTHER_NAMES.get(said, said)
    return said if said in LEVELS else otherwise


def read(paths, since):
    """Reads the files of one log, the oldest first."""
    for path in sorted(paths, key=modified):
        changed = modified(path)
        if changed < since:
            continue
        opened = gzip.open if path.endswith(".gz") else open
        try:
            with opened(path, "rt", encoding="utf-8", errors="replace") as lines:
                yield from entries(lines, changed)
        except FileNotFoundError:
            pass  # it was put aside, or its container's time is over


def modified(path):
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0


def files(folder, with_gc):
    """The logs in a folder: lists of paths, each with what was put aside."""
    logs: dict[str, list[str]] = {}
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        found = LOG.match(name)
        if found and (with_gc or found["name"] != GC):
            logs.setdefault(found["name"], []).append(os.path.join(folder, name))
    return logs.values()


def containers(folder, kinds):
    """Yields (source, path) of what containers say."""
    for below, _, names in os.walk(folder):
        found = CONTAINER.match(os.path.basename(below))
        kind = "driver" if found and runs_a_driver(below, found["number"]) else "executor"
        if found and kind in kinds:
            for name in names:
                if name in ("stdout", "stderr"):
                    number = f".{found['number']}" if kind == "executor" else ""
                    yield f"{kind} {found['application']}{number}", os.path.join(below, name)


def runs_a_driver(folder, number):
    """An attempt's master is its first container, unless that was lost before it ran."""
    try:
        with open(os.path.join(folder, "launch_container.sh"), errors="replace") as script:
            return MASTER in script.read()
    except FileNotFoundError:
        return number == "1"


def journal(wanted):
    """Yields (time, source, level, text) of each message."""
    command = ["journalctl", "--quiet", "--no-pager", "--all", "--output=json"]
    command += [f"--since=@{wanted['since']:.0f}", f"--until=@{wanted['until'] + 1:.0f}"]
    command += ["--output-fields=MESSAGE,PRIORITY,UNIT,_SYSTEMD_UNIT,SYSLOG_IDENTIFIER"]
    if not wanted["system"]:
        command += [f"--unit={unit}" for unit in wanted["units"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        for line in process.stdout or ():
            yield from message(json.loads(line), wanted)


def message(said, wanted):
    text = said.get("MESSAGE") or ""
    if isinstance(text, list):  # bytes that aren't text
        text = bytes(text).decode(errors="replace")
    time = int(said["__REALTIME_TIMESTAMP"]) / 1e6
    unit = (said.get("UNIT") or said.get("_SYSTEMD_UNIT") or "").removesuffix(".service")
    who = said.get("SYSLOG_IDENTIFIER") or unit
    level = level_of(text, SYSLOG[int(said.get("PRIORITY", 6))])
    if unit in wanted["units"]:
        yield time, unit, level, text
    elif wanted["system"] and not OWN.fullmatch(who):
        yield time, "system", level, f"{who}: {text}"


def of(source, found):
    return ((time, source, level_of(text), text) for time, text in found)


def sources(wanted):
    """An iterator for each log of this host."""
    since = wanted["since"]
    if wanted["units"] or wanted["system"]:
        yield journal(wanted)
    for unit, folder in wanted["units"].items():
        for paths in files(folder, wanted["gc"]):
            yield of(unit, read(paths, since))
    if wanted["containers"]:
        for source, path in containers(wanted["containers"], wanted["kinds"]):
            yield of(source, read([path], since))


def main(wanted):
    pattern = re.compile(wanted["pattern"])
    levels = LEVELS[LEVELS.index(wanted["level"]) :]
    for time, source, level, text in heapq.merge(*sources(wanted), key=itemgetter(0)):
        if level in levels and wanted["since"] <= time <= wanted["until"] and pattern.search(text):
            print(json.dumps([time, source, level, text]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
