"""Runs on a host, fed to its ``python3 -`` over SSH: standard library only.

Reads one JSON object from argv[1] and prints one: ``facts``, a text that says what the host is like
now; ``files`` of its configuration, path → content, the smallest first; ``left_out``, the paths of
those that are too large.

    units    units of services
    config   the folder of their configuration
    data     the folder of their data
    secrets  folders that nobody looks into
    most     bytes of the facts, and of all the files

A file that not everybody on the host may read isn't read here either.
"""

import json
import os
import stat
import subprocess
import sys

TIMEOUT = 10  # s; a disk that hangs must not hide the rest


def commands(units, data):
    shown = "Id,ActiveState,SubState,Result,NRestarts,ActiveEnterTimestamp,MemoryCurrent"
    yield ["date", "--utc"]
    yield ["uname", "-a"]
    yield ["uptime"]
    yield ["free", "-m"]
    yield ["df", "-h"]
    yield ["systemctl", "--failed", "--no-pager"]
    if units:
        yield ["systemctl", "show", f"--property={shown}", *units]
        yield ["systemctl", "cat", "--no-pager", *units]
    yield ["ps", "-eo", "pid,user,rss,pcpu,etimes,args", "--sort=-rss"]
    yield ["ss", "-Hltn"]
    yield ["java", "-version"]
    yield ["find", data, "-maxdepth", "2", "-name", "heap.hprof", "-ls"]
    yield ["journalctl", "--disk-usage"]


def said(command):
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT
        )
        return done.stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}\n"


def readable(folder, secrets):
    """(size, path) of each file below it that everybody may read."""
    for below, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if os.path.join(below, name) not in secrets]
        for name in names:
            path = os.path.join(below, name)
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IROTH:
                yield found.st_size, path


def main(wanted):
    files, left_out, taken = {}, [], 0
    for size, path in sorted(readable(wanted["config"], wanted["secrets"])):
        taken += size
        if taken > wanted["most"]:
            left_out.append(path)
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            files[path] = file.read(size)
    facts = "\n".join(
        f"$ {' '.join(command)}\n{said(command)}"
        for command in commands(wanted["units"], wanted["data"])
    )
    facts = facts[: wanted["most"]]
    print(json.dumps({"facts": facts, "files": files, "left_out": left_out}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
