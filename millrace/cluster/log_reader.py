"""Runs on a host, fed to its ``python3 -`` over SSH: standard library only.

Reads one JSON object from argv[1] and prints what this host's logs say, the oldest first: a line
for each, as a JSON list ``[seconds since 1970, source, level, text]``. A text may have several
lines, such as a stack trace. With ``follow`` an empty line ends the past; from then on comes what
is said, as it is said, with an empty line now and then.

    since, until   seconds since 1970
    pattern        a regular expression; only texts in which it is found
    level          the least of `LEVELS`
    units          unit → folder of its log files; of these the journal is read, too
    containers     where a NodeManager keeps its containers' logs, or null
    kinds          which of them: driver, executor
    system         whether to read what the journal has of others
    gc             whether to read the logs of garbage collectors
    follow         whether to go on with what is said from now on

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
import time as clock
from contextlib import suppress
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
POLL_SECONDS = 1.0  # an entry has ended when nothing has come for so long
BLOCK = 2**16  # bytes
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


def read(paths, since, ends):
    """Reads the files of one log, the oldest first.

    Where ``ends`` are given, by inode, as far as these; what has none is newer, and not read.
    """
    for path in sorted(paths, key=modified):
        changed = modified(path)
        if changed < since:
            continue
        opened = gzip.open if path.endswith(".gz") else open
        try:
            with opened(path, "rb") as file:
                is_whole = ends is None or path.endswith(".gz")
                end = None if is_whole else ends.get(os.fstat(file.fileno()).st_ino, 0)
                yield from entries(lines_of(file, end), changed)
        except FileNotFoundError:
            pass  # it was put aside, or its container's time is over


def lines_of(file, end):
    """Yields lines as text, of the first ``end`` bytes or of all."""
    for line in file:
        if end is not None:
            end -= len(line)
            if end < 0:
                return
        yield line.decode(errors="replace").replace("\r\n", "\n")


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
    span = f"--since=@{int(wanted['since'])}", f"--until=@{int(wanted['until']) + 1}"
    command = journalctl(wanted, *span)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        for line in process.stdout or ():
            yield from message(json.loads(line), wanted)


def journalctl(wanted, *options):
    command = ["journalctl", "--quiet", "--no-pager", "--all", "--output=json", *options]
    command += ["--output-fields=MESSAGE,PRIORITY,UNIT,_SYSTEMD_UNIT,SYSLOG_IDENTIFIER"]
    if not wanted["system"]:
        command += [f"--unit={unit}" for unit in wanted["units"]]
    return command


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


def sources(wanted, ends):
    """An iterator for each log of this host."""
    since = wanted["since"]
    if wanted["units"] or wanted["system"]:
        yield journal(wanted)
    for unit, folder in wanted["units"].items():
        for paths in files(folder, wanted["gc"]):
            yield of(unit, read(paths, since, ends))
    if wanted["containers"]:
        for source, path in containers(wanted["containers"], wanted["kinds"]):
            yield of(source, read([path], since, ends))


def tell_past(wanted, ends):
    for entry in heapq.merge(*sources(wanted, ends), key=itemgetter(0)):
        if wanted["since"] <= entry[0] <= wanted["until"]:
            tell(wanted, *entry)


def tell(wanted, time, source, level, text):
    worse = LEVELS[LEVELS.index(wanted["level"]) :]
    if level in worse and re.search(wanted["pattern"], text):
        print(json.dumps([time, source, level, text]), flush=wanted["follow"])


class Stream:
    """What is written to a file or a pipe from now on."""

    def __init__(self, source, file):
        self.source = source
        self.file = file
        self.rest = b""  # of a line
        self.lines = []  # of an entry

    def come(self):
        """Returns the whole lines that have come."""
        *whole, self.rest = (self.rest + (self.file.read() or b"")).split(b"\n")
        return [line.decode(errors="replace").rstrip("\r") for line in whole]

    def ended(self, now):
        """Returns the entries that have ended: by the next one, or as nothing more comes."""
        come = self.come()
        self.lines += come
        begins = [n for n, line in enumerate(self.lines) if STAMP.match(line)]
        end = len(self.lines)
        if come and end <= LINES:
            end = begins[-1] if begins else 0
        told, self.lines = self.lines[:end], self.lines[end:]
        return of(self.source, entries(told, now))


class Files:
    """The logs that are written to from now on, by inode: one that is put aside keeps it.

    ``ends`` is where the whole lines of each end that is there now. A log is opened once it grows,
    and kept open until it is gone: most are never written to again.
    """

    def __init__(self, wanted):
        self.wanted = wanted
        self.streams = {}
        self.ends = {}
        for _, path in self.paths():
            with suppress(FileNotFoundError), open(path, "rb") as file:
                self.ends[os.fstat(file.fileno()).st_ino] = whole(file)

    def look(self, now):
        """Yields what has been said; files that are new are read from their begin."""
        for source, path in self.paths():
            with suppress(FileNotFoundError):
                self.take(source, path)
        for inode, stream in list(self.streams.items()):
            about = os.fstat(stream.file.fileno())
            if about.st_size < stream.file.tell():
                stream.file.seek(0)
            yield from stream.ended(now)
            if not (about.st_nlink or stream.lines):
                stream.file.close()
                del self.streams[inode]

    def take(self, source, path):
        """Opens a file that has grown; one that is shorter than it was is another one."""
        about = os.stat(path)
        place = self.ends.get(about.st_ino, 0)
        if about.st_size < place:
            place = self.ends[about.st_ino] = 0
        if about.st_ino not in self.streams and about.st_size > place:
            file = open(path, "rb", buffering=0)  # noqa: SIM115 (until it is gone)
            file.seek(place)
            self.streams[os.fstat(file.fileno()).st_ino] = Stream(source, file)

    def paths(self):
        for unit, folder in self.wanted["units"].items():
            for paths in files(folder, self.wanted["gc"]):
                yield from ((unit, path) for path in paths if not path.endswith(".gz"))
        if self.wanted["containers"]:
            yield from containers(self.wanted["containers"], self.wanted["kinds"])


class Messages:
    """What the journal is told from now on."""

    def __init__(self, wanted, began):
        self.wanted = wanted
        self.began = began
        command = journalctl(wanted, f"--since=@{int(began)}", "--follow", "--no-tail")
        is_wanted = wanted["units"] or wanted["system"]
        self.process = subprocess.Popen(
            command if is_wanted else ["true"], stdout=subprocess.PIPE, bufsize=0
        )
        assert self.process.stdout
        os.set_blocking(self.process.stdout.fileno(), False)
        self.stream = Stream("", self.process.stdout)

    def look(self):
        for line in self.stream.come():
            found = message(json.loads(line), self.wanted)
            yield from (entry for entry in found if entry[0] > self.began)

    def end(self):
        self.process.kill()
        self.process.wait()


def whole(file):
    """Returns where the last whole line of a file ends."""
    place = file.seek(0, os.SEEK_END)
    while place:
        begin = max(0, place - BLOCK)
        file.seek(begin)
        found = file.read(place - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        place = begin
    return 0


def follow(wanted, pause=clock.sleep):
    """Tells the past, and goes on with what is said, until nobody listens."""
    began = clock.time()
    logs, messages = Files(wanted), Messages(wanted, began)
    try:
        tell_past(wanted | {"until": began}, logs.ends)
        while True:
            print(flush=True)  # whoever listens no more is noticed by it
            pause(POLL_SECONDS)
            for entry in (*messages.look(), *logs.look(clock.time())):
                tell(wanted, *entry)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        messages.end()


def main(wanted):
    if wanted["follow"]:
        follow(wanted)
    else:
        tell_past(wanted, None)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
